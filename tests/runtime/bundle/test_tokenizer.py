"""The phone's tokenizer: offsets, streaming and refusals, on a byte-level vocabulary built here."""

from __future__ import annotations

import json

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from mobilefinetuner.runtime.bundle.tokenizer import Tokenizer
from mobilefinetuner.runtime.errors import UserError

ALPHABET = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())


def byte_tokenizer() -> Tokenizer:
    """One token per byte and one control token, id 256."""
    model = tokenizers.models.BPE(vocab={char: index for index, char in enumerate(ALPHABET)}, merges=[])
    backend = tokenizers.Tokenizer(model)
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    backend.add_special_tokens(["<end>"])
    return Tokenizer(backend)


TOKENIZER = byte_tokenizer()
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@given(TEXT)
def test_any_text_comes_back_from_its_ids(text):
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


@given(TEXT)
def test_every_token_covers_the_characters_that_its_bytes_belong_to(text):
    ids, offsets = TOKENIZER.encode_with_offsets(text)
    if "<end>" not in text:
        assert offsets == [(index, index + 1) for index, char in enumerate(text) for _ in char.encode()]
    assert len(ids) == len(offsets)


@given(TEXT)
def test_streamed_pieces_joined_are_the_text_and_no_piece_is_half_a_character(text):
    pieces = list(TOKENIZER.decode_stream(TOKENIZER.encode(text), skip_special=False))
    assert "".join(pieces) == text
    assert "\ufffd" in text or not any("\ufffd" in piece for piece in pieces)


def test_a_character_is_held_back_until_its_last_byte():
    ids = TOKENIZER.encode("é😀!")
    arrived = []
    stream = TOKENIZER.decode_stream(arrived.append(index) or index for index in ids)
    assert [(piece, len(arrived)) for piece in stream] == [("é", 2), ("😀", 6), ("!", 7)]


def test_broken_bytes_do_not_hold_the_stream_forever():
    lead = TOKENIZER.encode("é")[0]
    pieces = list(TOKENIZER.decode_stream([lead] * 20))
    assert "".join(pieces) == TOKENIZER.decode([lead] * 20)
    assert len(pieces) > 1


def test_streaming_a_sentencepiece_decoder_keeps_the_blanks_between_words():
    model = tokenizers.models.WordLevel({"▁one": 0, "▁two": 1, "▁three": 2}, unk_token="▁one")
    backend = tokenizers.Tokenizer(model)
    backend.decoder = tokenizers.decoders.Metaspace()
    assert list(Tokenizer(backend).decode_stream([0, 1, 2])) == ["one", " two", " three"]


def test_control_tokens_in_the_text_are_parsed_and_can_be_left_out_again():
    ids = TOKENIZER.encode("a<end>b")
    assert ids[1] == TOKENIZER.special_tokens["<end>"] == 256
    assert TOKENIZER.decode(ids) == "a<end>b"
    assert TOKENIZER.decode(ids, skip_special=True) == "ab"
    assert TOKENIZER.vocab_size == 257


def test_half_a_surrogate_pair_is_refused_with_its_place():
    with pytest.raises(UserError, match="at character 2"):
        TOKENIZER.encode("ab\ud83d")


def test_padding_and_truncation_that_a_file_asks_for_are_switched_off(tmp_path):
    backend = byte_tokenizer()._backend
    backend.enable_truncation(3)
    backend.enable_padding(length=10)
    path = tmp_path / "tokenizer.json"
    backend.save(str(path))
    assert len(Tokenizer.load(path).encode("hello")) == 5


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\xfe", json.dumps({"version": "1.0"}).encode()], ids=["empty", "no model", "binary", "half"])
def test_a_damaged_file_is_refused_in_one_line(tmp_path, content):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        Tokenizer.load(path)
    assert "is no tokenizer file" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_refused_by_name(tmp_path):
    with pytest.raises(UserError, match=r"nowhere.json"):
        Tokenizer.load(tmp_path / "nowhere.json")
