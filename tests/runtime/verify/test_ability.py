"""Base-ability questions: what a file may hold, what a score is, and when a drop is called forgetting.

References: scipy for the paired test and the softmax; the engine's own one-sample passes for packed ones.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from importlib.resources import files
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mobilefinetuner.runtime.bundle.chat_format import ChatFormat
from mobilefinetuner.runtime.bundle.tokenizer import Tokenizer
from mobilefinetuner.runtime.engine.forward import ForwardSet
from mobilefinetuner.runtime.errors import MftError, UserError
from mobilefinetuner.runtime.verify import ability
from mobilefinetuner.runtime.verify.ability import PairedResult, chance_corrected, choice_log_probabilities, forgetting, load_questions, paired_test

stats = pytest.importorskip("scipy.stats")
special = pytest.importorskip("scipy.special")

SHIPPED = files("mobilefinetuner.templates") / "base_ability.jsonl"
ROW = {
    "id": "one", "kind": "arithmetic", "language": "en", "messages": [{"role": "user", "content": "1 + 1?"}], "choices": ["2", "3", "4"], "answer": 0,
}  # fmt: skip


def written(folder, *rows) -> str:
    path = folder / "questions.jsonl"
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows), encoding="utf-8")
    return str(path)


def differences(seed: int, n: int, shift: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    before = rng.normal(size=n)
    return before, before + rng.normal(shift, 1, n)


def scipy_test(before, after, **options):
    return stats.permutation_test(
        (after, before), lambda x, y, axis: np.mean(x - y, axis=axis), permutation_type="samples", alternative="less", vectorized=True, **options
    )


# The file


def test_the_shipped_questions_are_balanced_over_kinds_and_languages_and_their_right_answers_over_places():
    questions = load_questions(SHIPPED)
    assert set(Counter((question.kind, question.language) for question in questions).values()) == {14}
    assert len(Counter((p.kind, p.language) for p in questions)) == 6
    for kind in ("arithmetic", "common_sense", "reference"):
        places = Counter(question.answer for question in questions if question.kind == kind)
        assert sorted(places) == [0, 1, 2] and max(places.values()) - min(places.values()) <= 2


def test_the_choices_of_a_shipped_question_are_of_similar_length():
    for question in load_questions(SHIPPED):
        lengths = [len(choice) for choice in question.choices]
        assert max(lengths) <= 1.4 * min(lengths), question


def test_shipped_reference_questions_ask_for_what_an_earlier_turn_says():
    for question in load_questions(SHIPPED):
        assert (len(question.messages) >= 3) == (question.kind == "reference"), question


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"kind": "spelling"}, "arithmetic, common_sense, reference"),
        ({"language": "fr"}, "en, zh"),
        ({"answer": 3}, "0 to 2"),
        ({"answer": -1}, "0 to 2"),
        ({"answer": True}, "a whole number is needed"),
        ({"choices": ["2"]}, "at least two"),
        ({"choices": ["2", "2", "3"]}, "each different"),
        ({"choices": ["2", " 3", "4"]}, "blanks around"),
        ({"choices": "234"}, "a list is needed"),
        ({"messages": []}, "user's question"),
        ({"messages": [*ROW["messages"], {"role": "assistant", "content": "2"}]}, "user's question"),
        ({"messages": [{"role": "robot", "content": "?"}]}, "role: 'robot' is not"),
        ({"messages": [{"role": "user", "content": "  "}]}, "blank"),
        ({"messages": [{"role": "user"}]}, "lacks the key 'content'"),
        ({"anser": 1}, "did you mean 'answer'"),
    ],
)
def test_a_bad_row_is_refused_with_its_line_and_reason(tmp_path, change, reason):
    path = written(tmp_path, ROW, {**ROW, "id": "two", **change})
    with pytest.raises(UserError) as caught:
        load_questions(path)
    assert f"{path}:2" in str(caught.value) and reason in str(caught.value)


@pytest.mark.parametrize(
    ("rows", "reason"), [(("{",), "not JSON"), (("[1]",), "an object is needed"), (("",), "no questions"), ((ROW, ROW), "there already")], ids=str
)
def test_a_file_without_usable_rows_is_refused(tmp_path, rows, reason):
    with pytest.raises(UserError, match=reason):
        load_questions(written(tmp_path, *rows))


def test_a_missing_or_undecodable_file_is_refused(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        load_questions(tmp_path / "nothing.jsonl")
    (tmp_path / "latin.jsonl").write_bytes(b'{"id": "\xe9"}')
    with pytest.raises(UserError, match="not UTF-8 at byte 8"):
        load_questions(tmp_path / "latin.jsonl")


# The score


@pytest.fixture
def tiny_parts(tiny):
    """(ForwardSet, tokenizer, chat format) of the tiny model."""
    scenario = json.loads((tiny.bundle / "scenario.json").read_text(encoding="utf-8"))
    return ForwardSet(tiny.engine), Tokenizer.load(tiny.bundle / "tokenizer.json"), ChatFormat.from_dict(scenario["chat"])


def short_questions(folder):
    rows = [{**ROW, "id": str(n), "messages": [{"role": "user", "content": text}]} for n, text in enumerate(("1 + 1?", "Open?", "Gift"))]
    return load_questions(written(folder, *rows))


def test_a_score_is_the_softmax_of_the_choices_likelihoods_whichever_samples_share_a_pass(tiny_parts, tmp_path):
    forwards, tokenizer, chat = tiny_parts
    questions = short_questions(tmp_path)
    found = choice_log_probabilities(forwards, tokenizer, chat, questions)
    for question, values in zip(questions, found, strict=True):
        alone = [-forwards.losses([ability.encode_choice(tokenizer, chat, question, choice)])[0].sum() for choice in question.choices]
        np.testing.assert_allclose(values, special.log_softmax(alone), atol=1e-4)
    again = choice_log_probabilities(forwards, tokenizer, chat, questions)
    assert all((a == b).all() for a, b in zip(found, again, strict=True))


def test_packed_passes_give_each_sample_the_losses_that_it_has_alone(tiny_parts):
    forwards = tiny_parts[0]
    rng = np.random.default_rng(3)
    samples = [
        SimpleNamespace(token_ids=rng.integers(0, 512, n).astype(np.int32), label_mask=np.arange(n, dtype=np.uint8) % 3 % 2)
        for n in (5, 40, 9, 64, 17, 5, 30, 1)
    ]
    for alone, packed in zip(forwards.losses(samples), forwards.packed_losses(samples), strict=True):
        np.testing.assert_allclose(packed, alone, rtol=1e-4, atol=1e-4)


def test_the_labels_are_the_choice_and_its_end_and_nothing_of_the_question(tiny_parts, tmp_path):
    _, tokenizer, chat = tiny_parts
    for question in short_questions(tmp_path):
        encoded = ability.encode_choice(tokenizer, chat, question, "It is 2.")
        assert tokenizer.decode(encoded.token_ids[encoded.label_mask.astype(bool)]) == "It is 2." + chat.assistant_end


def test_a_model_whose_likelihoods_are_not_finite_is_an_error_that_names_the_question(tiny_parts, tmp_path):
    _, tokenizer, chat = tiny_parts
    broken = SimpleNamespace(packed_losses=lambda samples: [np.array([math.nan])] * len(samples))
    with pytest.raises(MftError, match="question 0"):
        choice_log_probabilities(broken, tokenizer, chat, short_questions(tmp_path))


@pytest.mark.parametrize(("right", "expected"), [(1.0, 1.0), (1 / 3, 0.0), (0.0, -0.5), (2 / 3, 0.5)])
def test_certainty_scores_one_and_guessing_scores_nothing(tmp_path, right, expected):
    with np.errstate(divide="ignore"):
        values = np.log([right, (1 - right) / 2, (1 - right) / 2])
    questions = load_questions(written(tmp_path, ROW))
    assert chance_corrected([values], questions)[0] == pytest.approx(expected, abs=1e-12)
    assert ability.accuracy([values], questions) == (right > 1 / 3)


# The paired test


@pytest.mark.parametrize(("n", "shift"), [(2, -1), (3, -2), (5, -0.5), (9, 0.0), (12, -0.8), (16, 0.3)])
def test_the_exact_p_value_is_that_of_scipy(n, shift):
    before, after = differences(n, n, shift)
    expected = scipy_test(before, after, n_resamples=np.inf)
    result = paired_test(before, after)
    assert result.p_value == pytest.approx(expected.pvalue, abs=1e-12)
    assert result.mean_change == pytest.approx(expected.statistic)


def test_equal_and_tied_changes_count_as_scipy_counts_them():
    before, after = np.zeros(6), np.array([-0.1, -0.1, 0.1, 0.0, -0.3, 0.2])
    assert paired_test(before, after).p_value == pytest.approx(scipy_test(before, after, n_resamples=np.inf).pvalue, abs=1e-12)


@pytest.mark.parametrize("shift", [-0.25, -0.1, 0.2])
def test_the_sampled_p_value_is_that_of_scipy_within_three_standard_errors(shift):
    before, after = differences(84, 84, shift)
    result = paired_test(before, after)
    expected = scipy_test(before, after, n_resamples=99_999, rng=np.random.default_rng(1)).pvalue
    assert abs(result.p_value - expected) <= 3 * math.sqrt(expected * (1 - expected) / ability.RESAMPLES) + 1e-4
    assert paired_test(before, after) == result


def test_no_p_value_is_zero_however_large_the_drop():
    assert paired_test(np.zeros(84), np.full(84, -1.0)).p_value == 1 / (1 + ability.RESAMPLES)


@given(st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1)), min_size=1, max_size=10))
def test_worse_and_better_are_mirror_images(pairs):
    before, after = zip(*pairs)
    worse, better = paired_test(before, after), paired_test(after, before)
    assert worse.p_value + better.p_value >= 1 - 1e-9  # what was observed counts on both sides
    assert worse.mean_change == pytest.approx(-better.mean_change)


@pytest.mark.parametrize(("before", "after"), [([], []), ([1.0], [1.0, 2.0]), ([math.nan], [0.0])], ids=["empty", "unequal", "nan"])
def test_scores_that_cannot_be_paired_are_refused(before, after):
    with pytest.raises(ValueError):
        paired_test(before, after)


@pytest.mark.parametrize(
    ("before", "after", "p_value", "verdict"),
    [
        (0.6, 0.6, 1.0, "none"),
        (0.6, 0.1, 0.2, "none"),
        (0.6, 0.5, 0.03, "possible"),
        (0.6, 0.5, 0.0001, "possible"),
        (0.6, 0.2, 0.03, "possible"),
        (0.6, 0.2, 0.001, "clear"),
        (0.6, 0.3, 0.01, "clear"),
        (0.0, -0.2, 0.001, "possible"),
    ],
)
def test_forgetting_is_clear_only_if_it_is_unlikely_by_chance_and_large(before, after, p_value, verdict):
    assert forgetting(PairedResult(before, after, p_value, 84)) == verdict


def test_a_model_that_only_guesses_after_training_has_clearly_forgotten():
    rng = np.random.default_rng(0)
    assert forgetting(paired_test(rng.uniform(-0.4, 1, 84), np.zeros(84))) == "clear"


def test_noise_of_the_size_that_training_makes_is_rarely_called_forgetting():
    rng = np.random.default_rng(11)
    runs = [forgetting(paired_test(np.zeros(60), rng.normal(0, 0.4, 60))) for _ in range(200)]
    assert runs.count("clear") == 0 and runs.count("possible") <= stats.binom.ppf(0.999, 200, ability.POSSIBLE_P_MAX)


@pytest.mark.slow
def test_the_base_model_is_clearly_above_guessing_in_english(real):
    scenario = json.loads((real.bundle / "scenario.json").read_text(encoding="utf-8"))
    questions = [question for question in load_questions(real.bundle / "base_ability.jsonl") if question.language == "en"]
    parts = ForwardSet(real.engine), Tokenizer.load(real.bundle / "tokenizer.json"), ChatFormat.from_dict(scenario["chat"])
    right = ability.accuracy(choice_log_probabilities(*parts, questions), questions) * len(questions)
    assert len(questions) >= 20
    assert stats.binomtest(round(right), len(questions), 1 / 3, alternative="greater").pvalue < 1e-3
