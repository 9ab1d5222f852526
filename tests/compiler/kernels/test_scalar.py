"""The scalar formulas in units of fp32's last place, and what all kernels have in common: threads, errors, a test for each."""

from __future__ import annotations

import numpy as np
import pytest
from mobilefinetuner.compiler.kernels import attention, gemm, gemv, head, optimizer, rows
from mobilefinetuner.compiler.kernels.block_types import BLOCK_TYPES
from mobilefinetuner.compiler.kernels.kernel_set import Template
from mobilefinetuner.runtime.errors import MftError

from tests.support.kernel_trial import ATTENTION, FLAT, PROBE, label
from tests.support.kernel_values import blocks, normal

Q4_1 = BLOCK_TYPES["Q4_1"]
LAST_PLACES = 2
"""what expressions.exp and expressions.log promise"""


def last_places(found: np.ndarray, exact: np.ndarray) -> float:
    """Largest error in units of the last place of the exact result, rounded to fp32."""
    return float((np.abs(found.astype(np.float64) - exact) / np.spacing(np.abs(exact).astype(np.float32))).max())


def test_exp_is_right_to_two_units_in_the_last_place(trial):
    x = np.linspace(-87, 88, PROBE, dtype=np.float32)
    assert last_places(trial.run("probe_exp", x)[-1], np.exp(x.astype(np.float64))) < LAST_PLACES


def test_exp_of_arguments_beyond_its_range_is_that_of_the_nearest_end(trial):
    x = np.resize(np.array([-np.inf, -1e30, -88, 89, 1e30, np.inf], np.float32), PROBE)
    ends = np.exp(np.clip(x.astype(np.float64), -87, 88))
    np.testing.assert_allclose(trial.run("probe_exp", x)[-1], ends, rtol=1e-6)


def test_log_is_right_to_two_units_in_the_last_place(trial):
    smallest, largest = np.finfo(np.float32).tiny, np.finfo(np.float32).max
    x = np.concatenate([np.geomspace(smallest, largest, PROBE // 2), np.geomspace(0.3, 3, PROBE // 2)]).astype(np.float32).clip(smallest, largest)
    assert last_places(trial.run("probe_log", x)[-1], np.log(x.astype(np.float64))) < LAST_PLACES


def test_sigmoid_is_right_to_four_units_in_the_last_place(trial):
    x = np.linspace(-80, 80, PROBE, dtype=np.float32)
    assert last_places(trial.run("probe_sigmoid", x)[-1], 1 / (1 + np.exp(-x.astype(np.float64)))) < 4


def test_every_finite_half_precision_number_is_read_exactly(trial):
    bits = np.arange(PROBE, dtype=np.uint16)
    exact = bits.view(np.float16).astype(np.float32)
    found = trial.run("probe_half", bits.view(np.uint8).reshape(-1, 2))[-1]
    finite = np.isfinite(exact)
    np.testing.assert_array_equal(found[finite], exact[finite])
    np.testing.assert_array_equal(np.signbit(found[finite]) & (exact[finite] != 0), np.signbit(exact[finite]) & (exact[finite] != 0))


def _run_some(trial, threads: int) -> list[np.ndarray]:
    b, t, heads, kv_heads, width = size = ATTENTION[0]
    w, _ = blocks("Q4_1", 64, 96)
    q, k, v, do = (normal(b, t, h, width, seed=s) for s, h in enumerate((heads, kv_heads, kv_heads, heads)))
    start = np.zeros((b, t), np.int32)
    return [
        *trial.run(label(gemm.frozen_matmul, 7, 64, 96, Q4_1), normal(7, 96), w, threads=threads),
        *trial.run(label(gemm.frozen_matmul_t, 7, 96, 64, Q4_1), normal(7, 96), blocks("Q4_1", 96, 64)[0], threads=threads),
        *trial.run(label(attention.attention_grad, *size), do, q, k, v, start, threads=threads),
        *trial.run(label(rows.swiglu, FLAT[2]), normal(FLAT[2]), normal(FLAT[2], seed=2), threads=threads),
        *trial.run(label(rows.rms_norm_grad, 33, 48), normal(33, 48), normal(33, 48, seed=2), normal(48), threads=threads),
        *trial.run(label(head.softmax_loss, 4, 96), normal(4, 96), np.arange(4, dtype=np.int32), np.ones(4, np.float32), threads=threads),
    ]


def test_one_and_two_threads_give_the_same_bits(trial):
    for one, two in zip(_run_some(trial, 1), _run_some(trial, 2), strict=True):
        np.testing.assert_array_equal(one, two)


def test_the_same_call_gives_the_same_bits_every_time(trial):
    first = _run_some(trial, 2)
    for _ in range(20):
        for before, now in zip(first, _run_some(trial, 2), strict=True):
            np.testing.assert_array_equal(before, now)


@pytest.mark.parametrize(
    ("shapes", "text"),
    [
        ([((5, 64), "float32"), ((63,), "float32"), ((5, 64), "float32")], "shape"),
        ([((5, 64), "float32"), ((1, 64), "float32"), ((5, 64), "float32")], "ndim"),
        ([((5, 64), "float32"), ((64,), "int32"), ((5, 64), "float32")], "dtype"),
        ([((5, 64), "float32"), ((64,), "float32")], "argument"),
    ],
    ids=["extent", "dimensions", "type", "count"],
)
def test_a_wrong_argument_is_refused_with_the_kernels_own_words(trial, shapes, text):
    name = label(rows.rms_norm, 5, 64)
    with pytest.raises(MftError) as caught:
        trial.run(name, shapes=shapes)
    assert name in str(caught.value) and text in str(caught.value)


def test_every_template_has_a_kernel_in_the_trial(trial):
    modules = (attention, gemm, gemv, head, optimizer, rows)
    templates = {found for module in modules for found in vars(module).values() if isinstance(found, Template)}
    assert len(templates) > 15
    assert {template.stem for template in templates - {template for template, _ in trial.kernels.origins.values()}} == set()
