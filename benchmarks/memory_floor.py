"""What the runtime takes before it computes anything: the floor in the memory plan.

    python benchmarks/memory_floor.py BUNDLE [--json]

In:  a compiled bundle.
Out: resident memory after each stage: the interpreter, numpy, the tokenizer with its vocabulary, plan and model header, the programs of
training in the largest bucket, and those of decoding. Weights and tensors are mapped but not touched, so they do not count; the plan has them
as parts of their own. The last two lines are the floor as measured and as runtime/engine/memory.py has it.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path


def resident_bytes() -> int:
    """Resident memory of this process, shared libraries included."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    options = parser.parse_args()
    stages = measure(options.bundle)
    if options.json:
        print(json.dumps(stages))
        return 0
    for name, n_bytes in stages.items():
        print(f"{name:14} {n_bytes / 2**20:7.1f} MB")
    return 0


def measure(bundle: Path) -> dict[str, int]:
    """Resident bytes after each stage. The imports stand here because they are what is measured."""
    stages = {"interpreter": resident_bytes()}
    import numpy  # noqa: F401

    stages["numpy"] = resident_bytes()
    from mobilefinetuner.runtime.bundle.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(bundle / "tokenizer.json")
    tokenizer.encode("a first text builds what the tokenizer builds late")
    stages["tokenizer"] = resident_bytes()
    from mobilefinetuner.runtime.bundle.plan import Plan
    from mobilefinetuner.runtime.gguf.file import GgufFile

    plan = Plan.from_json(json.loads((bundle / "plan.json").read_text(encoding="utf-8")))
    weights = GgufFile.open(bundle / "model.gguf")
    stages["plan, header"] = resident_bytes()
    from mobilefinetuner.runtime.engine.engine import Engine
    from mobilefinetuner.runtime.train.step import TrainStep

    with Engine(plan, bundle / "kernels.so", weights, threads=2) as engine:
        step = TrainStep(engine, plan.buckets[-1])
        stages["training"] = resident_bytes()
        del step
        from mobilefinetuner.runtime.engine.decode import Decoder

        decoder = Decoder(engine)
        stages["decoding"] = resident_bytes()
        del decoder
    from mobilefinetuner.runtime.engine.memory import floor_bytes

    return {**stages, "floor": max(stages.values()), "planned floor": floor_bytes(plan)}


if __name__ == "__main__":
    sys.exit(main())
