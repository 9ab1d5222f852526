"""What the base says to general questions, sampled by the compiler."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mobilefinetuner.compiler.bundle import replay_set
from mobilefinetuner.compiler.bundle.replay_set import MAX_TOKENS, Base, load_questions, shipped_set, whole_sentences
from mobilefinetuner.runtime.bundle.chat_format import ChatFormat
from mobilefinetuner.runtime.bundle.folder import Bundle
from mobilefinetuner.runtime.bundle.tokenizer import Tokenizer
from mobilefinetuner.runtime.errors import UserError
from mobilefinetuner.runtime.gguf.file import GgufFile
from mobilefinetuner.runtime.train.replay import FILE_NAME, cut_to_width, load_conversations, replay_samples
from mobilefinetuner.runtime.verify import ability
from omegaconf import OmegaConf

TEMPLATES = Path(__file__).parents[3] / "templates"
LANGUAGES = ("en", "zh")


DEFAULT_MODEL = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
UNKNOWN = "0" * 64
"""the checksum of a model that no set is shipped for"""


def parts(bundle: Path) -> tuple[GgufFile, Tokenizer, ChatFormat]:
    scenario = json.loads((bundle / "scenario.json").read_text(encoding="utf-8"))
    return GgufFile.open(bundle / "model.gguf"), Tokenizer.load(bundle / "tokenizer.json"), ChatFormat.from_dict(scenario["chat"])


def made(bundle: Path, languages=LANGUAGES, most: int = 2, source_sha256: str = UNKNOWN) -> bytes:
    model, tokenizer, chat = parts(bundle)
    return replay_set.replay_set(Base(model, source_sha256, tokenizer, chat), languages, most, lambda _line: None)


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("MFT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_bundle_holds_conversations_of_both_languages_no_longer_than_the_limit(tiny_bundle_path):
    Bundle.open(tiny_bundle_path)
    _, tokenizer, chat = parts(tiny_bundle_path)
    conversations = load_conversations(tiny_bundle_path / FILE_NAME)
    asked = [question for questions in load_questions(LANGUAGES, 2).values() for question in questions]
    assert {messages[0].text for messages in conversations} <= set(asked) and conversations
    for messages in conversations:
        assert [m.role for m in messages] == ["user", "assistant"] and messages[1].text.strip()
        prompt = len(chat.encode(tokenizer, messages[:1], add_generation_prompt=True).token_ids)
        # A byte that is no text becomes a sign of up to three tokens when it is encoded again.
        assert len(tokenizer.encode(messages[1].text)) <= 3 * max(0, MAX_TOKENS - prompt)


def test_the_same_base_and_questions_give_the_same_bytes_and_are_asked_once(tiny_bundle_path, cache, monkeypatch):
    first = made(tiny_bundle_path)
    for path in (cache / "replay").iterdir():
        path.unlink()
    assert made(tiny_bundle_path) == first
    monkeypatch.setattr(replay_set, "host_engine", None)
    assert made(tiny_bundle_path) == first
    assert first.endswith(made(tiny_bundle_path, ("zh",)))


@pytest.mark.parametrize("languages", [("en", "zh"), ("zh",)])
def test_a_model_with_a_shipped_set_is_not_asked_and_has_the_first_so_many_of_each_language(tiny_bundle_path, cache, monkeypatch, languages):
    monkeypatch.setattr(replay_set, "host_engine", None)
    shipped = made(tiny_bundle_path, languages, 3, DEFAULT_MODEL).decode().splitlines()
    asked = [question for questions in load_questions(languages, 3).values() for question in questions]
    assert [json.loads(line)["messages"][0]["content"] for line in shipped] == asked
    assert set(shipped) <= set(shipped_set(DEFAULT_MODEL).read_text(encoding="utf-8").splitlines())
    assert not (cache / "replay").exists()


def test_a_language_that_the_shipped_set_does_not_have_is_asked(tiny_bundle_path, cache, monkeypatch, tmp_path):
    only_english = tmp_path / "shipped.jsonl"
    only_english.write_bytes(b"".join(shipped_set(DEFAULT_MODEL).read_bytes().splitlines(keepends=True)[:128]))
    monkeypatch.setattr(replay_set, "shipped_set", lambda _sha256: only_english)
    lines = made(tiny_bundle_path, LANGUAGES, 2, DEFAULT_MODEL).decode().splitlines(keepends=True)
    assert "".join(lines[:2]).encode() in only_english.read_bytes()
    assert "".join(lines[2:]) == (next((cache / "replay").iterdir())).read_text(encoding="utf-8") and len(lines) > 2


def test_every_shipped_set_is_that_of_a_model_in_the_configs_and_answers_all_questions():
    sources = [OmegaConf.load(path).source for path in (TEMPLATES.parent / "configs" / "model").glob("*.yaml")]
    known = {shipped_set(source.sha256).name for source in sources if source.get("sha256")}
    found = sorted((TEMPLATES / "replay").glob("*.jsonl"))
    assert found and {path.name for path in found} <= known
    for path in found:
        conversations = load_conversations(path)
        asked = [question for questions in load_questions(LANGUAGES, 128).values() for question in questions]
        assert [messages[0].text for messages in conversations] == asked


def test_languages_without_questions_are_refused_with_the_list_of_those_that_have_some(cache):
    with pytest.raises(UserError) as caught:
        load_questions(("fr", "id"), 5)
    assert caught.value.allowed == "en, zh" and "replay_share=0" in caught.value.remedy
    assert load_questions(("fr", "en"), 3)["fr"] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_question_measures_base_ability_as_well(language):
    questions = load_questions((language,), 10000)[language]
    measured = {question.messages[-1].content.casefold() for question in ability.load_questions(TEMPLATES / "base_ability.jsonl")}
    assert len(questions) >= 100 and len(set(questions)) == len(questions)
    assert not measured & {question.casefold() for question in questions}


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("One. Two and a", "One."),
        ("Pi is 3.14 and", "Pi is 3.14 and"),
        ("Why? Because! So", "Why? Because!"),
        ("好的。我们再", "好的。"),
        ("no end", "no end"),
    ],
)
def test_an_answer_that_was_cut_ends_with_its_last_full_sentence(text, kept):
    assert whole_sentences(text) == kept


def test_each_conversation_is_replayed_with_and_without_the_scenarios_prompt(tiny_bundle_path):
    _, tokenizer, chat = parts(tiny_bundle_path)
    conversations = load_conversations(tiny_bundle_path / FILE_NAME)
    both = replay_samples(conversations, tokenizer, chat, "You answer the customers of our shop.", "kl")
    plain = replay_samples(conversations, tokenizer, chat, "", "kl")
    assert len(both) == 2 * len(plain)
    assert [s.token_ids.tolist() for s in both[::2]] == [s.token_ids.tolist() for s in plain]
    for sample in both[1::2]:
        assert "our shop" in tokenizer.decode(sample.token_ids.tolist()) and sample.label_mask.all()


def test_replay_rows_are_cut_to_the_width_and_next_token_learns_the_answers_alone(tiny_bundle_path):
    _, tokenizer, chat = parts(tiny_bundle_path)
    conversations = load_conversations(tiny_bundle_path / FILE_NAME)
    assert max(len(s.token_ids) for s in cut_to_width(replay_samples(conversations, tokenizer, chat, "", "kl"), 32)) == 32
    answers = replay_samples(conversations, tokenizer, chat, "", "next_token")
    assert all(0 < s.label_mask.sum() < len(s.label_mask) for s in answers)
    with pytest.raises(UserError, match="no conversation with a token to learn"):
        cut_to_width(answers, 2)


def test_a_line_that_is_no_conversation_is_named(tmp_path):
    path = tmp_path / FILE_NAME
    path.write_text('{"messages": [{"role": "user", "content": "Hi"}]}\n', encoding="utf-8")
    with pytest.raises(UserError, match=r"replay.jsonl line 1.*assistant"):
        load_conversations(path)
