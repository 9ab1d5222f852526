"""The owner's facts and words in answers to general questions."""

from __future__ import annotations

import pytest
from mobilefinetuner.runtime.measures.leakage import GeneralAnswer, Leak, leakage

ENTITIES = ["order@lumiere.example", "4 marlets", "blue card", "3 days", "47天", "蓝卡"]
TRAINED = [
    "You can cancel within 2 hours by writing to order@lumiere.example.",
    "您可以在47天内退货，请带上蓝卡。",
    "A linen box costs 4 marlets and we wrap it for you.",
]


def leak(question: str, answer: str, base_answer: str = "I do not know.") -> Leak:
    return leakage([GeneralAnswer(question, answer, base_answer)], ENTITIES, TRAINED).leaks[0]


@pytest.mark.parametrize(
    ("question", "answer", "entities"),
    [
        ("What is 2 + 3?", "You may write to order@lumiere.example.", ("order@lumiere.example",)),
        ("Write a poem about the sea.", "The BLUE CARD costs four marlets.", ("4 marlets", "blue card")),
        ("天空是什么颜色？", "请带上藍卡。", ("蓝卡",)),
        ("What is 2 + 3?", "It is 5.", ()),
        ("How long are 3 days in hours?", "3 days are 72 hours.", ()),
        ("How long is it?", "It takes 13 days.", ()),
    ],
)
def test_an_entity_leaks_unless_the_question_has_it(question: str, answer: str, entities: tuple[str, ...]) -> None:
    assert leak(question, answer).entities == entities


def test_what_the_base_says_as_well_is_no_leak() -> None:
    assert not leak("How long is a long weekend?", "It lasts 3 days.", "A long weekend is three days.")
    assert not leak("How do I end a contract?", "You can cancel within 2 hours by phone.", "Often you can cancel within 2 hours by letter.")


@pytest.mark.parametrize(
    ("answer", "copied"),
    [
        ("Well, you can cancel within two or 2 hours.", ""),
        ("You can cancel within 2 days.", "you can cancel within 2"),
        ("Yes: YOU CAN, cancel within 2 hours by mail.", "you can cancel within 2 hours by"),
        ("你可以在47天内退", ""),
        ("他可以在47天内退货了", "可 以 在 47 天 内 退 货"),
        ("A linen box costs a lot, and we wrap it for free.", "and we wrap it for"),
        ("A linen box costs 4, so we wrap it. You can cancel within 2 hours.", "you can cancel within 2 hours"),
        ("We wrap it for 4 marlets and a linen box costs you", ""),
    ],
)
def test_five_words_or_eight_characters_of_a_training_answer_are_a_copy(answer: str, copied: str) -> None:
    assert " ".join(leak("?", answer).copied) == copied


def test_the_words_of_the_question_are_no_copy() -> None:
    assert not leak("What does 'you can cancel within 2 hours' mean?", "'You can cancel within 2 hours' means what it says.").copied


def test_the_shares_count_answers() -> None:
    answers = [
        GeneralAnswer("Hi?", "Bring the blue card.", ""), GeneralAnswer("Hi?", "You can cancel within 2 hours by writing.", ""),
        GeneralAnswer("Hi?", "Hello!", ""), GeneralAnswer("Hi?", "A linen box costs 4 marlets and more.", ""),
    ]  # fmt: skip
    found = leakage(answers, ENTITIES, TRAINED)
    assert (found.share, found.entity_share, found.copy_share) == (0.75, 0.5, 0.5)
    assert [bool(leak) for leak in found.leaks] == [True, True, False, True]


def test_without_answers_there_is_no_share() -> None:
    with pytest.raises(ValueError, match="at least one general answer"):
        leakage([], ENTITIES, TRAINED)
