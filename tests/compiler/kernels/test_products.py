"""Matrix products, the matrix-vector product and the row gather against gguf.dequantize and numpy in double precision."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from mobilefinetuner.compiler.kernels import gemm, gemv
from mobilefinetuner.compiler.kernels.block_types import BLOCK_TYPES

from tests.support.kernel_trial import FROZEN, FROZEN_T, GATHER, MATMUL, MATVEC, label
from tests.support.kernel_values import blocks, close, normal


@pytest.mark.parametrize(("kind", "size"), FROZEN)
def test_a_product_with_frozen_blocks_is_that_with_the_dequantized_weights(trial, kind, size):
    m, n, k = size
    w, dense = blocks(kind, n, k)
    x = normal(m, k)
    close(trial.run(label(gemm.frozen_matmul, *size, BLOCK_TYPES[kind]), x, w)[-1], x.astype(np.float64) @ dense.T)


@pytest.mark.parametrize(("kind", "size"), FROZEN_T)
def test_its_gradient_is_the_product_with_the_weights_untransposed(trial, kind, size):
    m, n, k = size
    w, dense = blocks(kind, n, k)
    dy = normal(m, n)
    close(trial.run(label(gemm.frozen_matmul_t, *size, BLOCK_TYPES[kind]), dy, w)[-1], dy.astype(np.float64) @ dense)


@pytest.mark.parametrize(("kind", "size"), MATVEC)
def test_the_product_with_a_single_row_is_the_same_as_with_many(trial, kind, size):
    n, k = size
    w, dense = blocks(kind, n, k)
    x = normal(1, k)
    close(trial.run(label(gemv.frozen_matvec, *size, BLOCK_TYPES[kind]), x, w)[-1], x.astype(np.float64) @ dense.T)


@pytest.mark.parametrize(("kind", "size"), GATHER)
def test_gathered_rows_are_the_dequantized_rows_to_the_last_bit_but_one(trial, kind, size):
    t, vocabulary, d = size
    w, dense = blocks(kind, vocabulary, d)
    ids = np.array([0, vocabulary - 1, 3, 3, 7], np.int32)[:t]
    close(trial.run(label(gemv.gather_rows, *size, BLOCK_TYPES[kind]), ids, w)[-1], dense[ids], 2e-7)


@pytest.mark.parametrize("kind", BLOCK_TYPES)
def test_extreme_scales_of_blocks_are_read_exactly(trial, kind):
    """Largest and smallest fp16 numbers, subnormal ones and both zeros as scale; byte patterns from all over as quants."""
    t, vocabulary, d = 5, 40, 64
    w, _ = blocks(kind, vocabulary, d)
    w = np.random.default_rng(5).integers(0, 256, w.shape, dtype=np.uint8)
    for index, bits in enumerate((0x7BFF, 0xFBFF, 0x0001, 0x83FF, 0x8000)):
        w[index, :, 0], w[index, :, 1] = bits & 255, bits >> 8
        if BLOCK_TYPES[kind].has_minimum:
            w[index, :, 2:4] = w[(index + 1) % 5, :, 0:2]
    with np.errstate(over="ignore"):
        wanted = gguf.dequantize(w.reshape(vocabulary, -1)[:t].copy(), gguf.GGMLQuantizationType[kind])
    found = trial.run(label(gemv.gather_rows, t, vocabulary, d, BLOCK_TYPES[kind]), np.arange(t, dtype=np.int32), w)[-1]
    np.testing.assert_allclose(found, wanted, rtol=2e-7)


@pytest.mark.parametrize(("form", "size", "alpha"), MATMUL)
def test_the_small_products_of_adapters_agree_with_numpy(trial, form, size, alpha):
    m, n, r = size
    a = normal(*((r, m) if form[0] == "t" else (m, r)))
    b = normal(*((n, r) if form[1] == "t" else (r, n)), seed=2)
    left, right = (x.astype(np.float64) for x in (a, b))
    wanted = alpha * (left.T if form[0] == "t" else left) @ (right.T if form[1] == "t" else right)
    close(trial.run(label(gemm.matmul, form, *size, alpha), a, b)[-1], wanted)
