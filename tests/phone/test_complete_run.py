"""The whole job on an arm64 phone, over both transports: push, ingest, tune, verify, chat, roll back, pull; and the same on this machine.

The phone is a Debian arm64 root under qemu: its sshd is a real one, its adb device speaks to the real adb. The tiny random model
goes the whole way in a minute; SmolLM2 takes some minutes for each transport and has the marker `phone`.
What must be equal, and how nearly: agreement.py.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.phone.adb_phone import adb_phone
from tests.phone.agreement import check_merged, check_tuned
from tests.phone.cable import cable
from tests.phone.shop_job import ROWS, settings, write_data
from tests.phone.ssh_phone import ssh_phone
from tests.support.bundle_cache import compile_anew
from tests.support.tiny_bundle import compile_tiny_bundle, write_tiny_model

DEVICE = "generic_armv8_2"
MODELS = [
    pytest.param("tiny", marks=pytest.mark.slow),
    pytest.param("smollm2", marks=pytest.mark.phone),
]


@pytest.fixture(scope="module", params=MODELS)
def made(request, tmp_path_factory):
    """{device: bundle} and the owner's data."""
    folder = tmp_path_factory.mktemp(request.param)
    is_tiny = request.param == "tiny"
    chosen = settings(folder / "template", row_tokens=64 if is_tiny else 32, batch_samples=2 if is_tiny else 1)
    bundles = {}
    for device in ("host", DEVICE):
        if is_tiny:
            model = folder / "tiny.gguf"
            bundles[device] = compile_tiny_bundle(folder / device, model if model.exists() else write_tiny_model(model), *chosen, f"device={device}")
        else:
            bundles[device] = compile_anew(folder / device, "model=smollm2_135m", f"device={device}", *chosen)
    return bundles, write_data(folder / "shop.jsonl")


@contextmanager
def _phone(transport: str, storage: Path, root):
    """(TARGET, environment, port) of an arm64 phone; here: this machine as its own phone."""
    if transport == "here":
        yield lambda port=None: str(storage / "mft"), dict(os.environ), None
        return
    with ssh_phone(storage, root) if transport == "ssh" else adb_phone(storage, root) as phone:
        yield lambda port=None: phone.address(port=port), phone.environment, phone.port


def _mft(environment: dict[str, str], *words: str, allowed: tuple[int, ...] = (0,)) -> str:
    command = [sys.executable, "-m", "mobilefinetuner.compiler.cli", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode in allowed, f"{words}: exit code {done.returncode}\n{done.stdout[-800:]}\n{done.stderr[-1500:]}"
    return done.stdout


def _push(bundle: Path, data: Path, transport: str, phone: tuple) -> None:
    """Push the bundle and the data, through a cable that is pulled once."""
    address, environment, port = phone
    python = ["--python", sys.executable] if transport == "here" else []
    with cable(port or 1, [random.Random(4).randrange(10**5, 4 * 10**5)] if port else []) as pulled:
        _mft(environment, "push", str(bundle), "--to", address(pulled.port if port else None), "--with", str(data), *python)
        assert pulled.cut_count == (1 if port else 0)


def _whole_way(bundle: Path, data: Path, transport: str, storage: Path, root, fetched: Path) -> dict:
    """Everything a person does; what `tune` and `chat` said, and the version's file at `fetched`."""
    with _phone(transport, storage, root) as phone:
        _push(bundle, data, transport, phone)
        address, environment, _ = phone

        def on(*words: str, allowed: tuple[int, ...] = (0,)) -> str:
            return _mft(environment, "on", address(), *words, allowed=allowed)

        report = fetched.parent / f"{transport}.html"
        assert json.loads(on("ingest", "data/shop.jsonl", "--json", "--report", str(report)))["kept"] == len(ROWS)
        assert report.stat().st_size > 1000
        tuned = json.loads(on("tune", "data/shop.jsonl", "--json", "--steps", "2", allowed=(0, 3)))
        verified = json.loads(on("verify", "--version", tuned["version"], "--json", allowed=(0, 3)))
        chatted = json.loads(on("chat", "--prompt", "When do you open?", "--version", tuned["version"], "--json"))
        if tuned["promoted"]:
            on("rollback", "base")
        listed = json.loads(on("versions", "--json"))
        assert listed["current"] == "base" and [version["id"] for version in listed["versions"]] == [tuned["version"]]
        on("audit", "--verify")
        _mft(environment, "pull", address(), tuned["version"], "--output", str(fetched))
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
    check_tuned(there["tuned"], ours["tuned"])
    assert there["verified"]["verdict"] == ours["verified"]["verdict"] and there["chatted"]["answer"] == ours["chatted"]["answer"]
    check_merged(tmp_path / "v.gguf", file, bundles["host"] / "model.gguf")
