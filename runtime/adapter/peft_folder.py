"""An adapter as Hugging Face PEFT keeps it: a folder with adapter_config.json and adapter_model.safetensors.

In:  AdapterTensors, or such a folder; and the base model, for its names and sizes.
Out: the folder, or AdapterTensors.
In a GGUF of architecture llama the rows of attn_q and attn_k stand in pairs for rotary embedding (2i, 2i+1); Hugging Face has the
first halves of all pairs first. So the rows of these projections' B change places on the way, and A stays as it is.
"""

# Shapes: N rows · K row elements · R adapter rank · H heads · d head width
from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np

from ..bundle.plan import Projection, block_weight, parse_block_weight
from ..errors import UserError
from ..gguf.file import GgufFile
from ..storage.durable import write_json
from .forms import as_grouped, as_lora
from .safetensors_file import SafetensorsFile, write_safetensors
from .tensors import AdapterTensors

CONFIG_NAME, MATRICES_NAME, PICKLE_NAME = "adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"
MODULES: dict[Projection, str] = {
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}  # fmt: skip
PROJECTION_OF_MODULE = {module: projection for projection, module in MODULES.items()}
HEAD_COUNT_KEYS = {"llama": {"attn_q": "attention.head_count", "attn_k": "attention.head_count_kv"}}
"""by architecture: the projections whose rows are paired in GGUF, with the key of their number of heads"""
_KEY = re.compile(r"(?:base_model\.model\.)?(?:model\.)?layers\.(\d+)\.(\w+\.\w+)\.lora_([AB])(?:\.default)?\.weight")
_MUST_BE: dict[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",), "bias": (None, "none"), "use_dora": (None, False), "fan_in_fan_out": (None, False), "lora_bias": (None, False),
    "modules_to_save": (None, []), "trainable_token_indices": (None, [], {}), "alora_invocation_tokens": (None, []),
    "target_parameters": (None, []), "layer_replication": (None, []), "use_qalora": (None, False), "use_bdlora": (None,),
    "arrow_config": (None,), "kasa_config": (None,), "init_lora_weights": (None, True, False, "gaussian", "eva", "orthogonal"),
}  # fmt: skip
"""settings that change the arithmetic, with the values that are understood; starts such as PiSSA's change the base's weights too"""


def write_peft_folder(folder: Path, adapter: AdapterTensors, base: GgufFile, base_name: str) -> int:
    """Write both files into an existing folder; returns their bytes. UserError for a tensor that PEFT has no module for."""
    plain = as_lora(adapter)
    matrices: dict[str, np.ndarray] = {}
    modules = set()
    for name, (a, b) in plain.pairs.items():
        layer, projection = _layer_and_projection(name)
        modules.add(MODULES[projection].split(".")[1])
        prefix = f"base_model.model.model.layers.{layer}.{MODULES[projection]}"
        matrices[f"{prefix}.lora_A.weight"] = a
        matrices[f"{prefix}.lora_B.weight"] = _to_hf_rows(b, _paired_heads(base, projection))
    rank = next(iter(plain.pairs.values()))[0].shape[0]
    n_bytes = write_safetensors(folder / MATRICES_NAME, matrices, {"format": "pt"})
    write_json(folder / CONFIG_NAME, {
        "base_model_name_or_path": base_name, "bias": "none", "fan_in_fan_out": False, "inference_mode": True, "init_lora_weights": True,
        "lora_alpha": rank * plain.scale, "lora_dropout": 0.0, "modules_to_save": None, "peft_type": "LORA", "r": rank,
        "target_modules": sorted(modules), "task_type": "CAUSAL_LM", "use_dora": False, "use_rslora": False,
    })  # fmt: skip
    return n_bytes + (folder / CONFIG_NAME).stat().st_size


def read_peft_folder(folder: Path, base: GgufFile) -> AdapterTensors:
    """The folder's LoRA by our names, as a grouped adapter where it is one; UserError for what is not understood or does not fit."""
    config = _read_config(folder / CONFIG_NAME)
    if not (folder / MATRICES_NAME).exists() and (folder / PICKLE_NAME).exists():
        raise UserError(str(folder / PICKLE_NAME), "is a pickle, which can run any program when it is read", MATRICES_NAME,
                        "save it with save_pretrained(..., safe_serialization=True)")  # fmt: skip
    file = SafetensorsFile.open(folder / MATRICES_NAME)
    scales: dict[str, float] = {}
    halves: dict[str, dict[str, np.ndarray]] = {}
    for key in file.shapes:
        layer, module, half = _parse_key(file.path, key)
        name = block_weight(layer, PROJECTION_OF_MODULE[module])
        matrix = file.read(key)
        if matrix.ndim != 2:
            raise UserError(str(file.path), f"{key} has the shape {matrix.shape}", "a matrix")
        heads = _paired_heads(base, PROJECTION_OF_MODULE[module])
        halves.setdefault(name, {})[half] = _to_gguf_rows(matrix, heads) if half == "B" else matrix
        scales[name] = _scale(config, f"model.layers.{layer}.{module}", matrix.shape[0 if half == "A" else 1])
    for name, pair in halves.items():
        if set(pair) != {"A", "B"}:
            raise UserError(str(file.path), f"has only lora_{next(iter(pair))} for {name}", "lora_A and lora_B of each module")
    if not halves:
        raise UserError(str(file.path), "has no matrices", "lora_A and lora_B of each module")
    adapter = _with_one_scale({name: (pair["A"], pair["B"]) for name, pair in halves.items()}, scales)
    return as_grouped(adapter) or adapter


def _layer_and_projection(name: str) -> tuple[int, Projection]:
    try:
        layer, projection = parse_block_weight(name)
        return layer, next(known for known in MODULES if known == projection)
    except (ValueError, StopIteration):
        raise UserError("adapter", f"changes {name}, which PEFT has no module for", "projections of the blocks") from None


def _parse_key(path: Path, key: str) -> tuple[int, str, str]:
    match = _KEY.fullmatch(key)
    if not match or match[2] not in PROJECTION_OF_MODULE:
        raise UserError(str(path), f"{key!r} is nothing that this model can take", f"lora_A and lora_B of {', '.join(PROJECTION_OF_MODULE)}",
                        "train it with these target_modules only")  # fmt: skip
    return int(match[1]), match[2], match[3]


def _read_config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_bytes())
    except OSError as error:
        raise UserError(str(path), f"cannot be read ({error.strerror})", "a folder made by PEFT's save_pretrained") from None
    except (ValueError, RecursionError):
        config = None
    if not isinstance(config, dict):
        raise UserError(str(path), "is not a JSON object", "the file that PEFT's save_pretrained wrote")
    for key, allowed in _MUST_BE.items():
        if config.get(key) not in allowed:
            raise UserError(str(path), f"{key} is {config.get(key)!r}, which is not understood", " or ".join(map(repr, allowed)))
    return config


def _scale(config: dict[str, Any], module: str, found_rank: int) -> float:
    """alpha/rank of one module; with rank-stabilised LoRA alpha/√rank, as PEFT computes it."""
    rank = _pattern(config, "rank_pattern", module, config.get("r"))
    alpha = _pattern(config, "alpha_pattern", module, config.get("lora_alpha"))
    if not _is_number(rank) or not _is_number(alpha) or rank <= 0:
        raise UserError(CONFIG_NAME, f"r is {rank!r} and lora_alpha is {alpha!r}", "positive numbers")
    if rank != found_rank:
        raise UserError(
            CONFIG_NAME, f"r is {rank} for {module}, its matrices have the rank {found_rank}", remedy="fetch both files of the adapter again"
        )
    return alpha / math.sqrt(rank) if config.get("use_rslora") else alpha / rank


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _pattern(config: dict[str, Any], name: str, module: str, otherwise: Any) -> Any:
    """The value whose pattern matches the end of the module's name, as in PEFT."""
    for pattern, value in (config.get(name) or {}).items():
        try:
            if re.fullmatch(rf"(.*\.)?({pattern})", module):
                return value
        except re.error:
            raise UserError(CONFIG_NAME, f"{name} holds {pattern!r}, which is no pattern") from None
    return otherwise


def _with_one_scale(pairs: dict[str, tuple[np.ndarray, np.ndarray]], scales: dict[str, float]) -> AdapterTensors:
    """Modules may have scales of their own; what differs from the first one's goes into B."""
    scale = next((scale for scale in scales.values() if scale), 0.0)
    scaled = {name: (a, b if scales[name] == scale else np.float32(scales[name] / (scale or 1.0)) * b) for name, (a, b) in pairs.items()}
    return AdapterTensors("lora", scale, scaled)


def _paired_heads(base: GgufFile, projection: str) -> int:
    """Heads whose rows are paired in the base; 0 for a projection whose rows have no order of their own."""
    architecture = base.metadata.get("general.architecture")
    if architecture not in HEAD_COUNT_KEYS:
        raise UserError(str(base.path), f"the rows of architecture {architecture!r} have no known order in PEFT", ", ".join(HEAD_COUNT_KEYS))
    key = HEAD_COUNT_KEYS[architecture].get(projection)
    if key is None:
        return 0
    heads = base.metadata.get(f"{architecture}.{key}", base.metadata.get(f"{architecture}.attention.head_count"))
    if not isinstance(heads, int) or heads < 1:
        raise UserError(str(base.path), f"{architecture}.{key} is {heads!r}", "the number of heads")
    return heads


def _to_hf_rows(b: np.ndarray, heads: int) -> np.ndarray:
    """b [H·d, R], rows pair by pair  →  rows half by half in each head; unchanged for heads = 0"""
    return b if not heads else b.reshape(heads, -1, 2, b.shape[1]).swapaxes(1, 2).reshape(b.shape)


def _to_gguf_rows(b: np.ndarray, heads: int) -> np.ndarray:
    """The inverse of _to_hf_rows; UserError for rows that are no whole heads."""
    if not heads:
        return b
    if b.shape[0] % (2 * heads):
        raise UserError("adapter", f"a B of shape {b.shape} does not fit {heads} heads", remedy="use the base that it was trained on")
    return b.reshape(heads, 2, -1, b.shape[1]).swapaxes(1, 2).reshape(b.shape)
