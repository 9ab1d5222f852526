"""Values that kernels are tried on, and how near a result must be.

Tolerance: 2e-6 of the largest result, some 30 units of fp32's last place for sums of up to 1568 terms.
"""

from __future__ import annotations

import gguf
import numpy as np

TOLERANCE = 2e-6


def blocks(kind: str, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """(GGUF blocks [N,K/32,bytes], what the gguf package says they mean [N,K] f64)."""
    rng = np.random.default_rng(n * k)
    quantized = gguf.quantize(rng.normal(0.1, 1, (n, k)).astype(np.float32), gguf.GGMLQuantizationType[kind])
    return quantized.reshape(n, k // 32, -1), gguf.dequantize(quantized, gguf.GGMLQuantizationType[kind]).astype(np.float64)


def normal(*shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def close(found: np.ndarray, wanted: np.ndarray, tolerance: float = TOLERANCE) -> None:
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance * np.abs(wanted).max())
