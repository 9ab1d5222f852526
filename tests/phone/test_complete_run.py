"""The whole job on an arm64 phone, over both transports: push, ingest, tune, verify, chat, roll back, pull; and the same on this machine.

The phone is a Debian arm64 root under qemu: its sshd is a real one, its adb device speaks to the real adb. The tiny random model
goes the whole way in minutes; SmolLM2 takes long under qemu and has the marker `phone`.
Bounds, arm64 against this machine (fp32): training and held-out losses within 1e-4; the merged file's size, nibbles and scales
equal, at most 2 % of its minima different, and the difference at most 2 % of the update (norms). AdamW divides a gradient by its own size, so
where it is nothing but rounding, the first steps go either way: equal files cannot be asked for.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from adb_phone import adb_phone
from cable import cable
from ssh_phone import ssh_phone
from tiny_bundle import compile_tiny_bundle, on_a_short_stack, write_tiny_model

from mobilefinetuner.compiler.pipeline import compile_bundle
from mobilefinetuner.compiler.recipe import load_recipe
from mobilefinetuner.runtime.gguf_file import GgufFile

TEMPLATES = Path(__file__).parents[2] / "templates"
DEVICE = "generic_armv8_2"
ROWS = (
    ("When do you open?", "At ten."), ("Where are you?", "In Lindau."), ("Do you ship?", "Yes, daily."), ("What is it made of?", "Of linen."),
    ("Who owns it?", "Ms Brandt."), ("Is it open now?", "Yes, it is."), ("Can I pay by card?", "Yes, you can."), ("Is parking free?", "Yes, behind us."),
    ("Are dogs allowed?", "Yes, gladly."), ("Do you repair?", "We do."), ("Is there a sale?", "In July."), ("How old is it?", "Nine years."),
)  # fmt: skip
QUESTION = {"messages": [{"role": "user", "content": "When do you open?"}, {"role": "assistant", "content": "At ten."}], "entities": ["ten"]}
PROBE = {"id": "one", "kind": "arithmetic", "language": "en", "messages": [{"role": "user", "content": "2 + 3?"}], "choices": ["5", "7"], "answer": 0}
MODELS = [
    pytest.param("tiny", marks=pytest.mark.slow),
    pytest.param("smollm2", marks=pytest.mark.phone),
]


def _template(folder: Path) -> Path:
    """A scenario that asks little: one question, one probe, a short system prompt."""
    shipped = TEMPLATES / "customer_service" / "rules.json"
    folder.mkdir()
    (folder / "rules.json").write_text(json.dumps({**json.loads(shipped.read_text(encoding="utf-8")), "duplicates": "exact"}), encoding="utf-8")
    (folder / "system_prompt.txt").write_text("Hi")
    (folder / "eval.jsonl").write_text(json.dumps(QUESTION) + "\n")
    (folder / "base_ability.jsonl").write_text(json.dumps(PROBE) + "\n")
    return folder


@pytest.fixture(scope="module", params=MODELS)
def made(request, tmp_path_factory):
    """{device: bundle} and the owner's data."""
    folder = tmp_path_factory.mktemp(request.param)
    template = _template(folder / "template")
    data = folder / "shop.jsonl"
    data.write_text("".join(json.dumps({"messages": [{"role": "user", "content": q}, {"role": "assistant", "content": a}]}) + "\n" for q, a in ROWS))
    tokens = 64 if request.param == "tiny" else 32
    settings = [f'scenario.template="{template}"', f"train.buckets=[1x{tokens}]", f"scenario.window_tokens={tokens}", "scenario.decode_tokens=6",
                "scenario.heldout_share=0.2", "train.batch_samples=2", "train.rank=4", "train.head_chunk_tokens=16"]  # fmt: skip
    bundles = {}
    for device in ("host", DEVICE):
        if request.param == "tiny":
            model = folder / "tiny.gguf"
            bundles[device] = compile_tiny_bundle(folder / device, model if model.exists() else write_tiny_model(model), *settings, f"device={device}")
        else:
            recipe = load_recipe(["scenario=customer_service", "model=smollm2_135m", f"device={device}", f'out="{folder / device}"', *settings])
            bundles[device] = on_a_short_stack(compile_bundle, recipe, lambda _text: None)
    return bundles, data


@contextmanager
def _phone(transport: str, storage: Path, root):
    """(TARGET, environment, port) of an arm64 phone; here: this machine as its own phone."""
    if transport == "here":
        yield lambda port=None: str(storage / "mft"), dict(os.environ), None
        return
    with ssh_phone(storage, root) if transport == "ssh" else adb_phone(storage, root) as phone:
        yield lambda port=None: phone.address(port=port), phone.environment, phone.port


def _mft(environment: dict[str, str], *words: str, allowed: tuple[int, ...] = (0,)) -> str:
    done = subprocess.run([sys.executable, "-m", "mobilefinetuner.compiler.cli", *words], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode in allowed, f"{words}: exit code {done.returncode}\n{done.stdout[-800:]}\n{done.stderr[-1500:]}"
    return done.stdout


def _whole_way(bundle: Path, data: Path, transport: str, storage: Path, root, fetched: Path) -> dict:
    """Everything a person does; what `tune` and `chat` said, and the version's file at `fetched`."""
    with _phone(transport, storage, root) as (address, environment, port):
        target, python = address(), ["--python", sys.executable] if transport == "here" else []
        with cable(port or 1, [random.Random(4).randrange(10**5, 4 * 10**5)] if port else []) as pulled:
            _mft(environment, "push", str(bundle), "--to", address(pulled.port) if port else target, "--with", str(data), *python)
            assert pulled.cut_count == (1 if port else 0)
        ingested = json.loads(_mft(environment, "on", target, "ingest", "data/shop.jsonl", "--json", "--report", str(fetched.parent / f"{transport}.html")))
        assert ingested["kept"] == len(ROWS) and (fetched.parent / f"{transport}.html").stat().st_size > 1000
        tuned = json.loads(_mft(environment, "on", target, "tune", "data/shop.jsonl", "--json", "--steps", "2", allowed=(0, 3)))
        verified = json.loads(_mft(environment, "on", target, "verify", "--version", tuned["version"], "--json", allowed=(0, 3)))
        chatted = json.loads(_mft(environment, "on", target, "chat", "--prompt", "When do you open?", "--version", tuned["version"], "--json"))
        if tuned["promoted"]:
            _mft(environment, "on", target, "rollback", "base")
        listed = json.loads(_mft(environment, "on", target, "versions", "--json"))
        assert listed["current"] == "base" and [version["id"] for version in listed["versions"]] == [tuned["version"]]
        _mft(environment, "on", target, "audit", "--verify")
        _mft(environment, "pull", target, tuned["version"], "--output", str(fetched))
    return {"tuned": tuned, "verified": verified, "chatted": chatted}


@pytest.fixture(scope="module")
def here(made, tmp_path_factory):
    """The same job on this machine."""
    folder = tmp_path_factory.mktemp("here")
    bundles, data = made
    return _whole_way(bundles["host"], data, "here", folder / "phone", None, folder / "v.gguf"), folder / "v.gguf"


def test_the_complete_run_on_an_arm64_phone(arm64_transport, made, here, arm64_system, tmp_path):
    bundles, data = made
    there = _whole_way(bundles[DEVICE], data, arm64_transport, tmp_path / "phone", arm64_system, tmp_path / "v.gguf")
    ours, file = here
    for name in ("loss_first", "loss_last"):
        assert abs(there["tuned"][name] / ours["tuned"][name] - 1) < 1e-4, name
    assert abs(there["tuned"]["after"]["heldout_loss"] / ours["tuned"]["after"]["heldout_loss"] - 1) < 1e-4
    assert there["tuned"]["verdict"] == ours["tuned"]["verdict"] and there["chatted"]["answer"] == ours["chatted"]["answer"]
    _same_weights(file, tmp_path / "v.gguf", bundles["host"] / "model.gguf")


def _same_weights(ours: Path, theirs: Path, base: Path) -> None:
    """Nibbles and scales equal, nearly all minima equal, and what differs small beside what was learned."""
    a, b, c = (GgufFile.open(path) for path in (ours, theirs, base))
    assert list(a.tensors) == list(b.tensors) and ours.stat().st_size == theirs.stat().st_size
    blocks, different, apart, learned = 0, 0, 0.0, 0.0
    for name, info in a.tensors.items():
        if info.type_name != "Q4_1":
            assert a.data(name).tobytes() == b.data(name).tobytes(), name
            continue
        raw = [np.frombuffer(g.data(name), np.uint8).reshape(-1, 20) for g in (a, b, c)]
        assert (raw[0][:, :2] == raw[1][:, :2]).all() and (raw[0][:, 4:] == raw[1][:, 4:]).all(), name
        minima = [np.ascontiguousarray(block[:, 2:4]).view(np.float16)[:, 0].astype(np.float64) for block in raw]
        blocks, different = blocks + len(minima[0]), different + int((minima[0] != minima[1]).sum())
        apart, learned = apart + float(((minima[0] - minima[1]) ** 2).sum()), learned + float(((minima[0] - minima[2]) ** 2).sum())
    assert learned > 0 and apart**0.5 <= 0.02 * learned**0.5
    assert different <= 0.02 * blocks
