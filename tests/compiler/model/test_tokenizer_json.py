"""tokenizer.json from a GGUF's vocabulary, against golden encodings and, where installed, transformers itself.

The golden encodings are what transformers and GPT-2's published algorithm agree on (tests/oracles/tokenizer_golden.py).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mobilefinetuner.compiler.model.tokenizer_json import PRE_TOKENIZERS, control_tokens, tokenizer_json
from mobilefinetuner.runtime.bundle.tokenizer import Tokenizer
from mobilefinetuner.runtime.errors import UserError
from mobilefinetuner.runtime.gguf.file import GgufFile

from tests.support.tiny_vocabulary import tiny_metadata

GOLDEN = Path(__file__).parents[2] / "cases" / "tokenizer" / "smollm2_golden.jsonl"


def golden() -> list[dict]:
    return [json.loads(line) for line in GOLDEN.read_text(encoding="ascii").split("\n") if line]


@pytest.fixture(scope="module")
def smollm2(smollm2_path) -> Tokenizer:
    return Tokenizer.from_json(tokenizer_json(GgufFile.open(smollm2_path).metadata, str(smollm2_path)))


def test_golden_encodings_are_at_least_2000_distinct_strings_of_every_kind():
    rows = golden()
    assert len({row["text"] for row in rows}) >= 2000
    kinds = {row["kind"] for row in rows}
    assert {"real", "english", "chinese", "code", "emoji", "whitespace", "byte noise", "numbers", "control", "scripts"} <= kinds


def test_smollm2_encodes_every_golden_string_as_transformers_does(smollm2):
    wrong = [row["text"] for row in golden() if smollm2.encode(row["text"]) != row["ids"]]
    assert wrong == []


def test_text_without_lost_bytes_survives_encoding_and_decoding(smollm2):
    """SmolLM2 has no token for some control bytes and for bytes F1 and F2; everything else comes back."""
    rows = [row for row in golden() if row["kind"] not in ("byte noise", "latin-1 noise")]
    assert [row["text"] for row in rows if smollm2.decode(row["ids"]) != row["text"]] == []


def test_the_same_metadata_gives_the_same_bytes(smollm2_path):
    first = tokenizer_json(GgufFile.open(smollm2_path).metadata, "a")
    assert first == tokenizer_json(GgufFile.open(smollm2_path).metadata, "b")


@pytest.mark.oracle
def test_smollm2_agrees_with_transformers_live_on_the_whole_corpus(smollm2, smollm2_path):
    pytest.importorskip("transformers")
    from tests.oracles.tokenizer_corpus import corpus
    from tests.oracles.tokenizer_golden import transformers_tokenizer

    reference = transformers_tokenizer(smollm2_path)
    pairs = corpus(seed=7) + corpus()
    assert len({text for _, text in pairs}) > 4000
    assert [text for _, text in pairs if smollm2.encode(text) != reference(text, add_special_tokens=False).input_ids] == []


@pytest.mark.oracle
@pytest.mark.parametrize("pre", ["gpt-2", "llama-bpe", "qwen2"])
def test_a_pre_tokenizer_cuts_as_in_transformers(pre, smollm2_path):
    """Same vocabulary, other pre-tokenizer. transformers' GGUF loader knows neither NFC nor ignore_merges: texts are NFC,
    and the pieces are compared instead of the tokens."""
    pytest.importorskip("transformers")
    import unicodedata

    import tokenizers
    from transformers.integrations.gguf import convert_gguf_tokenizer, get_gguf_tokenizer

    _, fields, _ = get_gguf_tokenizer(str(smollm2_path))
    reference, _ = convert_gguf_tokenizer("llama", {**fields, "pre_tokenizer_type": pre})
    metadata = {**GgufFile.open(smollm2_path).metadata, "tokenizer.ggml.pre": pre}
    ours = tokenizers.Tokenizer.from_str(tokenizer_json(metadata, "m").decode())
    for row in golden():
        text = unicodedata.normalize("NFC", row["text"])
        assert ours.pre_tokenizer.pre_tokenize_str(text) == reference.pre_tokenizer.pre_tokenize_str(text)


def test_smollm_splits_every_digit_and_gpt2_does_not():
    split = Tokenizer.from_json(tokenizer_json(tiny_metadata(), "m"))
    whole = Tokenizer.from_json(tokenizer_json(tiny_metadata(pre="gpt-2"), "m"))
    assert [split.decode([index]) for index in split.encode("123")] == ["1", "2", "3"]
    assert [whole.decode([index]) for index in whole.encode("123")] == ["123"]


def test_user_defined_tokens_are_matched_whole_but_are_not_control_tokens():
    tokenizer = Tokenizer.from_json(tokenizer_json(tiny_metadata(control=("<end>",), user_defined=("<think>",)), "m"))
    assert tokenizer.encode("<think><end>") == [1, 0]
    assert tokenizer.special_tokens == {"<end>": 0}


def test_llama3_begins_with_bos_unless_the_file_says_otherwise():
    fields = {"pre": "llama-bpe", "bos_token_id": 0}
    assert control_tokens(tiny_metadata(("<bos>",), **fields), "m").add_bos
    assert not control_tokens(tiny_metadata(("<bos>",), add_bos_token=False, **fields), "m").add_bos
    assert not control_tokens(tiny_metadata(("<bos>",), bos_token_id=0), "m").add_bos


def damaged(**fields) -> dict:
    return {**tiny_metadata(), **{f"tokenizer.ggml.{name}": value for name, value in fields.items()}}


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        pytest.param(damaged(pre="mystery"), ["'mystery'", "smollm", "qwen2"], id="unknown pre-tokenizer"),
        pytest.param({k: v for k, v in tiny_metadata().items() if not k.endswith(".pre")}, ["None", "smollm"], id="no pre-tokenizer"),
        pytest.param(damaged(model="llama"), ["'llama'", "gpt2"], id="sentencepiece"),
        pytest.param(damaged(tokens=[]), ["no vocabulary"], id="no tokens"),
        pytest.param(damaged(tokens=["a", "b", "a"]), ["'a' twice"], id="token twice"),
        pytest.param(damaged(token_type=[1]), ["1 token types"], id="too few types"),
        pytest.param(damaged(merges=["q"]), ["merge 0"], id="merge without a pair"),
        pytest.param(damaged(merges=["Ġ t", "h xyz"]), ["merge 1", "'h xyz'"], id="merge of unknown tokens"),
        pytest.param(damaged(merges=[]), ["no merges"], id="no merges"),
    ],
)
def test_a_vocabulary_that_cannot_be_right_is_refused_with_its_reason(metadata, words):
    with pytest.raises(UserError) as caught:
        tokenizer_json(metadata, "model.gguf")
    assert str(caught.value).startswith("model.gguf: ")
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def test_every_known_pre_tokenizer_loads():
    for name in PRE_TOKENIZERS:
        tokenizer = Tokenizer.from_json(tokenizer_json(tiny_metadata(pre=name), "m"))
        assert tokenizer.decode(tokenizer.encode("the inn, 123!\n\n 你好")) == "the inn, 123!\n\n 你好"
