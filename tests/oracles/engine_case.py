"""The work that our engine and PyTorch are compared on: adapter values, a batch with padding and masked labels, a short course.

In:  names and shapes; token ids from tests/cases/engine/inputs.json.
Out: the same numbers on both sides, on every machine: numpy's RandomState is frozen.
A gradient is stored as its norm and its products with eight random vectors: the root mean square of the differences of the
products estimates the norm of the difference, so a few bytes per tensor check all of it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from mobilefinetuner.runtime.adapter.tensors import AdapterTensors
from mobilefinetuner.runtime.gguf.file import GgufFile
from mobilefinetuner.runtime.versions.merge import merge_version
from mobilefinetuner.runtime.versions.version_block import VersionBlock

CASES = Path(__file__).parent.parent / "cases" / "engine"
INPUTS = CASES / "inputs.json"
RANK, SCALE, GROUP = 8, 2.0, 32
TOKENS, BATCH = 64, 2
PROJECTIONS = 8
STEPS = 30
LEARNING_RATES = {"grouped": 2e-3, "lora": 5e-4}
BETAS, EPSILON, WEIGHT_DECAY, MAX_GRAD_NORM = (0.9, 0.999), 1e-8, 0.01, 1.0
NEW_TOKENS = 24

Pairs = dict[str, tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Sample:
    """One conversation in tokens; label_mask says which tokens are to be predicted."""

    token_ids: np.ndarray
    label_mask: np.ndarray


def _generator(key: str) -> np.random.RandomState:
    return np.random.RandomState(zlib.crc32(key.encode()))


def adapter_pairs(kind: str, shapes: Mapping[str, tuple[int, int]], *, started: bool) -> Pairs:
    """(A, B) by tensor name, from the projections' [N, K]; B is zero unless `started`, as at the begin of a run."""
    pairs = {}
    for name, (n, k) in shapes.items():
        rng = _generator(name)
        a = rng.normal(0, 0.02, (RANK, k // GROUP if kind == "grouped" else k))
        b = rng.normal(0, 0.02, (n, RANK)) if started else np.zeros((n, RANK))
        pairs[name] = a.astype(np.float32), b.astype(np.float32)
    return pairs


def load_inputs() -> dict:
    return json.loads(INPUTS.read_text(encoding="utf-8"))


def samples(items: Iterable[Mapping]) -> list[Sample]:
    return [Sample(np.array(item["ids"], np.int32), np.array(item["labels"], np.uint8)) for item in items]


def course_batch(course: list[Sample], step: int) -> list[Sample]:
    """The samples of step 0..STEPS−1, in the order of their rows."""
    return [course[(step * BATCH + row) % len(course)] for row in range(BATCH)]


def padded(rows: list[Sample]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(ids, attention, labels) [B,T] as transformers takes them: padded on the right, label −100 where there is none."""
    ids, attention = np.zeros((2, len(rows), TOKENS), np.int64)
    labels = np.full_like(ids, -100)
    for row, sample in enumerate(rows):
        n = len(sample.token_ids)
        ids[row, :n], attention[row, :n] = sample.token_ids, 1
        labels[row, :n] = np.where(sample.label_mask, sample.token_ids, -100)
    return ids, attention, labels


def fingerprint(values: np.ndarray, key: str) -> np.ndarray:
    """Norm and random projections of a tensor  →  [1 + PROJECTIONS] f64"""
    flat = values.astype(np.float64).reshape(-1)
    directions = _generator(key).choice((-1.0, 1.0), (PROJECTIONS, flat.size))
    return np.concatenate([[np.linalg.norm(flat)], directions @ flat])


def relative_error(values: np.ndarray, golden: np.ndarray, key: str) -> float:
    """Estimate of ‖values − golden tensor‖ ÷ ‖golden tensor‖ from the golden tensor's fingerprint."""
    difference = fingerprint(values, key) - golden
    return float(np.sqrt((difference[1:] ** 2).mean()) / golden[0])


def exact_relative_error(values: np.ndarray, reference: np.ndarray) -> float:
    """‖values − reference‖ ÷ ‖reference‖"""
    return float(np.linalg.norm(values.astype(np.float64) - reference) / np.linalg.norm(reference.astype(np.float64)))


def merged_model(gguf: Path, kind: str, pairs: Pairs, out: Path) -> Path:
    """The adapter merged into the weights, as the runtime merges."""
    block = VersionBlock("", "base", "golden", "0" * 64, "0" * 64, STEPS, "0" * 64, "2026-01-31T12:00:00Z", "golden")
    merge_version(GgufFile.open(gguf), AdapterTensors(kind, SCALE, pairs), block, out)
    return out
