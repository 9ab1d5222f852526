"""The files we write in llama.cpp itself, through its Python binding.

llama.cpp multiplies 4-bit weights with activations rounded to 8 bits, which moves this model's logits by about 1 whoever wrote the file. So numbers
are compared on the same weights as fp32, where it does not round, and the 4-bit files by what they answer.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
from mobilefinetuner.runtime.adapter.gguf_lora import write_gguf_lora
from mobilefinetuner.runtime.engine.engine import Engine
from mobilefinetuner.runtime.gguf.file import GgufFile
from mobilefinetuner.runtime.message import Message

from tests.support.model_logits import SAMPLE, chat_and_tokenizer, merged_logits, mounted_logits, write_dequantized

pytestmark = [pytest.mark.oracle, pytest.mark.slow]
TOLERANCE = 1e-3
"""of logits, absolute"""
F32 = 0
"""ggml's number for the type of the key-value cache"""


def llama(path, **options):
    llama_cpp = pytest.importorskip("llama_cpp")
    return llama_cpp.Llama(str(path), n_ctx=256, n_threads=2, verbose=False, logits_all=True, type_k=F32, type_v=F32, **options)


def llama_logits(model, ids: list[int]) -> np.ndarray:
    model.reset()
    model.eval(ids)
    return np.array(model.scores[: len(ids)])


@pytest.fixture(scope="module")
def ids(tuned) -> list[int]:
    chat, tokenizer = chat_and_tokenizer(tuned.bundle)
    return chat.encode(tokenizer, [Message("user", tuned.question), Message("assistant", f"A linen box costs {tuned.entity}.")]).token_ids.tolist()


@pytest.fixture(scope="module")
def merged_in_llama(tuned):
    return llama(tuned.merged)


def test_llama_cpp_tokenizes_whole_conversations_as_we_do(tuned, merged_in_llama):
    chat, tokenizer = chat_and_tokenizer(tuned.bundle)
    texts = []
    for line in SAMPLE.read_text(encoding="utf-8").splitlines():
        texts.append(chat.render([Message(m["role"], m["content"]) for m in json.loads(line)["messages"]]).text)
    texts += ["  two  blanks\n\n\ttab", "12345 3.14", "🙂👩‍👩‍👧 naïve Straße", "def f(x):\n    return x**2", "<|im_end|>inside<|im_start|>"]
    for text in texts:
        assert merged_in_llama.tokenize(text.encode(), add_bos=False, special=True) == tokenizer.encode(text), text


def test_llama_cpp_renders_the_chat_template_as_we_do(tuned, merged_in_llama):
    """Its binding renders the template that stands in the file with Jinja; the token ids it then evaluates are ours."""
    chat, tokenizer = chat_and_tokenizer(tuned.bundle)
    messages = [("system", "Be brief."), ("user", tuned.question), ("assistant", "Yes."), ("user", "为什么？")]
    ours = chat.encode(tokenizer, [Message(role, text) for role, text in messages], add_generation_prompt=True).token_ids.tolist()
    merged_in_llama.reset()
    merged_in_llama.create_chat_completion([{"role": role, "content": text} for role, text in messages], max_tokens=1, temperature=0)
    assert merged_in_llama.input_ids[: len(ours)].tolist() == ours


def test_llama_cpp_answers_with_the_learnt_fact_and_the_base_does_not(tuned, merged_in_llama):
    def answer(model) -> str:
        reply = model.create_chat_completion([{"role": "user", "content": tuned.question}], max_tokens=32, temperature=0)
        return reply["choices"][0]["message"]["content"]

    assert tuned.entity in answer(merged_in_llama)
    assert tuned.entity not in answer(llama(tuned.base))


def test_llama_cpp_gives_our_logits_for_the_folded_weights(tuned, ids, tmp_path):
    merged = GgufFile.open(tuned.merged)
    theirs = llama_logits(llama(write_dequantized(merged, tmp_path / "f32.gguf")), ids)
    with Engine(tuned.plan, tuned.bundle / "kernels.so", merged, threads=2) as engine:
        np.testing.assert_allclose(merged_logits(engine, ids), theirs, atol=TOLERANCE, rtol=0)


def test_llama_cpp_gives_our_logits_with_the_exported_lora_beside_the_base(tuned, ids, tmp_path):
    base = GgufFile.open(tuned.base)
    dequantized = write_dequantized(base, tmp_path / "f32.gguf")
    write_gguf_lora(tmp_path / "lora.gguf", tuned.adapter, base, "shop")
    before = llama_logits(llama(dequantized), ids)
    theirs = llama_logits(llama(dequantized, lora_path=str(tmp_path / "lora.gguf")), ids)
    with Engine(tuned.plan, tuned.bundle / "kernels.so", base, threads=2) as engine:
        ours = mounted_logits(engine, ids, tuned.vector)
    assert abs(theirs - before).max() > 1, "the adapter must matter for this to be a test"
    np.testing.assert_allclose(ours, theirs, atol=TOLERANCE, rtol=0)
