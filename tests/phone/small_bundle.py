"""Bundles of a few hundred kilobytes whose runtime says what it was asked: transfers and runs are tested with them in seconds.

In:  a folder and what to vary.
Out: a real bundle (manifest, checksums) for this machine.
"""

from __future__ import annotations

import platform
import random
from pathlib import Path

from mobilefinetuner.compiler.bundle.writer import WRITTEN_KEYS, write_bundle

RUNTIME = """\
import json, os, signal, sys, time
words = sys.argv[1:]
bundle = os.path.dirname(os.path.abspath(sys.argv[0]))
print(json.dumps({"words": words, "folder": os.getcwd(), "home": os.environ.get("HOME"), "bundle": bundle}), flush=True)
if "tty" in words:
    print("talking to a terminal" if sys.stdin.isatty() else "talking to nobody")
if "echo" in words:
    print("heard", sys.stdin.readline())
if "count" in words:
    print("Grüße \\U0001f600", file=sys.stderr, flush=True)
    for n in range(2000):
        print("line", n, flush=n % 100 == 0)
if "wait" in words:
    def stop(number, frame):
        print("checkpoint", flush=True)
        sys.exit(4)
    signal.signal(signal.SIGINT, stop)
    print("ready", flush=True)
    while not os.path.exists("go"):
        time.sleep(0.05)
if "die" in words:
    os.kill(os.getppid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
for option in ("--report", "--output"):
    if option in words:
        with open(words[words.index(option) + 1], "w") as file:
            file.write("a report")
sys.exit(int(words[words.index("--code") + 1]) if "--code" in words else 0)
"""


def make_bundle(folder: Path, seed: int = 0, weights_bytes: int = 300_000, **fields: object) -> Path:
    """A bundle; another seed changes the kernels and leaves the weights as they are."""
    arch = {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
    facts = {"abi": {"arch": arch}, "base_conversions": [], "recipe": {}, "required_cpu_features": [], "tools": {}, **fields}
    manifest = {key: facts[key] for key in WRITTEN_KEYS}
    files = {
        "model.gguf": random.Random(0).randbytes(weights_bytes), "kernels.so": random.Random(seed + 1).randbytes(60_000),
        "mft.pyz": RUNTIME.encode(), "empty.jsonl": b"",
    }  # fmt: skip
    return write_bundle(folder, files, manifest)
