"""Gemma's kind of vocabulary: merges from the order of its tokens. The reference is transformers, where installed."""

from __future__ import annotations

import pytest
from mobilefinetuner.compiler.model.chat_template import compile_chat_format
from mobilefinetuner.compiler.model.tokenizer_json import control_tokens, tokenizer_json
from mobilefinetuner.runtime.bundle.tokenizer import Tokenizer
from mobilefinetuner.runtime.errors import UserError
from mobilefinetuner.runtime.message import Message

CONTROL = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"]
ADDED = ["\n", "\n\n", "\n\n\n", "  ", "   ", "    "]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
WORDS = ["the", "▁t", "▁th", "▁the", "he", "th", "in", "▁in", "ing", "你好", "▁▁t", "er", "ther", "▁ther", "es", "so", "so,", "12"]
LETTERS = list("▁abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,!?'()你好我们，。é")


def metadata(**fields) -> dict:
    tokens = [*CONTROL, *ADDED, *BYTES, *WORDS, *LETTERS]
    types = [3] * len(CONTROL) + [4] * len(ADDED) + [6] * len(BYTES) + [1] * (len(WORDS) + len(LETTERS))
    base = {"model": "llama", "pre": "default", "tokens": tokens, "token_type": types, "add_space_prefix": False}
    ids = {"bos_token_id": 2, "eos_token_id": 1, "unknown_token_id": 3, "padding_token_id": 0}
    named = {f"tokenizer.ggml.{name}": value for name, value in {**base, **ids, **fields}.items()}
    return {"general.architecture": "gemma3", **named}


def tokenizer(**fields) -> Tokenizer:
    return Tokenizer.from_json(tokenizer_json(metadata(**fields), "m"))


@pytest.mark.oracle
def test_a_gemma_vocabulary_encodes_as_in_transformers():
    pytest.importorskip("transformers")
    from transformers.integrations.gguf import convert_gguf_tokenizer

    from tests.oracles.tokenizer_corpus import corpus

    fields = {name.removeprefix("tokenizer.ggml."): value for name, value in metadata().items()}
    reference, _ = convert_gguf_tokenizer("gemma3", {**fields, "tokenizer_type": "llama"})
    texts = [text for _, text in corpus()] + ["the thing  therein", "   the   ", "so, so,12", "\n\n\n\nthe"]
    ours = tokenizer()
    assert [text for text in texts if ours.encode(text) != reference.encode(text, add_special_tokens=False).ids] == []


def test_tokens_join_in_the_order_of_the_file_and_not_from_left_to_right():
    """`the` stands before `th`: t+he is made although th would come first in reading."""
    assert [tokenizer().decode([index]) for index in tokenizer().encode("the")] == ["the"]
    assert len(tokenizer().encode(" the")) == 1


@pytest.mark.parametrize("text", ["a  b", " a", "a ", "   ", "the\n\nthing", "😀 你好", "\t\x00", "<end_of_turn>\n"])
def test_blanks_bytes_and_control_tokens_come_back(text):
    assert tokenizer().decode(tokenizer().encode(text)) == text


def test_a_character_without_a_token_becomes_its_bytes():
    ids = tokenizer().encode("😀")
    assert [BYTES[index - len(CONTROL) - len(ADDED)] for index in ids] == ["<0xF0>", "<0x9F>", "<0x98>", "<0x80>"]
    assert "".join(tokenizer().decode_stream(ids)) == "😀"


def test_labels_fall_on_the_right_tokens_in_a_vocabulary_with_blanks_of_its_own():
    template = (
        "{{ bos_token }}{% for m in messages %}{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' + m.content | trim"
        " + '<end_of_turn>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"
    )
    fields = {**metadata(), "tokenizer.chat_template": template}
    ours = tokenizer()
    chat = compile_chat_format(fields, ours, "m")
    encoded = chat.encode(ours, [Message("user", "the  thing"), Message("assistant", " 你好  the 😀 ")])
    assert ours.decode(encoded.token_ids[encoded.label_mask == 1]) == "你好  the 😀<end_of_turn>"
    assert encoded.token_ids.tolist().count(2) == 1
    assert control_tokens(fields, "m").add_bos


@pytest.mark.parametrize(
    "fields", [{"add_space_prefix": True}, {"unknown_token_id": None}, {"unknown_token_id": 10**6}], ids=["prefix", "no unknown", "odd unknown"]
)
def test_a_vocabulary_that_is_not_gemmas_is_refused(fields):
    changed = {name: value for name, value in metadata(**fields).items() if value is not None}
    with pytest.raises(UserError, match="is no Gemma vocabulary"):
        tokenizer_json(changed, "m")


def test_another_sentencepiece_model_is_refused_with_what_there_is():
    with pytest.raises(UserError, match=r"'llama' in a model of architecture 'llama'; allowed: gpt2 .*gemma3"):
        tokenizer_json({**metadata(), "general.architecture": "llama"}, "m")
