"""From recipe to bundle, in numbered steps.

In:  Recipe.
Out: the bundle's folder. The same recipe and the same inputs give the same bytes.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.resources
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from ..runtime import __version__
from ..runtime.bundle.chat_format import ChatFormat
from ..runtime.bundle.folder import KERNELS_NAME
from ..runtime.bundle.plan import PLAN_FORMAT, Bucket, ModelPlan, Plan
from ..runtime.bundle.tokenizer import Tokenizer
from ..runtime.data.scenario import Scenario, scenario_document
from ..runtime.data.windows import Splitter
from ..runtime.errors import MftError, UserError
from ..runtime.gguf.file import GgufFile
from ..runtime.storage.durable import canonical_json, sha256_of_file
from ..runtime.train.replay import FILE_NAME as REPLAY_FILE
from .bundle import ability_questions
from .bundle.memory_plan import with_memory
from .bundle.replay_set import Base, replay_set
from .bundle.writer import write_bundle
from .bundle.zipapp_writer import make_zipapp
from .kernels.isa import isa_for
from .kernels.kernel_set import KernelSet
from .kernels.strips import COLUMNS
from .library.build import build_library, target_for, workspace_bytes
from .library.cpu_check import check_device_cpus
from .lowering.entries import Sizes, adapter_plan, build_entries, signatures_of
from .lowering.graph import GROUP, AdapterSpec
from .model.base_model import Conversion, write_base_model
from .model.chat_template import compile_chat_format
from .model.shape import ModelShape, read_shape
from .model.source import resolve_model
from .model.tokenizer_json import tokenizer_json
from .recipe.load import template_folder
from .recipe.schema import Recipe

Progress = Callable[[str], None]
TOOLS = ("apache-tvm", "apache-tvm-ffi", "numpy", "tokenizers", "ziglang")
CONTEXT_MULTIPLE = 64


def compile_bundle(recipe: Recipe, progress: Progress) -> Path:
    """Build the recipe's bundle. UserError for whatever in the recipe or its inputs cannot be compiled."""
    check_device_cpus(recipe.device)
    progress(f"1/6 model: {recipe.model.name}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        source = GgufFile.open(resolve_model(recipe.model.source, progress))
        _check_sizes(recipe, read_shape(source))
        conversions = write_base_model(source, path, recipe.quantization, recipe.train)
        for conversion in conversions:
            progress(f"    {conversion}")
        return _compile(recipe, source, GgufFile.open(path), conversions, progress)


def _compile(recipe: Recipe, source: GgufFile, model: GgufFile, conversions: Sequence[Conversion], progress: Progress) -> Path:
    """model: the source as the bundle has it."""
    progress("2/6 tokenizer and chat template, proved against Jinja")
    tokenizer = tokenizer_json(source.metadata, str(source.path))
    scenario = _scenario(recipe, source, tokenizer)
    progress("3/6 graph, gradients and static plan")
    plan, libraries = _plan_and_kernels(recipe, read_shape(model))
    plan = with_memory(plan, model.size_bytes, recipe.device.threads, recipe.device.memory_budget_mb << 20, recipe.device.name)
    device = recipe.device
    built: dict[str, bytes | Path] = {}
    for (name, cpu, features), kernels in libraries:
        progress(f"4/6 {len(kernels.functions)} kernels for {cpu}")
        built[name] = build_library(kernels, target_for(device.arch, device.mtriple, cpu, features), device.arch)
    progress("5/6 runtime")
    files: dict[str, bytes | Path] = {
        **built,
        "model.gguf": model.path,
        "mft.pyz": make_zipapp(),
        "plan.json": _json(plan.to_json()),
        "scenario.json": _json(scenario),
        "tokenizer.json": tokenizer,
        **_template_files(recipe, tokenizer, scenario["chat"], progress),
        **_replay_files(recipe, source, model, tokenizer, scenario["chat"], progress),
    }
    progress(f"6/6 writing {recipe.out}")
    return write_bundle(recipe.out, files, {**_manifest_fields(recipe), "base_conversions": [dataclasses.asdict(c) for c in conversions]})


def _check_sizes(recipe: Recipe, shape: ModelShape) -> None:
    """What kernels can only do for some sizes."""
    for bucket in recipe.train.buckets:
        tokens = Bucket.parse(bucket).tokens
        if tokens % COLUMNS:
            raise UserError("train.buckets", f"{bucket} has {tokens} tokens", f"multiples of {COLUMNS}", f"1x{-(-tokens // COLUMNS) * COLUMNS}")
        if tokens > shape.context_length:
            raise UserError("train.buckets", f"{bucket} is longer than the model's context", f"at most {shape.context_length} tokens")
    for name, width in (
        ("embedding_length", shape.d_model),
        ("feed_forward_length", shape.ffn),
        ("key-value width", shape.kv_heads * shape.head_dim),
    ):
        if width % GROUP:
            raise UserError(f"model {recipe.model.name}", f"{name} is {width}", f"multiples of {GROUP}")
    if shape.vocab % GROUP:
        raise UserError(f"model {recipe.model.name}", f"the vocabulary has {shape.vocab} entries", f"multiples of {GROUP}")
    lanes = max(isa_for(recipe.device.arch, features).lanes for _, _, features in _targets(recipe))
    if shape.head_dim % lanes:
        raise UserError(
            f"model {recipe.model.name}", f"its heads are {shape.head_dim} wide",
            f"multiples of {lanes}, the values in a vector register of device {recipe.device.name}", "shorter vectors, or another model",
        )  # fmt: skip


def _targets(recipe: Recipe) -> list[tuple[str, str, tuple[str, ...]]]:
    """(file, cpu, features) of each kernel library: the profile's own first, then its variants."""
    device = recipe.device
    own = (KERNELS_NAME, device.cpu, device.features)
    return [own, *((f"kernels-{v.cpu}.so", v.cpu, v.features) for v in device.variants)]


def _plan_and_kernels(recipe: Recipe, shape: ModelShape) -> tuple[Plan, list[tuple[tuple[str, str, tuple[str, ...]], KernelSet]]]:
    """One plan for all libraries: they hold the same kernels by name and shape, each in its own instruction set."""
    libraries = [(target, KernelSet(isa_for(recipe.device.arch, target[2]))) for target in _targets(recipe)]
    plans = [_plan(recipe, shape, kernels) for _, kernels in libraries]
    if any(plan.entries != plans[0].entries for plan in plans):
        raise MftError("the variants of the kernels do not have the same plan")
    return dataclasses.replace(plans[0], workspace_bytes=max(plan.workspace_bytes for plan in plans)), libraries


def _plan(recipe: Recipe, shape: ModelShape, kernels: KernelSet) -> Plan:
    train = recipe.train
    adapter = AdapterSpec(train.adapter, train.rank, train.scale, train.targets)
    buckets = tuple(sorted(train.buckets, key=lambda name: (Bucket.parse(name).rows, name)))
    longest = max(Bucket.parse(name).tokens for name in buckets)
    context = -(-(longest + recipe.scenario.decode_tokens) // CONTEXT_MULTIPLE) * CONTEXT_MULTIPLE
    sizes = Sizes(buckets, context, train.head_chunk_tokens, train.distills)
    entries = build_entries(shape, adapter, sizes, kernels)
    model = ModelPlan(
        shape.layers, shape.d_model, shape.heads, shape.kv_heads, shape.head_dim, shape.ffn, shape.vocab, shape.rope_base, context,
        train.head_chunk_tokens, shape.tensor_types["token_embd.weight"], shape.head_tensor,
    )  # fmt: skip
    return Plan(PLAN_FORMAT, model, adapter_plan(shape, adapter), buckets, signatures_of(shape, adapter), workspace_bytes(kernels), entries, ())


def _scenario(recipe: Recipe, model: GgufFile, tokenizer_document: bytes) -> dict:
    """scenario.json: the template under the recipe's settings, with the model's chat format."""
    tokenizer = Tokenizer.from_json(tokenizer_document)
    chat = compile_chat_format(model.metadata, tokenizer, str(model.path))
    document = scenario_document(template_folder(recipe.scenario), recipe.scenario.settings(), chat.to_dict())
    Splitter(Scenario.from_json(document), tokenizer, chat)  # refuses a system prompt that leaves no room in the window
    return document


def _template_files(recipe: Recipe, tokenizer: bytes, chat: dict, progress: Progress) -> dict[str, bytes | Path]:
    """The scenario's test conversations, and its base-ability questions or those that all scenarios share."""
    folder = template_folder(recipe.scenario)
    files: dict[str, bytes | Path] = {name: (folder / name).read_bytes() for name in ("eval.jsonl",) if (folder / name).is_file()}
    own = folder / ability_questions.FILE_NAME
    shared = Path(str(importlib.resources.files("mobilefinetuner.templates"))) / ability_questions.FILE_NAME
    longest = max(bucket.tokens for bucket in recipe.train.bucket_shapes)
    questions = ability_questions.bundled_questions(
        own if own.is_file() else shared, Tokenizer.from_json(tokenizer), ChatFormat.from_dict(chat), longest
    )
    if questions.left_out:
        progress(f"    {len(questions.left_out)} base-ability questions are longer than the longest bucket ({longest} tokens) and left out")
    return files | ({ability_questions.FILE_NAME: questions.content} if questions.content else {})


def _replay_files(recipe: Recipe, source: GgufFile, model: GgufFile, tokenizer: bytes, chat: dict, progress: Progress) -> dict[str, bytes | Path]:
    """What the base says to general questions, when the recipe replays it."""
    if not recipe.train.replay_rows:
        return {}
    base = Base(model, sha256_of_file(source.path), Tokenizer.from_json(tokenizer), ChatFormat.from_dict(chat))
    return {REPLAY_FILE: replay_set(base, recipe.scenario.languages, recipe.train.replay_questions, progress)}


def _manifest_fields(recipe: Recipe) -> dict:
    device = recipe.device
    return {
        "abi": {
            "arch": device.arch,
            "mtriple": device.mtriple,
            "cpu": device.cpu,
            "variants": [{"file": name, "required_cpu_features": list(features)} for name, _, features in _targets(recipe)[1:]],
        },
        "recipe": recipe.portable(),
        "required_cpu_features": list(device.features),
        "tools": {"mobilefinetuner": __version__} | {name: importlib.metadata.version(name) for name in TOOLS},
    }


def _json(document: object) -> bytes:
    return canonical_json(document) + b"\n"
