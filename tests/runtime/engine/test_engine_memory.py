"""The memory plan is a hard cap: a process that does what a phase does stays below what the phase is said to need."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from mobilefinetuner.runtime.engine.memory import phase_table

THREADS = 2
PHASE = """
import json, sys
from pathlib import Path
import numpy as np
from mobilefinetuner.runtime.engine.decode import Decoder
from mobilefinetuner.runtime.engine.engine import Engine
from mobilefinetuner.runtime.gguf.file import GgufFile
from mobilefinetuner.runtime.engine.packing import PackedBatch
from mobilefinetuner.runtime.bundle.plan import Bucket, Plan
from mobilefinetuner.runtime.bundle.tokenizer import Tokenizer
from mobilefinetuner.runtime.train.step import AdamW, TrainStep

bundle, phase, threads = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
tokenizer = Tokenizer.load(bundle / "tokenizer.json")
plan = Plan.from_json(json.loads((bundle / "plan.json").read_text(encoding="utf-8")))
batch, tokens = Bucket.parse(plan.buckets[-1])
ids = np.resize(np.array(tokenizer.encode("Where is the shop, and when does it open?"), np.int32), batch * tokens)
with Engine(plan, bundle / "kernels.so", GgufFile.open(bundle / "model.gguf"), threads) as engine:
    if phase == "optimizer":
        step = TrainStep(engine, plan.buckets[-1])
        step.accumulate(PackedBatch(ids, np.zeros((batch, tokens), np.int32), ids, batch * tokens), ids.size)
        step.update(1e-3, 1, AdamW(0.9, 0.999, 1e-8, 0.0, 1.0, 0.0))
    else:
        list(Decoder(engine).generate(ids[:tokens].tolist(), 8, ()))
    status = Path("/proc/self/status").read_text()
print(next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")))
"""


@pytest.mark.parametrize("phase", ["optimizer", "verify"])
def test_the_resident_memory_of_a_phase_stays_below_its_plan(real, phase):
    weights = Path(real.bundle / "model.gguf").stat().st_size
    planned = {p.phase: p for p in phase_table(real.plan, weights, THREADS, real.plan.buckets[-1])}[phase]
    result = subprocess.run([sys.executable, "-c", PHASE, str(real.bundle), phase, str(THREADS)], stdout=subprocess.PIPE, text=True, check=True)
    taken = int(result.stdout) * 1024
    print(json.dumps({"phase": phase, "taken_mb": taken >> 20, "planned_mb": planned.total >> 20, "weights_mb": weights >> 20}))
    assert weights / 2 < taken <= planned.total
