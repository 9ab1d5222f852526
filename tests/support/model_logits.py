"""The logits of our engine at every position of a text, through the same entries as on the phone.

In:  an open Engine, token ids, and the adapter's flat vector when one is mounted.
Out: [T,V] f32.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import gguf
import numpy as np
from mobilefinetuner.runtime.adapter.flat_vector import view
from mobilefinetuner.runtime.adapter.tensors import AdapterTensors
from mobilefinetuner.runtime.bundle.chat_format import ChatFormat
from mobilefinetuner.runtime.bundle.plan import AdapterPlan
from mobilefinetuner.runtime.bundle.tokenizer import Tokenizer
from mobilefinetuner.runtime.engine.engine import Engine
from mobilefinetuner.runtime.engine.forward import ForwardSet
from mobilefinetuner.runtime.engine.packing import pack
from mobilefinetuner.runtime.engine.tensors import TensorMemory, decoding_tensors
from mobilefinetuner.runtime.gguf.file import GgufFile, TensorSource, write_gguf
from mobilefinetuner.runtime.gguf.types import Field
from mobilefinetuner.runtime.train.step import TrainStep

SAMPLE = Path(__file__).parents[2] / "templates" / "customer_service" / "sample.jsonl"


def merged_logits(engine: Engine, ids: list[int]) -> np.ndarray:
    """Of the engine's weights alone."""
    forward = ForwardSet(engine).fitting(len(ids))
    padded = np.zeros(forward.tokens, np.int32)
    padded[: len(ids)] = ids
    return _head(engine, forward.run(padded, np.zeros((1, forward.tokens), np.int32))[: len(ids)])


def mounted_logits(engine: Engine, ids: list[int], vector: np.ndarray) -> np.ndarray:
    """With the adapter computed beside the weights, as in training."""
    bucket = next(b for b in engine.plan.buckets if b.startswith("1x") and int(b[2:]) >= len(ids))
    step = TrainStep(engine, bucket)
    step.state["parameters"][:] = vector
    sample = SimpleNamespace(token_ids=np.array(ids, np.int32), label_mask=np.ones(len(ids), np.uint8))
    step.forward(pack([sample], 1, int(bucket[2:]))[0])
    return _head(engine, step.memory["hidden"][-1][: len(ids)])


def _head(engine: Engine, hidden: np.ndarray) -> np.ndarray:
    memory = TensorMemory(decoding_tensors(engine.plan))
    x = memory["x"][0]
    operands = {"x": x.ctypes.data, "logits": memory.address("logits")}
    program = engine.program(engine.plan.entry("logits"), operands, memory.address("scratch"))
    rows = []
    for row in hidden:
        x[:] = row
        program.run()
        rows.append(memory["logits"].copy())
    return np.stack(rows)


def random_vector(plan: AdapterPlan, seed: int, size: float) -> np.ndarray:
    """An adapter whose A and B are both far from zero; `size` scales B."""
    rng = np.random.default_rng(seed)
    vector = np.zeros(plan.size, np.float32)
    for index, tensor in enumerate(plan.tensors):
        matrix = view(vector, plan, index)
        matrix[:] = rng.normal(0, tensor.shape[1] ** -0.5 * (size if tensor.name.matrix == "B" else 1), tensor.shape)
    return vector


def vector_of(plan: AdapterPlan, adapter: AdapterTensors) -> np.ndarray:
    """The flat vector of an adapter that fits the plan."""
    vector = np.zeros(plan.size, np.float32)
    for index, tensor in enumerate(plan.tensors):
        view(vector, plan, index)[:] = adapter.pairs[tensor.name.weight]["AB".index(tensor.name.matrix)]
    return vector


def chat_and_tokenizer(bundle: Path) -> tuple[ChatFormat, Tokenizer]:
    """As the phone reads them."""
    scenario = json.loads((bundle / "scenario.json").read_text(encoding="utf-8"))
    return ChatFormat.from_dict(scenario["chat"]), Tokenizer.load(bundle / "tokenizer.json")


def write_dequantized(source: GgufFile, path: Path) -> Path:
    """The same model with every matrix as fp32: what other tools compute on without rounding of their own."""

    def tensor(name: str) -> TensorSource:
        info = source.tensors[name]
        if len(info.shape) < 2:
            return source.source(name)
        rows = source.data(name).reshape(info.shape[0], -1)
        return TensorSource(name, info.shape, "F32", lambda: gguf.dequantize(np.array(rows), gguf.GGMLQuantizationType[info.type_name]))

    fields = {**source.fields, "general.file_type": Field("u32", 0)}
    write_gguf(path, fields, [tensor(name) for name in source.tensors])
    return path
