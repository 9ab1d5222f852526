"""From recipe to bundle, in numbered steps.

In:  Recipe.
Out: the bundle's folder. The same recipe and the same inputs give the same bytes.
"""

from __future__ import annotations

import importlib.metadata
import importlib.resources
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

from ..runtime import __version__
from ..runtime.chat_format import ChatFormat
from ..runtime.errors import UserError
from ..runtime.gguf_file import GgufFile
from ..runtime.plan import PLAN_FORMAT, ModelPlan, Plan, parse_bucket
from ..runtime.data.scenario import Scenario, scenario_document
from ..runtime.data.windows import Splitter
from ..runtime.tokenizer import Tokenizer
from . import ability_probes
from .base_model import write_base_model
from .bundle_writer import write_bundle
from .chat_template import compile_chat_format
from .entries import Sizes, adapter_plan, build_entries, signatures_of
from .graph import GROUP, AdapterSpec
from .kernel_table import KernelSet
from .kernels.strips import COLUMNS
from .kernels.isa import isa_for
from .library import build_library, target_for, workspace_bytes
from .memory_plan import with_memory
from .model_shape import ModelShape, read_shape
from .model_source import resolve_model
from .recipe import template_folder
from .recipe_schema import Recipe
from .tokenizer_json import tokenizer_json
from .zipapp_writer import make_zipapp

Progress = Callable[[str], None]
TOOLS = ("apache-tvm", "apache-tvm-ffi", "numpy", "tokenizers", "ziglang")
CONTEXT_MULTIPLE = 64


def compile_bundle(recipe: Recipe, progress: Progress) -> Path:
    """Build the recipe's bundle. UserError for whatever in the recipe or its inputs cannot be compiled."""
    progress(f"1/6 model: {recipe.model.name}")
    model = GgufFile.open(resolve_model(recipe.model.source, progress))
    shape = read_shape(model)
    _check_sizes(recipe, shape)
    progress("2/6 tokenizer and chat template, proved against Jinja")
    tokenizer = tokenizer_json(model.metadata, str(model.path))
    scenario = _scenario(recipe, model, tokenizer)
    progress("3/6 graph, gradients and static plan")
    kernels = KernelSet(isa_for(recipe.device.arch, recipe.device.features))
    plan = _plan(recipe, shape, kernels)
    plan = with_memory(plan, model.size_bytes, recipe.device.threads, recipe.device.memory_budget_mb << 20, recipe.device.name)
    progress(f"4/6 {len(kernels.functions)} kernels for {recipe.device.cpu}")
    device = recipe.device
    library = build_library(kernels, target_for(device.arch, device.mtriple, device.cpu, device.features), device.arch)
    progress("5/6 runtime")
    files: dict[str, bytes | Path] = {
        "kernels.so": library,
        "mft.pyz": make_zipapp(),
        "plan.json": _json(plan.to_json()),
        "scenario.json": _json(scenario),
        "tokenizer.json": tokenizer,
        **_template_files(recipe, tokenizer, scenario["chat"], progress),
    }
    progress(f"6/6 writing {recipe.out}")
    with tempfile.TemporaryDirectory() as folder:
        files["model.gguf"] = Path(folder) / "model.gguf"
        write_base_model(model, files["model.gguf"])
        return write_bundle(recipe.out, files, _manifest_fields(recipe))


def _check_sizes(recipe: Recipe, shape: ModelShape) -> None:
    """What kernels can only do for some sizes."""
    for bucket in recipe.train.buckets:
        _, tokens = parse_bucket(bucket)
        if tokens % COLUMNS:
            raise UserError("train.buckets", f"{bucket} has {tokens} tokens", f"multiples of {COLUMNS}", f"1x{-(-tokens // COLUMNS) * COLUMNS}")
        if tokens > shape.context_length:
            raise UserError("train.buckets", f"{bucket} is longer than the model's context", f"at most {shape.context_length} tokens")
    for name, width in (("embedding_length", shape.d_model), ("feed_forward_length", shape.ffn), ("key-value width", shape.kv_heads * shape.head_dim)):
        if width % GROUP:
            raise UserError(f"model {recipe.model.name}", f"{name} is {width}", f"multiples of {GROUP}")
    if shape.vocab % GROUP:
        raise UserError(f"model {recipe.model.name}", f"the vocabulary has {shape.vocab} entries", f"multiples of {GROUP}")
    lanes = isa_for(recipe.device.arch, recipe.device.features).lanes
    if shape.head_dim % lanes:
        raise UserError(
            f"model {recipe.model.name}", f"its heads are {shape.head_dim} wide",
            f"multiples of {lanes}, the values in a vector register of device {recipe.device.name}", "a device with shorter vectors, or another model",
        )  # fmt: skip


def _plan(recipe: Recipe, shape: ModelShape, kernels: KernelSet) -> Plan:
    train = recipe.train
    adapter = AdapterSpec(train.adapter, train.rank, train.scale, train.targets)
    buckets = tuple(sorted(train.buckets, key=lambda b: (parse_bucket(b)[0] * parse_bucket(b)[1], b)))
    longest = max(parse_bucket(b)[1] for b in buckets)
    context = -(-(longest + recipe.scenario.decode_tokens) // CONTEXT_MULTIPLE) * CONTEXT_MULTIPLE
    sizes = Sizes(buckets, context, train.head_chunk_tokens)
    entries = build_entries(shape, adapter, sizes, kernels)
    model = ModelPlan(
        shape.layers, shape.d_model, shape.heads, shape.kv_heads, shape.head_dim, shape.ffn, shape.vocab, shape.rope_base, context,
        train.head_chunk_tokens, shape.tensor_types["token_embd.weight"], shape.head_tensor,
    )  # fmt: skip
    return Plan(
        PLAN_FORMAT, model, adapter_plan(shape, adapter), buckets, signatures_of(shape, adapter), workspace_bytes(kernels), entries, ()
    )


def _scenario(recipe: Recipe, model: GgufFile, tokenizer_document: bytes) -> dict:
    """scenario.json: the template under the recipe's settings, with the model's chat format."""
    tokenizer = Tokenizer.from_json(tokenizer_document)
    chat = compile_chat_format(model.metadata, tokenizer, str(model.path))
    document = scenario_document(template_folder(recipe.scenario), recipe.scenario.settings(), chat.to_dict())
    Splitter(Scenario.from_json(document), tokenizer, chat)  # refuses a system prompt that leaves no room in the window
    return document


def _template_files(recipe: Recipe, tokenizer: bytes, chat: dict, progress: Progress) -> dict[str, bytes | Path]:
    """The scenario's test conversations, and its base-ability probes or those that all scenarios share."""
    folder = template_folder(recipe.scenario)
    files: dict[str, bytes | Path] = {name: (folder / name).read_bytes() for name in ("eval.jsonl",) if (folder / name).is_file()}
    own = folder / ability_probes.FILE_NAME
    shared = Path(str(importlib.resources.files("mobilefinetuner.templates"))) / ability_probes.FILE_NAME
    longest = max(parse_bucket(bucket)[1] for bucket in recipe.train.buckets)
    probes = ability_probes.bundled_probes(
        own if own.is_file() else shared, Tokenizer.from_json(tokenizer), ChatFormat.from_dict(chat), longest
    )
    if probes.left_out:
        progress(f"    {len(probes.left_out)} base-ability probes are longer than the longest bucket ({longest} tokens) and left out")
    return files | ({ability_probes.FILE_NAME: probes.content} if probes.content else {})


def _manifest_fields(recipe: Recipe) -> dict:
    device = recipe.device
    return {
        "abi": {"arch": device.arch, "mtriple": device.mtriple, "cpu": device.cpu},
        "recipe": recipe.portable(),
        "required_cpu_features": list(device.features),
        "tools": {"mobilefinetuner": __version__} | {name: importlib.metadata.version(name) for name in TOOLS},
    }


def _json(document: object) -> bytes:
    return (json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False) + "\n").encode()
