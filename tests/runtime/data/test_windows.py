"""Conversations cut into windows: nothing lost, nothing learned twice.

The oracle is the whole conversation encoded in one piece: the learned tokens of all windows, put together, are its learned tokens.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mobilefinetuner.runtime.data.text.sentences import sentence_ends
from mobilefinetuner.runtime.data.windows import Encoded, Splitter
from mobilefinetuner.runtime.errors import UserError
from mobilefinetuner.runtime.message import Conversation, Message

from tests.support.chatml import byte_tokenizer, chatml, scenario

MERGES = (("Ġ", "t"), ("h", "e"), ("Ġt", "he"), (".", "Ġ"), ("a", "b"), ("Ċ", "Ċ"), ("!", "Ġ"))
TOKENIZER, CHAT = byte_tokenizer(MERGES), chatml()


def _splitter(window_tokens: int, **settings_: object) -> Splitter:
    return Splitter(scenario(window_tokens, **settings_), TOKENIZER, CHAT)


def _conversation(*texts: str, system: str | None = None) -> Conversation:
    messages = [Message(("user", "assistant")[n % 2], text) for n, text in enumerate(texts)]
    return Conversation(tuple([Message("system", system)] if system is not None else []) + tuple(messages))


def _note(text: str, **metadata: str) -> Conversation:
    return Conversation((Message("assistant", text, {"note": True}),), metadata)


def _learned(samples: list[Encoded]) -> list[int]:
    return [token for sample in samples for token in sample.token_ids[sample.label_mask == 1].tolist()]


def _text(sample: Encoded, learned: bool = False) -> str:
    return TOKENIZER.decode(sample.token_ids[sample.label_mask == 1] if learned else sample.token_ids)


def test_short_conversation_is_one_sample_of_the_whole_text() -> None:
    (sample,) = _splitter(200).samples(_conversation("Q?", "A.", "R?", "B."))
    assert _text(sample) == (
        "<|im_start|>user\nQ?<|im_end|>\n<|im_start|>assistant\nA.<|im_end|>\n<|im_start|>user\nR?<|im_end|>\n<|im_start|>assistant\nB.<|im_end|>\n"
    )
    assert _text(sample, learned=True) == "A.<|im_end|>B.<|im_end|>"


def test_long_dialogue_is_cut_before_user_turns_and_every_piece_keeps_the_system_turn() -> None:
    texts = [f"{kind} number {n} is here." for n in range(12) for kind in ("Question", "Answer")]
    samples = _splitter(220).samples(_conversation(*texts, system="Be brief."))
    assert len(samples) > 2
    for sample in samples:
        assert len(sample.token_ids) <= 220
        assert _text(sample).startswith("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nQuestion")
    assert _text(Encoded(np.array(_learned(samples)), np.ones(0)), False) == "".join(f"{text}<|im_end|>" for text in texts[1::2])


def test_pieces_of_a_dialogue_overlap_by_whole_exchanges_that_are_not_learned_again() -> None:
    texts = [text for n in range(30) for text in (f"Q{n}?", f"A{n}.")]
    samples = _splitter(400).samples(_conversation(*texts))
    for before, after in itertools.pairwise(samples):
        context = TOKENIZER.decode(after.token_ids[: np.flatnonzero(after.label_mask)[0]])
        last = _text(before, learned=True).split("<|im_end|>")[-2]
        assert last in context and last not in _text(after, learned=True)
        assert context.count("assistant") >= 2


def test_overlap_is_at_most_the_share_with_its_slack_and_mostly_at_least_a_tenth() -> None:
    text = "".join(f"This is sentence {n}. " for n in range(400))
    samples = _splitter(600).samples(_note(text))
    shares = [(first_label - first_context) / 600 for first_label, first_context in (_context(sample) for sample in samples[1:])]
    assert all(0.10 <= share <= 0.15 for share in shares), shares


def _context(sample: Encoded) -> tuple[int, int]:
    header = len(TOKENIZER.encode("<|im_start|>user\nWrite a text the way I write.<|im_end|>\n<|im_start|>assistant\n"))
    return int(np.flatnonzero(sample.label_mask)[0]), header


def test_note_is_cut_only_at_sentence_ends() -> None:
    text = "".join(f"Mr. Lee paid {n}.50 for it. 他说：“好。”然后走了！" for n in range(40))
    samples = _splitter(300).samples(_note(text))
    ends = set(sentence_ends(text))
    position = 0
    for sample in samples:
        piece = _text(sample, learned=True).removesuffix("<|im_end|>")
        assert text.startswith(piece, position)
        position += len(piece)
        assert len(text[:position].rstrip(" ")) in ends  # the blank behind a full stop may be of its token
    assert position == len(text)


def test_sentence_longer_than_the_window_is_cut_at_clause_marks_and_a_clause_at_tokens() -> None:
    clauses = "".join(f"part {n} of it, " for n in range(60)) + "x" * 500 + "."
    samples = _splitter(200).samples(_note(clauses))
    assert all(len(sample.token_ids) <= 200 for sample in samples)
    pieces = [_text(sample, learned=True) for sample in samples]
    assert "".join(pieces) == clauses + "<|im_end|>"
    assert sum(piece.rstrip().endswith(",") for piece in pieces) >= 5


def test_only_the_last_part_of_an_answer_ends_its_turn() -> None:
    samples = _splitter(150).samples(_conversation("Tell me.", "A sentence. " * 40))
    assert len(samples) > 2
    assert [_text(sample).count("<|im_end|>") for sample in samples] == [1] * (len(samples) - 1) + [2]
    assert all(_text(sample).startswith("<|im_start|>user\nTell me.<|im_end|>\n<|im_start|>assistant\n") for sample in samples)


def test_prompt_that_leaves_no_room_keeps_its_end() -> None:
    splitter = _splitter(200)
    samples = splitter.samples(_conversation("An early sentence. " * 30 + "The last question?", "The answer."))
    assert splitter.prompts_trimmed == 1
    assert "The last question?" in _text(samples[0]) and _text(samples[0], learned=True) == "The answer.<|im_end|>"
    assert len(samples[0].token_ids) <= 200


def test_note_answers_the_scenarios_prompt_with_title_and_author_filled_in() -> None:
    rules = {"note_prompt_titled": "Write {title} by {author}.", "note_prompt_untitled": "Write."}
    splitter = _splitter(200, rules=rules)
    assert _text(splitter.samples(_note("Text.", title="Moon {author}", author="Li"))[0]).startswith("<|im_start|>user\nWrite Moon Li by Li.")
    assert _text(splitter.samples(_note("Text."))[0]).startswith("<|im_start|>user\nWrite.<|im_end|>")


def test_turns_behind_the_last_answer_are_left_out_and_without_an_answer_there_is_no_sample() -> None:
    assert "Bye" not in _text(_splitter(200).samples(_conversation("Q?", "A.", "Bye"))[0])
    assert _splitter(200).samples(Conversation((Message("user", "Q"),))) == []


def test_answer_marked_as_not_trained_is_context() -> None:
    messages = (Message("user", "Q"), Message("assistant", "wrong", {"train": False}), Message("user", "R"), Message("assistant", "right"))
    (sample,) = _splitter(200).samples(Conversation(messages))
    assert "wrong" in _text(sample) and _text(sample, learned=True) == "right<|im_end|>"


def test_scenarios_system_prompt_is_used_where_the_record_has_none() -> None:
    splitter = _splitter(200, system_prompt="From the scenario.")
    assert _text(splitter.samples(_conversation("Q", "A"))[0]).startswith("<|im_start|>system\nFrom the scenario.<|im_end|>")
    assert "From the scenario" not in _text(splitter.samples(_conversation("Q", "A", system="Own."))[0])


def test_system_prompt_that_fills_the_window_is_refused() -> None:
    with pytest.raises(UserError, match=r"system_prompt: takes .* of the window's 64 tokens"):
        _splitter(64, system_prompt="x" * 60)


def test_templates_without_system_or_tool_turns_get_their_texts_in_the_user_turn() -> None:
    splitter = Splitter(scenario(300), TOKENIZER, chatml(("user", "assistant"), alternating=True))
    messages = (
        Message("system", "S"),
        Message("user", "Q"),
        Message("tool", "f(1)", {"call": True}),
        Message("tool", "2"),
        Message("assistant", "A"),
    )
    (sample,) = splitter.samples(Conversation(messages))
    assert _text(sample).startswith("<|im_start|>user\nS\n\nQ\n[tool call] f(1)\n[tool result] 2<|im_end|>\n<|im_start|>assistant\nA<|im_end|>")


def test_templates_that_want_alternating_turns_get_them() -> None:
    splitter = Splitter(scenario(300), TOKENIZER, chatml(("user", "assistant"), alternating=True))
    messages = (Message("assistant", "Anybody?"), Message("user", "a"), Message("user", "b"), Message("assistant", "c"), Message("assistant", "d"))
    (sample,) = splitter.samples(Conversation(messages))
    assert _text(sample) == "<|im_start|>user\na\nb<|im_end|>\n<|im_start|>assistant\nc\nd<|im_end|>\n"


WORDS = st.sampled_from(["the ", "ab", "x", ". ", "! ", "。", "，", "好", "🙂", "\n", ", ", "3.5", "\n\n", " "])
TEXTS = st.lists(WORDS, min_size=1, max_size=60).map("".join)


def _check(splitter: Splitter, conversation: Conversation, window_tokens: int) -> None:
    samples = splitter.samples(conversation)
    assert all(len(sample.token_ids) <= window_tokens and sample.label_mask.any() and not sample.label_mask[0] for sample in samples)
    messages = splitter.prepared(conversation)
    learned: list[int] = []
    for number, message in enumerate(messages):
        if message.role == "assistant":
            whole = CHAT.encode(TOKENIZER, messages[: number + 1], label_turns=[number])
            learned += whole.token_ids[whole.label_mask == 1].tolist()
    assert _learned(samples) == learned


@settings(max_examples=250, deadline=None)
@given(st.lists(TEXTS, min_size=2, max_size=12), st.integers(96, 400), st.sampled_from([0.0, 0.1, 0.125, 0.3]), st.none() | st.just("Sys."))
def test_no_learned_token_of_a_dialogue_is_lost_or_learned_twice(texts: list[str], window: int, overlap: float, system: str | None) -> None:
    _check(_splitter(window, overlap_share=overlap), _conversation(*texts, system=system), window)


@settings(max_examples=250, deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=20).map("".join), st.integers(100, 300), st.sampled_from([0.0, 0.125, 0.5]))
def test_no_token_of_a_note_is_lost_or_learned_twice(text: str, window: int, overlap: float) -> None:
    text = text.lstrip("\n") or "x"  # a line break grows together with the one that opens the turn, which is never asked for
    splitter = _splitter(window, overlap_share=overlap)
    _check(splitter, _note(text), window)
    assert _learned(splitter.samples(_note(text)))[:-1] == TOKENIZER.encode(text)


@settings(max_examples=60, deadline=None)
@given(st.lists(TEXTS, min_size=2, max_size=30), st.integers(150, 300))
def test_every_token_of_a_dialogue_that_was_not_trimmed_is_read(texts: list[str], window: int) -> None:
    splitter = _splitter(window)
    samples = splitter.samples(_conversation(*texts))
    if splitter.prompts_trimmed == 0 and samples:
        read = "".join(_text(sample) for sample in samples)
        assert all(text in read or len(TOKENIZER.encode(text)) > window // 3 for text in texts[: len(texts) // 2 * 2])
