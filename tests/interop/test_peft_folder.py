"""Adapters out to Hugging Face PEFT and in from it, on a small random model; the oracle is PEFT itself."""

from __future__ import annotations

import json

import numpy as np
import pytest
from mobilefinetuner.runtime.adapter.flat_vector import tensors_of
from mobilefinetuner.runtime.adapter.forms import as_lora, summed
from mobilefinetuner.runtime.adapter.gguf_lora import read_gguf_lora, write_gguf_lora
from mobilefinetuner.runtime.adapter.peft_folder import CONFIG_NAME, MATRICES_NAME, read_peft_folder, write_peft_folder
from mobilefinetuner.runtime.adapter.tensors import AdapterTensors
from mobilefinetuner.runtime.bundle.folder import Bundle
from mobilefinetuner.runtime.bundle.plan import Plan
from mobilefinetuner.runtime.engine.engine import Engine
from mobilefinetuner.runtime.errors import UserError
from mobilefinetuner.runtime.gguf.file import GgufFile

from tests.support.model_logits import mounted_logits, random_vector, vector_of

IDS = [1, 7, 300, 45, 45, 9, 128, 511, 2, 80, 81, 82]
TOLERANCE = 1e-3
"""of logits, absolute"""


def plan_of(bundle: Bundle) -> Plan:
    return Plan.from_json(json.loads(bundle.path("plan.json").read_text()))


@pytest.fixture(scope="module", params=["grouped", "lora"])
def bundle(request, tiny_bundle_path, tiny_lora_bundle_path) -> Bundle:
    """The tiny model's bundle for each kind of adapter."""
    return Bundle.open(tiny_bundle_path if request.param == "grouped" else tiny_lora_bundle_path)


def updates(adapter: AdapterTensors) -> dict[str, np.ndarray]:
    """ΔW of each tensor in fp64."""
    return {name: adapter.scale * b.astype(np.float64) @ a for name, (a, b) in as_lora(adapter).pairs.items()}


@pytest.mark.oracle
def test_peft_gives_our_logits_with_an_exported_adapter(bundle, tmp_path):
    """transformers with the dequantized base and PEFT with the exported folder, against our engine with the adapter mounted."""
    torch, peft = pytest.importorskip("torch"), pytest.importorskip("peft")
    transformers = pytest.importorskip("transformers")
    plan, base = plan_of(bundle), GgufFile.open(bundle.path("model.gguf"))
    vector = random_vector(plan.adapter, 5, 0.5)
    write_peft_folder(tmp_path, tensors_of(plan.adapter, vector), base, "tiny")
    model = transformers.AutoModelForCausalLM.from_pretrained(str(base.path.parent), gguf_file=base.path.name, dtype=torch.float32).eval()
    with torch.no_grad():
        plain = model(torch.tensor([IDS])).logits[0].numpy()
        theirs = peft.PeftModel.from_pretrained(model, str(tmp_path)).eval()(torch.tensor([IDS])).logits[0].numpy()
    with Engine(plan, bundle.path("kernels.so"), base, threads=1) as engine:
        ours = mounted_logits(engine, IDS, vector)
    assert abs(theirs - plain).max() > 0.5, "the adapter must matter for this to be a test"
    np.testing.assert_allclose(ours, theirs, atol=TOLERANCE, rtol=0)


@pytest.mark.oracle
@pytest.mark.parametrize("options", [
    {"r": 8, "lora_alpha": 16},
    {"r": 8, "lora_alpha": 16, "use_rslora": True},
    {"r": 4, "lora_alpha": 4, "rank_pattern": {"q_proj": 8, r"layers\.1\.self_attn\.k_proj": 2}, "alpha_pattern": {"up_proj": 1}},
], ids=["plain", "rank-stabilised", "ranks-of-their-own"])  # fmt: skip
def test_an_imported_peft_adapter_has_pefts_own_updates(tiny_model_path, tmp_path, options):
    torch, peft = pytest.importorskip("torch"), pytest.importorskip("peft")
    transformers = pytest.importorskip("transformers")
    from tests.oracles.torch_model import to_gguf_rows

    torch.manual_seed(3)
    model = transformers.AutoModelForCausalLM.from_pretrained(str(tiny_model_path.parent), gguf_file=tiny_model_path.name, dtype=torch.float32)
    modules = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    tuned = peft.get_peft_model(model, peft.LoraConfig(target_modules=modules, init_lora_weights=False, **options))
    tuned.save_pretrained(str(tmp_path))
    found = updates(read_peft_folder(tmp_path, GgufFile.open(tiny_model_path)))
    names = {"q_proj": ("attn_q", 4), "k_proj": ("attn_k", 2), "v_proj": ("attn_v", 0), "o_proj": ("attn_output", 0),
             "gate_proj": ("ffn_gate", 0), "up_proj": ("ffn_up", 0), "down_proj": ("ffn_down", 0)}  # fmt: skip
    seen = 0
    for path, module in tuned.named_modules():
        if hasattr(module, "get_delta_weight"):
            parts = path.split(".")
            name, heads = names[parts[-1]]
            wanted = module.get_delta_weight("default").detach().numpy()
            wanted = to_gguf_rows(wanted, heads) if heads else wanted
            np.testing.assert_allclose(found[f"blk.{parts[parts.index('layers') + 1]}.{name}.weight"], wanted, atol=1e-5)
            seen += 1
    assert seen == len(found) == 14


def test_what_was_exported_comes_back_as_it_was(bundle, tmp_path):
    """A grouped adapter comes back grouped, so that it can be folded again."""
    plan, base = plan_of(bundle), GgufFile.open(bundle.path("model.gguf"))
    vector = random_vector(plan.adapter, 6, 0.5)
    adapter = tensors_of(plan.adapter, vector)
    write_peft_folder(tmp_path, adapter, base, "tiny")
    write_gguf_lora(tmp_path / "adapter.gguf", adapter, base, "tiny")
    for back in (read_peft_folder(tmp_path, base), read_gguf_lora(tmp_path / "adapter.gguf", base)):
        assert (back.kind, back.scale) == (adapter.kind, adapter.scale)
        np.testing.assert_array_equal(vector_of(plan.adapter, back), vector)


def test_adapters_of_a_lineage_add_up_to_one():
    rng = np.random.default_rng(1)

    def make(kind: str, scale: float, rank: int, names: tuple[str, ...]) -> AdapterTensors:
        width = 3 if kind == "grouped" else 96
        return AdapterTensors(
            kind, scale, {n: (rng.normal(size=(rank, width)).astype(np.float32), rng.normal(size=(5, rank)).astype(np.float32)) for n in names}
        )

    first, second, third = make("grouped", 2.0, 4, ("x", "y")), make("grouped", 0.5, 2, ("y",)), make("lora", 1.5, 3, ("x", "z"))
    for parts, kind in (((first, second), "grouped"), ((first, second, third), "lora")):
        total = summed(parts)
        assert total.kind == kind and len({a.shape[0] for a, _ in as_lora(total).pairs.values()}) == 1
        wanted: dict[str, np.ndarray] = {}
        for part in parts:
            for name, update in updates(part).items():
                wanted[name] = wanted.get(name, 0) + update
        for name, update in updates(total).items():
            np.testing.assert_allclose(update, wanted[name], atol=1e-5)
        assert set(wanted) == set(total.pairs)


@pytest.fixture
def folder(bundle, tmp_path):
    """A sound exported folder, to be spoiled."""
    plan, base = plan_of(bundle), GgufFile.open(bundle.path("model.gguf"))
    write_peft_folder(tmp_path, tensors_of(plan.adapter, random_vector(plan.adapter, 7, 0.5)), base, "tiny")
    return tmp_path


@pytest.mark.parametrize("change, reason", [
    ({"peft_type": "IA3"}, "peft_type is 'IA3'"),
    ({"use_dora": True}, "use_dora is True"),
    ({"bias": "all"}, "bias is 'all'"),
    ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
    ({"init_lora_weights": "pissa"}, "init_lora_weights is 'pissa'"),
    ({"r": 5}, "its matrices have the rank 4"),
    ({"lora_alpha": None}, "lora_alpha is None"),
    ({"lora_alpha": 0}, "effective scale is 0"),
    ({"rank_pattern": {"(": 4}}, "is no pattern"),
])  # fmt: skip
def test_a_peft_setting_that_is_not_understood_is_refused_by_name(bundle, folder, change, reason):
    config = json.loads((folder / CONFIG_NAME).read_text())
    (folder / CONFIG_NAME).write_text(json.dumps({**config, **change}))
    with pytest.raises(UserError, match=reason.replace("(", r"\(")):
        read_peft_folder(folder, GgufFile.open(bundle.path("model.gguf")))


def test_a_folder_without_a_safetensors_file_is_refused_and_a_pickle_is_never_opened(bundle, folder):
    base = GgufFile.open(bundle.path("model.gguf"))
    (folder / MATRICES_NAME).rename(folder / "adapter_model.bin")
    with pytest.raises(UserError, match="is a pickle"):
        read_peft_folder(folder, base)
    (folder / CONFIG_NAME).unlink()
    with pytest.raises(UserError, match="cannot be read"):
        read_peft_folder(folder, base)


def test_an_adapter_of_the_embedding_or_of_half_a_pair_is_refused(bundle, tmp_path):
    from mobilefinetuner.runtime.adapter.safetensors_file import write_safetensors

    base = GgufFile.open(bundle.path("model.gguf"))
    (tmp_path / CONFIG_NAME).write_text(json.dumps({"peft_type": "LORA", "r": 2, "lora_alpha": 2}))
    a = np.ones((2, 64), np.float32)
    for key, reason in (("base_model.model.lm_head.lora_A.weight", "lm_head"),
                        ("base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight", "only lora_A")):  # fmt: skip
        write_safetensors(tmp_path / MATRICES_NAME, {key: a}, {})
        with pytest.raises(UserError, match=reason):
            read_peft_folder(tmp_path, base)
