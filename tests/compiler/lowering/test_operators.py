"""Every operator of the table: complete, known to Relax, and computed by its kernel as numpy does it in double precision.

A new operator needs a call here; test_every_operator_is_tried says which are missing. Tolerances as in the kernels' own tests:
2e-6 of the largest value, 1e-5 of a gradient's norm (central differences).
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import numpy as np
import pytest
import tvm
from mobilefinetuner.compiler.kernels.isa import Isa
from mobilefinetuner.compiler.kernels.kernel_set import KernelSet
from mobilefinetuner.compiler.lowering import operators
from mobilefinetuner.compiler.lowering.dialect import register_operators
from mobilefinetuner.compiler.lowering.operators import activation, add, attention, embedding, groups, linear, loss, matmul, norm, rope
from mobilefinetuner.compiler.lowering.operators.operator import Operator, Without
from mobilefinetuner.compiler.lowering.operators.table import OPERATORS
from mobilefinetuner.runtime.bundle.plan import Entry
from tvm import relax

from tests.support.directional import check_gradient
from tests.support.kernel_trial import Trial, isas_of_this_machine
from tests.support.kernel_values import close, normal
from tests.support.operator_trial import Call, Weight, run

# Sizes: B samples · T tokens · M = B·T rows · H query heads · KV key-value heads · d head width
B, T, M, H, KV, D = 2, 32, 64, 4, 2, 16
START = np.array([[0] * 20 + [20] * 12, [0] * T], np.int32)
COS, SIN = np.cos(normal(T, D // 2)), np.sin(normal(T, D // 2))


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _rms_norm(x, w):
    return x * w / np.sqrt((x * x).mean(-1, keepdims=True) + 0.1)


def _rope(x, cos, sin):
    pairs = x.reshape(B, T, H, D // 2, 2)
    turned = (pairs[..., 0] + 1j * pairs[..., 1]) * (cos + 1j * sin)[None, :, None]
    return np.stack([turned.real, turned.imag], -1).reshape(M, H * D)


def _attention_weights(q, k, start):
    """q [B,T,H,d] · k [B,T,H,d]  →  [B,H,T,T]"""
    scores = np.einsum("bihc,bjhc->bhij", q, k) / np.sqrt(D)
    column = np.arange(T)
    seen = (column[None, None] >= start[:, :, None]) & (column[None, None] <= column[None, :, None])
    exponentials = np.where(seen[:, None], np.exp(scores), 0)
    return exponentials / exponentials.sum(-1, keepdims=True)


def _by_head(x, heads):
    return np.repeat(x.reshape(B, T, heads, D), H // heads, 2)


def _attention(q, k, v, start):
    weights = _attention_weights(_by_head(q, H), _by_head(k, KV), start)
    return np.einsum("bhij,bjhc->bihc", weights, _by_head(v, KV)).reshape(M, H * D)


def _attention_grad(do, q, k, v, start):
    """With P the weights: dV = Pᵀ·dO, dS = P ∘ (dP − rowsum(P ∘ dP)) / √d, dQ = dS·K, dK = dSᵀ·Q, per query head."""
    do, q, k, v = _by_head(do, H), _by_head(q, H), _by_head(k, KV), _by_head(v, KV)
    p = _attention_weights(q, k, start)
    dp = np.einsum("bihc,bjhc->bhij", do, v)
    ds = p * (dp - (p * dp).sum(-1, keepdims=True)) / np.sqrt(D)
    results = np.einsum("bhij,bjhc->bihc", ds, k), np.einsum("bhij,bihc->bjhc", ds, q), np.einsum("bhij,bihc->bjhc", p, do)
    return tuple(result.reshape(M, H * D) for result in results)


def _decode_attention(q, keys, values, position):
    seen = int(position[0]) + 1
    keys, values = (np.repeat(x.reshape(-1, KV, D)[:seen], H // KV, 1) for x in (keys, values))
    exponentials = np.exp(np.einsum("hc,jhc->hj", q.reshape(H, D), keys) / np.sqrt(D))
    weights = exponentials / exponentials.sum(-1, keepdims=True)
    return np.einsum("hj,jhc->hc", weights, values).reshape(1, H * D)


def _softmax_loss(logits, targets, scale):
    log_sum = np.log(np.exp(logits).sum(1))
    rows, has_target = np.arange(len(targets)), targets >= 0
    losses = np.where(has_target, log_sum - logits[rows, targets], 0)
    gradient = np.exp(logits - log_sum[:, None])
    gradient[rows, targets] -= 1
    return losses, scale[:, None] * np.where(has_target[:, None], gradient, 0)


def _distill_loss(logits, teacher, scale):
    log_q, log_p = (x - np.log(np.exp(x).sum(1, keepdims=True)) for x in (logits, teacher))
    return (np.exp(log_p) * (log_p - log_q)).sum(1), scale[:, None] * (np.exp(log_q) - np.exp(log_p))


def _swiglu_grad(dy, gate, up):
    s = _sigmoid(gate)
    return dy * up * s * (1 + gate * (1 - s)), dy * gate * s


Q, K, V = normal(M, H * D), normal(M, KV * D, seed=2), normal(M, KV * D, seed=3)
ROW_WEIGHTS = np.array([0.125, 1.0, -0.5, 2.0], np.float32)
CALLS: dict[str, list[Call]] = {
    "mft.linear": [
        Call(linear.linear, (normal(7, 64), Weight("Q4_1", 96, 64)), lambda x, w: x @ w.T, (0,)),
        Call(linear.linear, (normal(1, 64), Weight("Q8_0", 96, 64)), lambda x, w: x @ w.T),
    ],
    "mft.linear_t": [Call(linear.linear_t, (normal(7, 96), Weight("Q5_1", 96, 64)), lambda dy, w: dy @ w)],
    "mft.matmul": [
        Call(lambda a, b: matmul.matmul(a, b, "nt", 0.5), (normal(7, 64), normal(4, 64, seed=2)), lambda a, b: 0.5 * a @ b.T, (0, 1)),
        Call(lambda a, b: matmul.matmul(a, b, "nn"), (normal(7, 4), normal(4, 96, seed=2)), lambda a, b: a @ b),
        Call(lambda a, b: matmul.matmul(a, b, "tn", 2.0), (normal(7, 4), normal(7, 96, seed=2)), lambda a, b: 2 * a.T @ b),
    ],
    "relax.add": [Call(add.add, (normal(7, 64), normal(7, 64, seed=2)), lambda a, b: a + b)],
    "mft.rms_norm": [Call(lambda x, w: norm.rms_norm(x, w, 0.1), (normal(7, 64), normal(64, seed=2)), _rms_norm, (0,))],
    "mft.rms_norm_grad": [
        Call(
            lambda dy, x, w: norm.rms_norm_grad(dy, x, w, 0.1),
            (normal(7, 64), normal(7, 64, seed=2), normal(64, seed=3)),
            lambda dy, x, w: (r := 1 / np.sqrt((x * x).mean(-1, keepdims=True) + 0.1)) * (dy * w - x * r**2 * (dy * w * x).mean(-1, keepdims=True)),
        )
    ],
    "mft.rope": [
        Call(lambda x, cos, sin: rope.rope(x, cos, sin, B), (Q, COS, SIN), _rope, (0,)),
        Call(lambda x, cos, sin: rope.rope(x, cos, sin, B, inverse=True), (Q, COS, SIN), lambda x, cos, sin: _rope(x, cos, -sin)),
    ],
    "mft.attention": [Call(lambda q, k, v, start: attention.attention(q, k, v, start, D), (Q, K, V, START), _attention, (0, 1, 2))],
    "mft.attention_grad": [
        Call(lambda do, q, k, v, start: attention.attention_grad(do, q, k, v, start, D), (normal(M, H * D, seed=4), Q, K, V, START), _attention_grad)
    ],
    "mft.sum_heads": [
        Call(lambda x: attention.sum_heads(x, KV * D, D), (Q,), lambda x: x.reshape(M, KV, H // KV, D).sum(2).reshape(M, KV * D)),
    ],
    "mft.decode_attention": [
        Call(
            lambda q, keys, values, position: attention.decode_attention(q, keys, values, position, D),
            (Q[:1], K, V, np.array([40], np.int32)),
            _decode_attention,
        )
    ],
    "mft.swiglu": [Call(activation.swiglu, (normal(7, 64), normal(7, 64, seed=2)), lambda gate, up: gate * _sigmoid(gate) * up, (0, 1))],
    "mft.swiglu_grad": [Call(activation.swiglu_grad, (normal(7, 64), normal(7, 64, seed=2), normal(7, 64, seed=3)), _swiglu_grad)],
    "mft.group_sum": [Call(lambda x: groups.group_sum(x, 32), (normal(7, 96),), lambda x: x.reshape(7, 3, 32).sum(-1), (0,))],
    "mft.group_spread": [Call(lambda x: groups.group_spread(x, 32), (normal(7, 3),), lambda x: np.repeat(x, 32, 1))],
    "mft.gather": [Call(embedding.gather, (np.array([39, 0, 3, 3], np.int32), Weight("Q8_0", 40, 64)), lambda ids, w: w[ids])],
    "mft.softmax_loss": [Call(loss.softmax_loss, (normal(4, 96), np.array([95, -1, 0, 5], np.int32), ROW_WEIGHTS), _softmax_loss)],
    "mft.distill_loss": [Call(loss.distill_loss, (normal(4, 96), normal(4, 96, seed=2), ROW_WEIGHTS), _distill_loss)],
}
EACH = [pytest.param(name, number, id=f"{name}-{number}") for name, calls in CALLS.items() for number in range(len(calls))]
EACH_GRADIENT = [case for case in EACH if CALLS[case.values[0]][case.values[1]].differentiable]
Entries = dict[tuple[str, int, bool], Entry]


@pytest.fixture(scope="module")
def trial(tmp_path_factory) -> Iterator[tuple[Entries, Trial]]:
    """All calls and their gradients, compiled into one library for the best instruction set that this machine has."""
    entries: Entries = {}

    def made(isa: Isa) -> KernelSet:
        kernels = KernelSet(isa)
        for name, calls in CALLS.items():
            for number, call in enumerate(calls):
                for gradient in (False, True) if call.differentiable else (False,):
                    entries[name, number, gradient] = call.lowered(kernels, gradient=gradient)
        return kernels

    built = Trial.build(list(isas_of_this_machine())[-1], tmp_path_factory.mktemp("operators"), made)
    yield entries, built
    built.library.close()


@pytest.mark.parametrize(("name", "number"), EACH)
def test_an_operators_kernel_computes_what_it_means(trial, name, number):
    entries, built = trial
    call, entry = CALLS[name][number], entries[name, number, False]
    arrays = run(entry, call, built.library)
    for index, wanted in enumerate(call.wanted):
        found = arrays[call.place(name, index)]
        assert found.shape == wanted.shape
        close(found, wanted)


@pytest.mark.parametrize(("name", "number"), EACH_GRADIENT)
def test_an_operators_gradient_is_that_of_what_it_means(trial, name, number):
    entries, built = trial
    call, entry = CALLS[name][number], entries[name, number, True]
    arrays = run(entry, call, built.library)

    def meaning(*varied: np.ndarray) -> np.ndarray:
        arguments = call.exact
        for index, value in zip(call.differentiable, varied):
            arguments[index] = value
        return call.meaning(*arguments)

    gradients = [arrays[f"dx{index}"] for index in call.differentiable]
    check_gradient(meaning, [call.exact[index] for index in call.differentiable], call.dy, gradients)


def test_every_operator_is_tried_and_differentiated_where_it_can_be():
    computed = {name for name, operator in OPERATORS.items() if not isinstance(operator.kernel, Without)}
    assert set(CALLS) == computed
    with_gradient = {name for name in computed if not isinstance(OPERATORS[name].gradient, Without)}
    assert with_gradient == {case.values[0] for case in EACH_GRADIENT}


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=lambda operator: operator.name)
def test_an_operator_has_every_part_or_says_why_not(operator: Operator):
    for part in (operator.infer, operator.gradient, operator.kernel):
        assert part.because if isinstance(part, Without) else callable(part)
    assert isinstance(operator.infer, Without) == operator.name.startswith("relax.")


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=lambda operator: operator.name)
def test_relax_knows_the_type_of_an_operator_and_its_gradient(operator: Operator):
    register_operators()
    known = tvm.ir.Op.get(operator.name)
    assert known.get_attr("FInferType") is not None and known.num_inputs == operator.inputs
    has_gradient = not isinstance(operator.gradient, Without) or operator.name.startswith("relax.")
    assert (known.get_attr("FPrimalGradient") is not None) == has_gradient


def test_every_record_stands_in_the_table_under_a_name_of_its_own():
    modules = [importlib.import_module(f"{operators.__name__}.{info.name}") for info in pkgutil.iter_modules(operators.__path__)]
    records = {id(found): found for module in modules for found in vars(module).values() if isinstance(found, Operator)}
    assert sorted(record.name for record in records.values()) == sorted(OPERATORS)


def test_the_seed_is_a_scalar_and_has_no_kernel():
    register_operators()
    y, dy = (relax.Var(name, relax.TensorType((2, 3), "float32")) for name in ("y", "dy"))
    builder = relax.BlockBuilder()
    with builder.function("main", [y, dy]):
        with builder.dataflow():
            root = builder.emit_output(loss.seed(y, dy))
        builder.emit_func_output(root)
    assert len(root.ty.shape) == 0 and isinstance(OPERATORS["mft.seed"].kernel, Without)
