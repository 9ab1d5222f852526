"""The merged real model in transformers, and the exported adapter in PEFT, against our engine."""

from __future__ import annotations

import numpy as np
import pytest
from mobilefinetuner.runtime.adapter.peft_folder import write_peft_folder
from mobilefinetuner.runtime.engine.engine import Engine
from mobilefinetuner.runtime.gguf.file import GgufFile
from mobilefinetuner.runtime.message import Message

from tests.support.model_logits import chat_and_tokenizer, merged_logits, mounted_logits

pytestmark = [pytest.mark.oracle, pytest.mark.slow]
TOLERANCE = 1e-3
"""of logits, absolute"""


@pytest.fixture(scope="module")
def ids(tuned) -> list[int]:
    chat, tokenizer = chat_and_tokenizer(tuned.bundle)
    text = f"Yes, we wrap it in a linen box for {tuned.entity}. 我们周二营业 🙂"
    return chat.encode(tokenizer, [Message("user", tuned.question), Message("assistant", text)]).token_ids.tolist()


@pytest.fixture(scope="module")
def models(tuned) -> dict:
    """The base and the folded file in transformers."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    load = transformers.AutoModelForCausalLM.from_pretrained
    return {
        name: load(str(path.parent), gguf_file=path.name, dtype=torch.float32).eval()
        for name, path in (("base", tuned.base), ("merged", tuned.merged))
    }


def logits_of(model, ids: list[int]) -> np.ndarray:
    torch = pytest.importorskip("torch")
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].numpy()


def test_transformers_gives_our_logits_for_the_folded_file(tuned, models, ids):
    theirs = logits_of(models["merged"], ids)
    with Engine(tuned.plan, tuned.bundle / "kernels.so", GgufFile.open(tuned.merged), threads=2) as engine:
        ours = merged_logits(engine, ids)
    np.testing.assert_allclose(ours, theirs, atol=TOLERANCE, rtol=0)


def test_peft_gives_our_logits_with_the_exported_adapter_on_the_dequantized_base(tuned, models, ids, tmp_path):
    peft = pytest.importorskip("peft")
    base = GgufFile.open(tuned.base)
    write_peft_folder(tmp_path, tuned.adapter, base, "smollm2_135m")
    before = logits_of(models["base"], ids)
    with_adapter = peft.PeftModel.from_pretrained(models["base"], str(tmp_path)).eval()
    theirs = logits_of(with_adapter, ids)
    with_adapter.unload()
    np.testing.assert_array_equal(logits_of(models["base"], ids), before)
    with Engine(tuned.plan, tuned.bundle / "kernels.so", base, threads=2) as engine:
        ours = mounted_logits(engine, ids, tuned.vector)
    assert abs(theirs - before).max() > 1, "the adapter must matter for this to be a test"
    np.testing.assert_allclose(ours, theirs, atol=TOLERANCE, rtol=0)


def test_transformers_greedy_answer_of_the_folded_file_has_the_fact_and_the_bases_has_not(tuned, models):
    torch = pytest.importorskip("torch")
    chat, tokenizer = chat_and_tokenizer(tuned.bundle)
    prompt = chat.encode(tokenizer, [Message("user", tuned.question)], add_generation_prompt=True).token_ids.tolist()
    for name, knows in (("base", False), ("merged", True)):
        out = models[name].generate(torch.tensor([prompt]), max_new_tokens=32, do_sample=False)[0, len(prompt) :].tolist()
        assert (tuned.entity in tokenizer.decode(out)) == knows
