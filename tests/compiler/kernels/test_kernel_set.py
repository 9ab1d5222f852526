"""Kernels by name: the name says which kernel it is, and no two kernels share one."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mobilefinetuner.compiler.kernels import attention, gemm, gemv, optimizer, rows
from mobilefinetuner.compiler.kernels.block_types import BLOCK_TYPES
from mobilefinetuner.compiler.kernels.isa import SSE4
from mobilefinetuner.compiler.kernels.kernel_set import KernelSet, Template, kernel_name, template

from tests.support.short_stack import on_a_short_stack

Q4_1 = BLOCK_TYPES["Q4_1"]
NAMES = {
    "matmul_q4_1_256x1536x576": (gemm.frozen_matmul, (256, 1536, 576, Q4_1)),
    "matmul_t_q8_0_32x49152x576": (gemm.frozen_matmul_t, (32, 49152, 576, BLOCK_TYPES["Q8_0"])),
    "matvec_q5_1_192x576": (gemv.frozen_matvec, (192, 576, BLOCK_TYPES["Q5_1"])),
    "gather_q8_0_1x49152x576": (gemv.gather_rows, (1, 49152, 576, BLOCK_TYPES["Q8_0"])),
    "matmul_nt_256x8x576": (gemm.matmul, ("nt", 256, 8, 576)),
    "matmul_nn_2_0_256x8x192": (gemm.matmul, ("nn", 256, 8, 192, 2.0)),
    "matmul_tn_m0_25_8x18x128": (gemm.matmul, ("tn", 8, 18, 128, -0.25)),
    "rms_norm_256x576": (rows.rms_norm, (256, 576, 1e-5)),
    "rms_norm_1em06_256x576": (rows.rms_norm, (256, 576, 1e-6)),
    "rms_norm_grad_0_25_5x64": (rows.rms_norm_grad, (5, 64, 0.25)),
    "rope_1x256x9x64": (rows.rope, (1, 256, 9, 64)),
    "rope_inverse_1x256x9x64": (rows.rope, (1, 256, 9, 64, True)),
    "attention_1x256x9x3x64": (attention.attention, (1, 256, 9, 3, 64)),
    "adamw_460800": (optimizer.adamw_step, (460800,)),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_the_stem_and_every_argument_that_is_no_default(name):
    made_from, arguments = NAMES[name]
    assert kernel_name(made_from, made_from.bound(*arguments)) == name


def test_an_epsilon_as_a_model_file_stores_it_is_the_default():
    """GGUF stores fp32, and kernels calculate with it."""
    stored = float(np.float32(1e-5))
    assert stored != 1e-5
    assert kernel_name(rows.rms_norm, rows.rms_norm.bound(4, 64, stored)) == "rms_norm_4x64"


def test_two_epsilons_are_two_kernels_and_one_that_is_asked_for_again_is_shared():
    kernels = KernelSet(SSE4)

    def ask() -> list[str]:
        return [kernels.named(rows.rms_norm, 4, 64, epsilon) for epsilon in (1e-5, 1e-6, 1e-5)]

    first, second, again = on_a_short_stack(ask)
    assert first == again != second
    assert list(kernels.functions) == [first, second]
    assert [str(kernels.functions[name].attrs["global_symbol"]) for name in (first, second)] == [first, second]


def test_the_same_name_for_other_arguments_is_an_error():
    kernels = KernelSet(SSE4)
    one, other = Template("stem", lambda size: rows.group_sum(1, size, 32)), Template("stem", lambda size: rows.group_sum(2, size, 32))
    on_a_short_stack(kernels.named, one, 3)
    with pytest.raises(ValueError, match="two kernels would be called stem_3"):
        kernels.named(other, 3)


def test_a_template_whose_names_could_be_ambiguous_is_refused():
    for build in (lambda size, a=1.0, b=2.0: None, lambda size, a=False, b=False: None, lambda size=1: None):
        with pytest.raises(ValueError, match="would not tell which was left out"):
            template("stem")(build)


SIZE = st.integers(1, 3)
"""few values, so that equal names are found if there are any"""
NUMBER = st.one_of(st.sampled_from([1.0, 10.0, 0.1, 1e-5, 1e5, 1e16, 1e-16, -1.0]), st.floats(allow_nan=False, width=32))
BLOCK_TYPE = st.sampled_from(list(BLOCK_TYPES.values()))
ASKED = st.one_of(
    st.tuples(st.just(gemm.frozen_matmul), st.tuples(SIZE, SIZE, SIZE, BLOCK_TYPE)),
    st.tuples(st.just(gemm.frozen_matmul_t), st.tuples(SIZE, SIZE, SIZE, BLOCK_TYPE)),
    st.tuples(st.just(gemm.matmul), st.tuples(st.sampled_from(["nt", "nn", "tn"]), SIZE, SIZE, SIZE, NUMBER)),
    st.tuples(st.just(rows.rms_norm), st.tuples(SIZE, SIZE, NUMBER)),
    st.tuples(st.just(rows.rms_norm_grad), st.tuples(SIZE, SIZE, NUMBER)),
    st.tuples(st.just(rows.rope), st.tuples(SIZE, SIZE, SIZE, SIZE, st.booleans())),
    st.tuples(st.just(rows.swiglu), st.tuples(SIZE)),
    st.tuples(st.just(rows.swiglu_grad), st.tuples(SIZE)),
)


@given(ASKED, ASKED)
def test_different_arguments_have_different_names(one, other):
    kernels = [(made_from, made_from.bound(*arguments)) for made_from, arguments in (one, other)]
    first, second = (kernel_name(*kernel) for kernel in kernels)
    assert (first == second) == (kernels[0] == kernels[1])
    assert re.fullmatch(r"[a-z0-9_]+", first, re.ASCII)
