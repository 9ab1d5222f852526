"""arm64 for real, as far as qemu goes: the same kernels under glibc and musl, the same training as on this machine.

Bounds (fp32; the order of sums differs between register tiles of different width): a kernel's output within 1e-5 of its largest
value; a step's loss within 1e-5, its gradients within 1e-4 of their norm; the loss after five steps within 1e-4.
"""

from __future__ import annotations

import functools
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from mobilefinetuner.compiler.kernels import attention, gemm, gemv, head, rows
from mobilefinetuner.compiler.kernels.block_types import BLOCK_TYPES
from mobilefinetuner.compiler.kernels.isa import isa_for
from mobilefinetuner.compiler.kernels.kernel_set import KernelSet
from mobilefinetuner.compiler.library.build import build_library, target_for, workspace_bytes
from mobilefinetuner.compiler.recipe.load import load_recipe
from mobilefinetuner.runtime.gguf.blocks import quantize

from tests.phone.arm64_root import CPU, QEMU, Arm64Root
from tests.support.tiny_bundle import compile_tiny_bundle, write_tiny_model

pytestmark = pytest.mark.slow
STEPS = 5
CODES = {"float32": (2, 32), "int32": (0, 32), "uint8": (1, 8)}
PHONES = ("generic_armv8", "generic_armv8_2", "pixel_8")
Q4_1 = BLOCK_TYPES["Q4_1"]


def _kernels(isa) -> KernelSet:
    """One of each kind, with sizes that leave tiles unfilled."""
    kernels = KernelSet(isa)
    kernels.named(gemm.frozen_matmul, 7, 64, 96, Q4_1)
    kernels.named(gemm.frozen_matmul_t, 16, 96, 64, Q4_1)
    kernels.named(gemv.frozen_matvec, 64, 96, Q4_1)
    kernels.named(gemm.matmul, "tn", 24, 18, 40, 2.0)
    kernels.named(rows.rms_norm, 5, 96, 1e-5)
    kernels.named(rows.swiglu, 480)
    kernels.named(attention.attention, 1, 64, 4, 2, 16)
    kernels.named(head.softmax_loss, 4, 96)
    return kernels


class Harness:
    """The C program of harness.c for one machine and C library, with the kernel library for that machine."""

    def __init__(self, folder: Path, arch: str, c_library: str, device: str, root: Arm64Root) -> None:
        recipe = load_recipe([f"device={device}"]).device
        self.kernels = _kernels(isa_for(recipe.arch, recipe.features))
        self.library, self.program = folder / f"{device}.so", folder / f"harness-{arch}-{c_library}"
        if not self.library.exists():
            self.library.write_bytes(build_library(self.kernels, target_for(recipe.arch, recipe.mtriple, recipe.cpu, recipe.features), recipe.arch))
        if not self.program.exists():
            source = Path(__file__).with_name("harness.c")
            compiler = [sys.executable, "-m", "ziglang", "cc", "-target", f"{arch}-linux-{c_library}", "-dynamic", "-O1"]
            subprocess.run([*compiler, "-o", str(self.program), str(source), "-ldl", "-lpthread"], check=True, capture_output=True)
        foreign = platform.machine() != arch
        self._prefix = [QEMU, "-L", str(root.folder)] if foreign else []
        self._environment = root.environment() if foreign else None

    def run(self, name: str, arrays: list[np.ndarray], threads: int) -> list[np.ndarray]:
        """The kernel's arguments after the call."""
        shapes = self.kernels.argument_shapes(name)
        image, words, offsets = bytearray(), [], []
        for array, (shape, dtype) in zip(arrays, shapes, strict=True):
            image += bytes(-len(image) % 64)
            offsets.append(len(image))
            words.append(f"{len(image)}:{':'.join(map(str, CODES[dtype]))}:{'x'.join(map(str, shape))}")
            image += np.ascontiguousarray(array, dtype).tobytes()
        place = self.program.parent
        (place / "image").write_bytes(image)
        setting = [str(self.library), str(threads), str(place / "image"), str(place / "out"), str(workspace_bytes(self.kernels))]
        command = [*self._prefix, str(self.program), *setting, name, *words]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        after = (place / "out").read_bytes()
        return [np.frombuffer(after, dtype, int(np.prod(shape)), offset) for offset, (shape, dtype) in zip(offsets, shapes)]


@pytest.fixture(scope="module")
def harness(tmp_path_factory, arm64):
    folder = tmp_path_factory.mktemp("harness")
    return functools.cache(lambda arch, c_library, device: Harness(folder, arch, c_library, device, arm64))


def _inputs(kernels: KernelSet, name: str) -> list[np.ndarray]:
    rng, arrays = np.random.default_rng(1), []
    for shape, dtype in kernels.argument_shapes(name):
        if dtype == "uint8":
            arrays.append(quantize(rng.normal(0, 0.2, (shape[0], shape[1] * 32)).astype(np.float32), "Q4_1"))
        elif dtype == "int32":
            arrays.append(np.zeros(shape, np.int32))
        else:
            arrays.append(rng.normal(0, 1, shape).astype(np.float32))
    return arrays


NAMES = tuple(_kernels(isa_for("aarch64", ())).functions)


@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_gives_the_same_bytes_under_glibc_and_musl_and_with_any_number_of_threads(harness, name):
    glibc, musl = harness("aarch64", "gnu", "generic_armv8"), harness("aarch64", "musl", "generic_armv8")
    arrays = _inputs(glibc.kernels, name)
    once = [array.tobytes() for array in glibc.run(name, arrays, 1)]
    for other in (glibc.run(name, arrays, 1), glibc.run(name, arrays, 3), musl.run(name, arrays, 1), musl.run(name, arrays, 3)):
        assert [array.tobytes() for array in other] == once


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("device", PHONES)
def test_a_kernel_on_arm64_agrees_with_this_machine(harness, name, device):
    here, there = harness(platform.machine(), "gnu", "host"), harness("aarch64", "gnu", device)
    arrays = _inputs(here.kernels, name)
    for ours, theirs in zip(here.run(name, arrays, 2), there.run(name, arrays, 2)):
        assert np.isfinite(theirs.astype(np.float64)).all()
        assert np.abs(ours.astype(np.float64) - theirs).max() <= 1e-5 * max(1.0, np.abs(ours.astype(np.float64)).max())


@pytest.fixture(scope="module")
def bundles(tmp_path_factory) -> dict[str, Path]:
    """The tiny model for this machine and for the phones."""
    folder = tmp_path_factory.mktemp("bundles")
    model = write_tiny_model(folder / "tiny.gguf")
    settings = ("train.buckets=[1x64]", "scenario.window_tokens=64")
    return {device: compile_tiny_bundle(folder / device, model, f"device={device}", *settings) for device in ("host", *PHONES)}


def _trained(command: list[str], environment: dict[str, str] | None, bundle: Path, out: Path, threads: int = 2) -> dict[str, np.ndarray]:
    words = [*command, str(Path(__file__).with_name("train_steps.py")), str(bundle), str(out), str(STEPS), str(threads)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(np.load(out))


def test_the_plain_bundle_carries_kernels_for_newer_chips_and_takes_them_there(bundles, arm64, tmp_path):
    outs = [_trained(*arm64.python(cpu), bundles["generic_armv8"], tmp_path / f"{cpu}.npz") for cpu in ("cortex-a53", "cortex-a76")]
    assert (bundles["generic_armv8"] / "kernels-cortex-a76.so").is_file()
    assert np.abs(outs[0]["losses"] / outs[1]["losses"] - 1).max() < 1e-4


@pytest.mark.parametrize("device", PHONES)
def test_training_on_arm64_agrees_with_this_machine(bundles, device, arm64, tmp_path):
    ours = _trained([sys.executable], None, bundles["host"], tmp_path / "here.npz")
    theirs = _trained(*arm64.python("max" if device == "pixel_8" else "cortex-a76"), bundles[device], tmp_path / "there.npz")
    assert np.abs(ours["losses"] / theirs["losses"] - 1).max() < 1e-4 and abs(ours["losses"][0] / theirs["losses"][0] - 1) < 1e-5
    for name in ("gradient", "input_gradient"):
        assert np.linalg.norm(ours[name] - theirs[name]) < 1e-4 * np.linalg.norm(ours[name]), name


def test_training_on_arm64_is_reproducible_bit_for_bit_also_with_other_threads(bundles, arm64, tmp_path):
    runs = [_trained(*arm64.python(), bundles["generic_armv8_2"], tmp_path / f"{n}.npz", threads) for n, threads in enumerate((1, 1, 2))]
    for run in runs[1:]:
        assert all(run[name].tobytes() == runs[0][name].tobytes() for name in run)


def _verb(bundle: Path, arm64: Arm64Root, cpu: str, *words: str) -> subprocess.CompletedProcess[str]:
    return arm64.run(str(bundle / "mft.pyz"), *words, cpu=cpu)


def test_a_chip_without_the_features_is_refused_before_anything_runs(bundles, arm64):
    done = _verb(bundles["generic_armv8_2"], arm64, "cortex-a53", "status")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "asimddp" in done.stderr and "device.features" in done.stderr


def test_the_plain_bundle_runs_on_the_oldest_chip(bundles, arm64):
    done = _verb(bundles["generic_armv8"], arm64, "cortex-a53", "probe", "--seconds", "0.1")
    assert done.returncode == 0, done.stderr
    assert "cpu: generic" in done.stdout and "GFLOP/s" in done.stdout and "asimddp" not in done.stdout


def test_a_bundle_of_this_machine_is_refused_on_the_phone(bundles, arm64):
    done = _verb(bundles["host"], arm64, CPU, "status")
    assert done.returncode == 2 and "aarch64" in done.stderr and done.stderr.count("\n") == 1


def test_a_profile_probed_on_the_phone_compiles_and_its_bundle_runs_there(bundles, arm64, tmp_path):
    command, environment = arm64.python()
    profile = tmp_path / "probed.yaml"
    words = [*command, str(bundles["generic_armv8"] / "mft.pyz"), "probe", "--seconds", "0.1", "--output", str(profile)]
    assert subprocess.run(words, env=environment, capture_output=True, check=False).returncode == 0
    model = bundles["host"].parent / "tiny.gguf"
    made = compile_tiny_bundle(tmp_path / "made", model, f"device={profile}", "train.buckets=[1x64]", "scenario.window_tokens=64")
    assert _trained(command, environment, made, tmp_path / "out.npz")["losses"].shape == (STEPS,)


def test_a_large_bundle_has_no_flaw_either(tmp_path):
    from mobilefinetuner.compiler.library.elf import library_flaws

    model = write_tiny_model(tmp_path / "tiny.gguf")
    for device in ("pixel_6", "host"):
        made = compile_tiny_bundle(tmp_path / device, model, f"device={device}", "train.adapter=lora", "quantization=exact")
        arch = load_recipe([f"device={device}"]).device.arch
        assert library_flaws((made / "kernels.so").read_bytes(), arch) == []
