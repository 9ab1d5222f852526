"""`tune` on arm64 under qemu and on this machine: the same losses, the same merged file, within the bounds of agreement.py."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.phone.agreement import check_merged, check_tuned
from tests.phone.shop_job import settings, write_data
from tests.support.tiny_bundle import compile_tiny_bundle

STEPS = 4


@pytest.fixture(scope="module")
def bundles(tiny_model_path, tmp_path_factory, arm64):
    """The tiny model for this machine and for phones. Asks for arm64 first: without it, nothing is compiled."""
    folder = tmp_path_factory.mktemp("agreement")
    chosen = settings(folder / "template", row_tokens=64, batch_samples=2)
    return {device: compile_tiny_bundle(folder / device, tiny_model_path, *chosen, f"device={device}") for device in ("host", "generic_armv8_2")}


def _tuned(command, environment, bundle, data, workspace):
    words = [*command, str(bundle / "mft.pyz"), "tune", str(data), "--workspace", str(workspace), "--steps", str(STEPS), "--json"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    said = json.loads(done.stdout or "{}")
    assert said and done.returncode == (0 if said["promoted"] else 3), done.stderr
    return said, workspace / "versions" / said["version"] / "model.gguf"


def test_losses_and_merged_weights_on_arm64_are_those_of_this_machine(bundles, arm64, tmp_path):
    data = write_data(tmp_path / "shop.jsonl")
    here, file = _tuned([sys.executable], None, bundles["host"], data, tmp_path / "here")
    there, file_there = _tuned(*arm64.python(), bundles["generic_armv8_2"], data, tmp_path / "there")
    check_tuned(there, here)
    check_merged(file_there, file, bundles["host"] / "model.gguf")
