"""The features of a tone on plain examples, their independence of length and count, and how far a new version went."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mobilefinetuner.runtime.measures.tone import NAMES, SCALES, Tone, largest_differences, tone, tone_distance, tone_move

DATA = Path(__file__).parents[2] / "cases" / "data"
CHAT = [
    "hey!! u coming tonight? 😂", "lol no way, im sooo tired haha", "ok see ya at 8 then", "omg did you see that 😍😍",
    "yeah gonna be late, traffic is crazy", "haha cool cool",
    "dunno tbh, ask mia", "nooo 😭 why tho", "k thx!!", "btw dont forget the keys pls",
]  # fmt: skip
MAIL = [
    "Dear Ms Lee, thank you for your enquiry regarding the shipment. We sincerely apologise for the delay. Kind regards",
    "Dear Mr Chen, please find attached the invoice that you requested. Should you require any assistance, please contact us. Thank you very much.",
    "Dear Madam, we regret that the item is no longer available; however, we would be pleased to offer a comparable model. Best wishes",
]
ZH_CHAT = ["哈哈哈好呀，那我八点到哦", "啊真的吗？太棒了吧！！", "嗯嗯我知道啦", "你在干嘛呢", "不要嘛，我好困哦", "亲，在的呢😊"]
ZH_MAIL = [
    "尊敬的王女士：您好！感谢您的来信。您的订单已于昨日发出，请您注意查收。祝您生活愉快！",
    "您好，请问有什么可以帮您？请您提供订单号，我们将尽快为您处理。谢谢您！",
]


def value(name: str, texts: list[str]) -> float:
    return float(tone(texts).values[NAMES.index(name)])


def answers(name: str) -> list[str]:
    lines = (DATA / name).read_text(encoding="utf-8").split("\n")
    return [json.loads(line)["messages"][-1]["content"] for line in lines if line]


@pytest.mark.parametrize(
    ("name", "texts", "expected"),
    [
        ("sentence_length", ["One two three four. One two three four!", "One, two, three, four"], 2),
        ("sentence_length", ["我们周二营业。十点开门。"], np.log2(10 / 2)),
        ("sentence_length", ["It costs 3.50 at shop.example today"], np.log2(7)),
        ("word_length", ["a bcd 12345 efghi"], 3),
        ("exclamations", ["Yes! No. Stop!! Go?"], 0.5),
        ("exclamations", ["好！不好。“真的！”"], 2 / 3),
        ("questions", ["Yes? No.", "是吗？好"], 0.5),
        ("trailing_off", ["well... maybe. Yes.", "嗯…… 好。"], 2 / 5),
        ("open_ends", ["see you at 8", "See you.", "好的", "好的。"], 0.5),
        ("commas", ["a, b, c d e f g h i j"], 20),
        ("other_marks", ["a: (b) c d e f g h i j"], 30),
        ("emoji", ["a b c d e f g h 😂 :)"], 200 / 9),
        ("capitals", ["ABcd", "efgh"], 0.25),
        ("small_starts", ["hello there. Yes. ok", "Fine"], 0.5),
        ("contractions", ["I don't know, it's gonna rain"], 50),
        ("lengthened", ["sooo many wooords are here today ok", "哈哈哈"], 300 / 10),
        ("greetings", ["Hello Ann", "Hi!", "Hidden box", "您好，请问"], 0.75),
        ("closings", ["It is. Kind regards", "Thanks for that note", "好的，谢谢您！", "no"], 0.5),
        ("first_person", ["I gave my box to us", "我们的"], 400 / 9),
        ("second_person", ["you have your box", "您的"], 300 / 6),
        ("formal", ["please could you", "请您"], 400 / 5),
        ("casual", ["yeah ok then", "亲"], 300 / 4),
        ("particles", ["好吧", "行呢好"], 40),
        ("variety", ["a b c d e " * 20], 0.1),
        ("variety", ["a b c"], np.nan),
        ("capitals", ["全是汉字"], np.nan),
        ("small_starts", ["全是汉字"], np.nan),
        ("contractions", ["全是汉字"], np.nan),
        ("word_length", ["全是汉字，只有OK"], np.nan),
        ("particles", ["no Han at all"], np.nan),
    ],
)
def test_a_feature_is_what_its_meaning_says(name: str, texts: list[str], expected: float) -> None:
    assert value(name, texts) == pytest.approx(expected, nan_ok=True)


TEXTS = st.lists(st.text(st.sampled_from("ab cI'.,!?！？。我您吧请😂\n"), max_size=30), min_size=1, max_size=8).filter(
    lambda ts: any("a" in t or "我" in t for t in ts)
)


@given(TEXTS, st.integers(2, 4))
def test_saying_everything_again_changes_no_feature(texts: list[str], times: int) -> None:
    once, again = tone(texts).values, tone(texts * times).values
    comparable = ~np.isnan(once)  # with more tokens the variety may appear
    np.testing.assert_allclose(again[comparable], once[comparable], atol=1e-9)


@pytest.mark.parametrize("texts", [CHAT, MAIL, ZH_CHAT, ZH_MAIL], ids=["chat", "mail", "zh chat", "zh mail"])
def test_longer_texts_of_the_same_sentences_have_the_same_rates(texts: list[str]) -> None:
    """Only what is counted per text, openings and endings, may change when two messages become one."""
    short, long = tone(texts).values, tone([f"{text}\n{text}" for text in texts]).values
    per_text = [NAMES.index(name) for name in ("open_ends", "greetings", "closings", "variety")]
    np.testing.assert_allclose(np.delete(long, per_text), np.delete(short, per_text), atol=1e-9)


def test_the_order_of_the_texts_does_not_matter_but_for_variety() -> None:
    texts = answers("education.en.jsonl")
    mixed = random.Random(1).sample(texts, len(texts))
    np.testing.assert_allclose(tone(mixed).values[:-1], tone(texts).values[:-1])


@pytest.mark.parametrize("n", [20, 40, 100])
def test_two_samples_of_one_voice_are_near_however_small(n: int) -> None:
    """Without taking off what chance explains, they are 0.6, 0.4 and 0.25 apart."""
    draw = random.Random(n)
    samples = [draw.sample(answers("education.en.jsonl"), 2 * n) for _ in range(5)]
    assert np.mean([tone_distance(tone(sample[:n]), tone(sample[n:])) for sample in samples]) < 0.45


def test_other_voices_are_far_and_their_largest_differences_say_how() -> None:
    chat, mail, shop = tone(CHAT), tone(MAIL), tone([text for text in answers("customer_service_shop.jsonl") if text.isascii()])
    assert tone_distance(shop, mail) > 1 and tone_distance(shop, chat) > 1 and tone_distance(chat, mail) > 1.3
    assert {name for name, _ in largest_differences(chat, mail, 4)} <= {
        "casual",
        "formal",
        "greetings",
        "closings",
        "emoji",
        "lengthened",
        "contractions",
    }
    assert dict(largest_differences(chat, mail, 21))["formal"] > 0 > dict(largest_differences(chat, mail, 21))["casual"]
    assert tone_distance(tone(ZH_CHAT), tone(ZH_MAIL)) > 1


def test_the_share_of_the_way_is_one_on_arrival_none_at_the_start_and_negative_on_the_way_back() -> None:
    shop, edu, mail = (tone(texts) for texts in (answers("customer_service_shop.jsonl"), answers("education.en.jsonl"), MAIL * 5))
    assert tone_move(shop, mail, mail).share == 1
    assert tone_move(shop, shop, mail).share == 0
    assert tone_move(mail, mail, mail).share is None
    assert tone_move(shop, tone(CHAT), mail).share < 0 < tone_move(tone(CHAT), edu, mail).share


def test_a_version_that_speaks_half_of_the_time_like_the_target_is_on_its_way() -> None:
    old, target = answers("tech_support_raw.en.jsonl")[:60], MAIL * 20
    shares = [tone_move(tone(old), tone(old[: 60 - n] + target[:n]), tone(target)).share for n in (0, 20, 40, 60)]
    assert shares == sorted(shares) and shares[0] == 0 and shares[-1] == 1


def test_distances_count_only_what_both_can_show_and_no_habit_for_all() -> None:
    zeros = np.zeros(len(NAMES))
    far = np.where(np.arange(len(NAMES)) == 3, 1000 * SCALES, 0)
    assert tone_distance(Tone(zeros, zeros), Tone(far, zeros)) == pytest.approx(3 / np.sqrt(len(NAMES)))
    unknown = np.where(np.arange(len(NAMES)) == 3, np.nan, 0)
    assert tone_distance(Tone(zeros, zeros), Tone(unknown, zeros)) == 0
    with pytest.raises(ValueError, match="no feature in common"):
        tone_distance(Tone(zeros, zeros), Tone(zeros * np.nan, zeros))


def test_standard_errors_shrink_with_the_root_of_the_count() -> None:
    texts = answers("education.en.jsonl")
    few, many = tone(texts[:80]).errors, tone(texts[:320]).errors
    assert 1.3 < np.median(few[few > 0] / many[few > 0]) < 3
    assert not tone(["One text alone."]).errors.any()


@pytest.mark.parametrize("texts", [[], ["", " ", "..."]], ids=["none", "blank"])
def test_a_tone_needs_a_word(texts: list[str]) -> None:
    with pytest.raises(ValueError, match="at least one text"):
        tone(texts)
