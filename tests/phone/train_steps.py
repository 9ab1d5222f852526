"""Run some training steps of a bundle and write down everything: run by the phone's Python and by this machine's.

In:  python train_steps.py BUNDLE OUT.npz STEPS THREADS
Out: losses, first gradient, gradient of the input, final parameters.
Only the bundle's own mft.pyz and numpy are imported; the library is the one that the runtime would take.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

bundle, out, steps, threads = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
sys.path.insert(0, str(bundle / "mft.pyz"))

import numpy as np  # noqa: E402
from mobilefinetuner.runtime.bundle.cpu_features import read_machine_cpu  # noqa: E402
from mobilefinetuner.runtime.bundle.folder import Bundle  # noqa: E402
from mobilefinetuner.runtime.bundle.plan import Plan  # noqa: E402
from mobilefinetuner.runtime.engine.engine import Engine  # noqa: E402
from mobilefinetuner.runtime.engine.packing import pack  # noqa: E402
from mobilefinetuner.runtime.gguf.file import GgufFile  # noqa: E402
from mobilefinetuner.runtime.train.step import AdamW, TrainStep  # noqa: E402


@dataclass
class Sample:
    """Random tokens, the first four of them unlabelled."""

    token_ids: np.ndarray
    label_mask: np.ndarray


library = Bundle.open(bundle).kernel_library(read_machine_cpu())
plan = Plan.from_json(json.loads((bundle / "plan.json").read_text()))
rng = np.random.default_rng(0)
samples = [Sample(rng.integers(0, plan.model.vocab, n).astype(np.int32), (np.arange(n) >= 4).astype(np.uint8)) for n in (20, 11)]
with Engine(plan, library, GgufFile.open(bundle / "model.gguf"), threads) as engine:
    step = TrainStep(engine, plan.buckets[0])
    step.state["parameters"][:] = rng.normal(0, 0.01, plan.adapter.size).astype(np.float32)
    [batch] = pack(samples, step.batch, step.width)
    optimizer = AdamW(0.9, 0.999, 1e-8, 0.0, 1.0, 0.0)
    found, losses = {}, []
    for number in range(1, steps + 1):
        losses.append(step.accumulate(batch, batch.labels) / batch.labels)
        if number == 1:
            found = {"gradient": step.state["gradient"].copy(), "input_gradient": step.input_gradient().copy()}
        step.update(4e-3, number, optimizer)
    np.savez(out, losses=np.array(losses), parameters=step.state["parameters"], **found)
