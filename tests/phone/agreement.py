"""How far arm64 may be from this machine after the same `tune` (fp32 on both): the bounds that docs/phone.md states.

In:  what `tune --json` said on both, and the merged files.
Out: nothing, or an AssertionError that names what is apart.
Losses of the base: within 2e-5. After some steps: the held-out loss within 1e-4, that of the last batch, of a few tokens, within 5e-4. The
merged file: size, nibbles and scales equal, at most 2 % of its minima different, and the difference at most 2 % of the update (norms).
AdamW divides a gradient by its own size, so where it is nothing but rounding, the first steps go either way: equal files cannot be
asked for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from mobilefinetuner.runtime.gguf.file import GgufFile

BATCH_LOSS_BOUNDS = {"loss_first": 2e-5, "loss_last": 5e-4}
HELDOUT_LOSS_BOUNDS = {"before": 2e-5, "after": 1e-4}
DIFFERENT_BOUND = 0.02
APART_BOUND = 0.02


def check_tuned(there: dict[str, Any], here: dict[str, Any]) -> None:
    """The losses in training and on the held-out turns, before and after, and the verdict."""
    for name, bound in BATCH_LOSS_BOUNDS.items():
        assert abs(there[name] / here[name] - 1) < bound, (name, there[name], here[name])
    for when, bound in HELDOUT_LOSS_BOUNDS.items():
        theirs, ours = there[when]["heldout_loss"], here[when]["heldout_loss"]
        assert abs(theirs / ours - 1) < bound, (when, theirs, ours)
    assert there["verdict"] == here["verdict"]


def check_merged(there: Path, here: Path, base: Path) -> None:
    """Two merged files, and the base that both began with."""
    a, b, c = (GgufFile.open(path) for path in (here, there, base))
    assert list(a.tensors) == list(b.tensors) and here.stat().st_size == there.stat().st_size
    blocks, different, apart, learned = 0, 0, 0.0, 0.0
    for name, info in a.tensors.items():
        if info.type_name != "Q4_1":
            assert a.data(name).tobytes() == b.data(name).tobytes(), name
            continue
        raw = [np.frombuffer(file.data(name), np.uint8).reshape(-1, 20) for file in (a, b, c)]
        assert (raw[0][:, :2] == raw[1][:, :2]).all() and (raw[0][:, 4:] == raw[1][:, 4:]).all(), name
        ours, theirs, before = (np.ascontiguousarray(block[:, 2:4]).view(np.float16)[:, 0].astype(np.float64) for block in raw)
        blocks, different = blocks + len(ours), different + int((ours != theirs).sum())
        apart, learned = apart + float(((ours - theirs) ** 2).sum()), learned + float(((ours - before) ** 2).sum())
    assert learned > 0 and apart**0.5 <= APART_BOUND * learned**0.5
    assert different <= DIFFERENT_BOUND * blocks
