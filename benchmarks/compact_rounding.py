"""Classic LoRA back into 4 bits by rounding with error feedback (GPTQ, arXiv 2210.17323): a trial, not a merge policy.

In:  a base of Q4_1 weights, a classic LoRA, the second moments of each projection's inputs seen in training.
Out: a GGUF of the base's size.
Columns are rounded one after the other; what rounding added is taken out of the columns that are still to come, as far as the
inputs say that these can stand in for it. The moments are collected with PyTorch, so this runs on the desktop only.
"""

# Shapes: N rows · K row elements · G = K/32 blocks a row · U upper Cholesky factor of the moments' inverse [K,K]
from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from mobilefinetuner.runtime.adapter.tensors import AdapterTensors
from mobilefinetuner.runtime.gguf import blocks
from mobilefinetuner.runtime.gguf.file import GgufFile, TensorSource, write_gguf

DAMPING = 0.01
"""share of the mean moment that is added to each input's own"""
LEVELS = 15


def input_moments(base: Path, adapter: AdapterTensors, samples: Iterable[np.ndarray]) -> dict[str, np.ndarray]:
    """Σ x·xᵀ of what each adapted projection reads, in transformers with the adapter in PEFT; tensor name -> [K,K] f32."""
    sys.path.insert(0, str(Path(__file__).parent.parent))
    import torch

    from tests.oracles.torch_model import PeftModel

    model = PeftModel(base, adapter.kind, adapter.scale, dict(adapter.pairs))
    moments: dict[str, np.ndarray] = {}

    def collect(name: str):
        def hook(_module: object, inputs: tuple) -> None:
            x = inputs[0].reshape(-1, inputs[0].shape[-1]).numpy()
            moments[name] = moments.get(name, 0) + x.T @ x

        return hook

    for name in adapter.pairs:
        model._module(name).register_forward_pre_hook(collect(name))
    with torch.no_grad():
        for ids in samples:
            model.model(torch.tensor(ids[None].astype(np.int64)))
    return moments


def write_compact(base: GgufFile, adapter: AdapterTensors, moments: Mapping[str, np.ndarray], out: Path) -> None:
    """The model with the update rounded in."""

    def source(name: str) -> TensorSource:
        tensor = base.source(name)
        if name not in adapter.pairs:
            return tensor
        return replace(tensor, read=lambda: _rounded(base, name, adapter, moments[name]))

    write_gguf(out, base.fields, [source(name) for name in base.tensors], base.alignment)


def _rounded(base: GgufFile, name: str, adapter: AdapterTensors, moments: np.ndarray) -> np.ndarray:
    info = base.tensors[name]
    a, b = adapter.pairs[name]
    before = blocks.dequantize(base.data(name).reshape(info.shape[0], -1), info.type_name)
    wanted = before + np.float32(adapter.scale) * (b @ a)
    return round_with_feedback(wanted, moments)


def round_with_feedback(w: np.ndarray, moments: np.ndarray) -> np.ndarray:
    """w [N,K] f32 · moments [K,K]  →  Q4_1 blocks [N, G·20] u8"""
    w, (n, k) = w.astype(np.float64), w.shape
    damped = moments.astype(np.float64) + np.eye(k) * DAMPING * np.diag(moments).mean()
    u = np.linalg.cholesky(np.linalg.inv(damped)).T
    q, d, m = np.zeros((n, k), np.uint8), np.zeros((n, k // blocks.GROUP)), np.zeros((n, k // blocks.GROUP))
    for g in range(k // blocks.GROUP):
        at = g * blocks.GROUP
        block = w[:, at : at + blocks.GROUP]
        low = block.min(axis=1)
        d[:, g] = ((block.max(axis=1) - low) / LEVELS).astype(np.float16)
        m[:, g] = low.astype(np.float16)
        error = _round_block(w, u, at, d[:, g], m[:, g], q)
        w[:, at + blocks.GROUP :] -= error @ u[at : at + blocks.GROUP, at + blocks.GROUP :]
    return _as_blocks(q, d, m)


def _round_block(w: np.ndarray, u: np.ndarray, at: int, d: np.ndarray, m: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Round the 32 columns from `at` on into q; returns each column's error over its u [N,32]."""
    inverse = np.divide(1, d, out=np.zeros_like(d), where=d != 0)
    error = np.zeros((len(w), blocks.GROUP))
    for j in range(blocks.GROUP):
        column = w[:, at + j]
        level = np.clip(np.floor((column - m) * inverse + 0.5), 0, LEVELS)
        q[:, at + j] = level
        error[:, j] = (column - (d * level + m)) / u[at + j, at + j]
        w[:, at + j + 1 : at + blocks.GROUP] -= np.outer(error[:, j], u[at + j, at + j + 1 : at + blocks.GROUP])
    return error


def _as_blocks(q: np.ndarray, d: np.ndarray, m: np.ndarray) -> np.ndarray:
    levels = q.reshape(*d.shape, blocks.GROUP)
    parts = [d.astype(np.float16)[..., None].view(np.uint8), m.astype(np.float16)[..., None].view(np.uint8), levels[..., :16] | levels[..., 16:] << 4]
    return np.ascontiguousarray(np.concatenate(parts, axis=-1).reshape(len(q), -1))
