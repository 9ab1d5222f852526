"""One line per arm64 device profile: bundle, plan, features, and the instructions of one training step under qemu.

In:  python benchmarks/device_table.py [DEVICE ...] [--bucket 1x32] [--model smollm2_135m]
Out: a Markdown table on stdout, progress on stderr. Needs qemu-user, qemu-user-static, debootstrap, gcc.
Instructions and not seconds: qemu's time says nothing about a phone's. Two runs of one and of two steps are subtracted, so that
loading is not counted; one thread computes.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
PHONE_TESTS = HERE.parent / "tests" / "phone"
sys.path.insert(0, str(HERE.parent))

from mobilefinetuner.compiler.pipeline import compile_bundle  # noqa: E402
from mobilefinetuner.compiler.recipe.load import load_recipe, shipped_configs  # noqa: E402
from mobilefinetuner.runtime.bundle.folder import Bundle  # noqa: E402
from mobilefinetuner.runtime.bundle.plan import Bucket  # noqa: E402
from mobilefinetuner.runtime.session import Session  # noqa: E402

from tests.phone.arm64_root import Arm64Root, arm64_root  # noqa: E402

QEMU = "qemu-aarch64"
SETTINGS = ("scenario=customer_service", "scenario.system_prompt=Hi", "scenario.decode_tokens=16")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("devices", nargs="*", metavar="DEVICE", help="default: every arm64 profile")
    parser.add_argument("--bucket", default="1x32")
    parser.add_argument("--model", default="smollm2_135m")
    options = parser.parse_args()
    devices = options.devices or arm64_profiles()
    root = arm64_root()
    counted: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        plugin = build_plugin(Path(folder))
        print("| device | LLVM cpu | bundle MB | kernels KB | plan MB | required features | instructions of a step |\n|---|---|---|---|---|---|---|")
        for device in devices:
            print(row(device, options, root, plugin, Path(folder), counted), flush=True)
    return 0


def arm64_profiles() -> list[str]:
    """The shipped profiles of phones and boards."""
    shipped = sorted(path.stem for path in (shipped_configs() / "device").glob("*.yaml"))
    return [name for name in shipped if load_recipe([f"device={name}"]).device.arch == "aarch64" and name != "host"]


def build_plugin(folder: Path) -> Path:
    plugin = folder / "libcount_instructions.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", str(plugin), str(HERE / "count_instructions.c")], check=True)
    return plugin


def row(device: str, options: argparse.Namespace, root: Arm64Root, plugin: Path, folder: Path, counted: dict[str, int]) -> str:
    """Profiles whose kernels are the same bytes are counted once."""
    tokens = Bucket.parse(options.bucket).tokens
    chosen = [f"model={options.model}", f"device={device}", f"train.buckets=[{options.bucket}]", f"scenario.window_tokens={tokens}"]
    recipe = load_recipe([*SETTINGS, *chosen, f'out="{folder / device}"'])
    print(f"compiling for {device}", file=sys.stderr)
    bundle = Bundle.open(compile_bundle(recipe, lambda _text: None), to_execute=False)
    kernels = bundle.files["kernels.so"].sha256
    if kernels not in counted:
        print(f"counting for {device}", file=sys.stderr)
        one, two = (instructions(bundle, steps, root, plugin) for steps in (1, 2))
        counted[kernels] = two - one
    size_mb = sum(record.n_bytes for record in bundle.files.values()) / 1e6
    plan = Session.open(bundle.folder, None, True, 1, to_execute=False).plan
    features = " ".join(bundle.manifest.required_cpu_features)
    kernels_kb, plan_mb = bundle.files["kernels.so"].n_bytes / 1e3, plan.peak_bytes / 2**20
    return f"| {device} | {recipe.device.cpu} | {size_mb:.1f} | {kernels_kb:.0f} | {plan_mb:.0f} | {features} | {counted[kernels] / 1e9:.2f} × 10⁹ |"


def instructions(bundle: Bundle, steps: int, root: Arm64Root, plugin: Path) -> int:
    """Guest instructions of loading the bundle and `steps` training steps with one thread.

    The processor is one that has what the profile promises and no more where that is little: it must not take a better variant.
    """
    cpu = "max" if "asimddp" in bundle.manifest.required_cpu_features else "cortex-a53"
    words = [QEMU, "-plugin", str(plugin), "-d", "plugin", "-L", str(root.folder), str(root.folder / "usr/bin/python3")]
    script = [str(PHONE_TESTS / "train_steps.py"), str(bundle.folder), str(bundle.folder.with_suffix(".npz")), str(steps), "1"]
    done = subprocess.run([*words, *script], env=root.environment(cpu), capture_output=True, text=True, check=True)
    return int(re.search(r"instructions: (\d+)", done.stderr)[1])


if __name__ == "__main__":
    sys.exit(main())
