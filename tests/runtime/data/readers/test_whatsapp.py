"""WhatsApp text exports of many phones: the same chat in each phone's way of writing dates."""

from __future__ import annotations

import calendar
from pathlib import Path

import pytest
from mobilefinetuner.runtime.data.files.encoding import Encoding
from mobilefinetuner.runtime.data.readers.format import FileToRead, ReadOptions
from mobilefinetuner.runtime.data.readers.whatsapp import FORMAT, DateOrder, date_order, parse_header
from mobilefinetuner.runtime.data.reading import sources_under
from mobilefinetuner.runtime.errors import UserError

from tests.support.ingesting import format_of, read, take_in, turns

# 2024-03-05 21:07 and 2024-03-18 09:30 as phones write them: iPhone in brackets, Android with a dash.
LOCALES = {
    "en-US android": ("3/5/24, 9:07 PM - ", "3/18/24, 9:30 AM - "),
    "en-US android narrow space": ("3/5/24, 9:07\u202fPM - ", "3/18/24, 9:30\u202fAM - "),
    "en-US iphone": ("[3/5/24, 9:07:00 PM] ", "[3/18/24, 9:30:00 AM] "),
    "en-GB android": ("05/03/2024, 21:07 - ", "18/03/2024, 09:30 - "),
    "en-GB iphone": ("[05/03/2024, 21:07:00] ", "[18/03/2024, 09:30:00] "),
    "en-AU android": ("5/3/2024, 9:07 pm - ", "18/3/2024, 9:30 am - "),
    "en-ZA android": ("2024/03/05, 21:07 - ", "2024/03/18, 09:30 - "),
    "de android": ("05.03.24, 21:07 - ", "18.03.24, 09:30 - "),
    "de iphone": ("[05.03.24, 21:07:00] ", "[18.03.24, 09:30:00] "),
    "fr android": ("05/03/2024 21:07 - ", "18/03/2024 09:30 - "),
    "fr android older": ("05/03/2024 à 21:07 - ", "18/03/2024 à 09:30 - "),
    "es android 12h": ("5/3/24, 9:07 p.\u00a0m. - ", "18/3/24, 9:30 a.\u00a0m. - "),
    "it iphone": ("[05/03/24, 21:07:00] ", "[18/03/24, 09:30:00] "),
    "pt-BR android": ("05/03/2024 21:07 - ", "18/03/2024 09:30 - "),
    "nl iphone": ("[05-03-2024 21:07:00] ", "[18-03-2024 09:30:00] "),
    "sv android": ("2024-03-05 21:07 - ", "2024-03-18 09:30 - "),
    "fi android": ("5.3.2024 klo 21.07 - ", "18.3.2024 klo 9.30 - "),
    "da android": ("05.03.2024 21.07 - ", "18.03.2024 09.30 - "),
    "cs android": ("05.03.24 21:07 - ", "18.03.24 9:30 - "),
    "hu iphone": ("[2024. 03. 05. 21:07:00] ", "[2024. 03. 18. 9:30:00] "),
    "ru android": ("05.03.2024, 21:07 - ", "18.03.2024, 09:30 - "),
    "tr android": ("5.03.2024 21:07 - ", "18.03.2024 09:30 - "),
    "zh-CN android": ("2024/3/5 下午9:07 - ", "2024/3/18 上午9:30 - "),
    "zh-CN iphone": ("[2024/3/5 21:07:00] ", "[2024/3/18 09:30:00] "),
    "zh-TW iphone": ("[2024/3/5 晚上9:07:00] ", "[2024/3/18 上午9:30:00] "),
    "ja iphone": ("[2024/03/05 21:07:00] ", "[2024/03/18 9:30:00] "),
    "ko android": ("2024. 3. 5. 오후 9:07 - ", "2024. 3. 18. 오전 9:30 - "),
    "hi android": ("05/03/24, 9:07 pm - ", "18/03/24, 9:30 am - "),
    "ar android": ("٥‏/٣‏/٢٠٢٤، ٩:٠٧ م - ".replace("\u200f", ""), "١٨‏/٣‏/٢٠٢٤، ٩:٣٠ ص - ".replace("\u200f", "")),
    "vi android": ("21:07 - ", "09:30 - "),
}
LOCALES.pop("vi android")  # time first, without a date: not an export of WhatsApp's
FIRST, SECOND = (float(calendar.timegm(moment)) for moment in ((2024, 3, 5, 21, 7, 0), (2024, 3, 18, 9, 30, 0)))


def _write(folder: Path, text: str) -> Path:
    path = folder / "WhatsApp Chat with Ana.txt"
    path.write_text(text, encoding="utf-8")
    return path


def _lines(path: Path, order: str | None = None):
    return list(FileToRead(FORMAT, sources_under([path])[0], Encoding("utf-8", ""), ReadOptions(date_order=order)).records())


@pytest.mark.parametrize("locale", LOCALES)
def test_date_and_time_are_read_as_the_phone_meant_them(tmp_path: Path, locale: str) -> None:
    first, second = LOCALES[locale]
    path = _write(tmp_path, f"{first}Ana: hello: you\nsecond line\n{second}+49 171 1234567: bye\n")
    assert format_of(path) == "whatsapp"
    found = _lines(path)
    assert [(line.speaker, line.text, line.kind) for line in found] == [
        ("Ana", "hello: you\nsecond line", "speech"),
        ("+49 171 1234567", "bye", "speech"),
    ]
    assert [line.timestamp_s for line in found] == [FIRST, SECOND]


def test_order_is_taken_under_which_the_chat_runs_forward(tmp_path: Path) -> None:
    british = [f"{day:02}/0{month}/2024, 10:00 - A: x" for month, day in ((1, 9), (1, 10), (1, 12), (2, 1), (2, 3))]
    american = [f"0{month}/{day:02}/2024, 10:00 - A: x" for month, day in ((1, 9), (1, 10), (1, 12), (2, 1), (2, 3))]
    assert date_order(map(parse_header, british), "x") == DateOrder("DMY", "the chat runs forward only as DMY")
    assert date_order(map(parse_header, american), "x") == DateOrder("MDY", "the chat runs forward only as MDY")


@pytest.mark.parametrize(
    ("dates", "order", "evidence"),
    [
        (["31/01/2024", "01/02/2024"], "DMY", "only DMY makes a date of every line"),
        (["31/01/24", "01/02/24"], "DMY", "the chat runs forward only as DMY"),
        (["1/31/2024", "2/1/2024"], "MDY", "only MDY makes a date of every line"),
        (["2024/01/05", "2024/01/06"], "YMD", "only YMD makes a date of every line"),
        (["03/04/2024"], "DMY", "assumed: nothing decides; --date-order sets it"),
        (["05/05/2024", "06/06/2024"], "DMY", "assumed: nothing decides; --date-order sets it"),
        (["03/04/2024", "03/05/2024"], "MDY", "assumed: the chat runs forward as DMY, MDY, with the shortest gaps as MDY; --date-order sets it"),
        (["03/04/2024", "02/04/2024", "03/04/2024"], "DMY", "assumed: the chat runs back in every order, least as DMY; --date-order sets it"),
    ],
)
def test_order_of_a_date_comes_with_its_evidence_in_every_report(tmp_path: Path, dates: list[str], order: str, evidence: str) -> None:
    path = _write(tmp_path, "".join(f"{date}, 10:00 - A: How is it?\n{date}, 10:01 - B: It is fine {n}.\n" for n, date in enumerate(dates)))
    report = take_in(path, tmp_path / "cache", read_options={"me": ("B",)}, report=tmp_path / "page.html", rules={"min_answer_chars": 1})
    assert report.files[0].date_order == report.as_json()["files"][0]["date_order"] == f"{order} ({evidence})"
    assert f"dates read as {order} ({evidence})" in report.as_text()
    assert f"dates read as {order} ({evidence})" in (tmp_path / "page.html").read_text()


def test_order_that_the_user_named_is_reported_as_such(tmp_path: Path) -> None:
    _, _, report = read(_write(tmp_path, "03/04/2024, 10:00 - A: x\n03/04/2024, 10:01 - B: y\n"), me=("B",), date_order="MDY")
    assert report.files[0].date_order == "MDY (named by the user)"


def test_order_can_be_forced(tmp_path: Path) -> None:
    path = _write(tmp_path, "03/04/2024, 10:00 - A: x\n")
    assert _lines(path, "MDY")[0].timestamp_s == calendar.timegm((2024, 3, 4, 10, 0, 0))


def test_dates_of_two_orders_in_one_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="do not all fit one order"):
        _lines(_write(tmp_path, "31/01/2024, 10:00 - A: x\n01/31/2024, 10:00 - A: x\n"))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("<Media omitted>", "media"),
        ("<Medien ausgeschlossen>", "media"),
        ("<Multimedia omitido>", "media"),
        ("<Média omis>", "media"),
        ("<省略多媒体文件>", "media"),
        ("‎image omitted", "media"),
        ("‎Bild weggelassen", "media"),
        ("‎<attached: 00000012-PHOTO-2024.jpg>", "media"),
        ("IMG-20240305-WA0001.jpg (file attached)", "media"),
        ("null", "media"),
        ("This message was deleted", "deleted"),
        ("You deleted this message", "deleted"),
        ("Diese Nachricht wurde gelöscht.", "deleted"),
        ("‎Messages and calls are end-to-end encrypted. No one outside of this chat can read them.", "notice"),
        ("I deleted this message of yours", "speech"),
        ("<3", "speech"),
        ("look: <b> is a tag", "speech"),
    ],
)
def test_what_the_app_wrote_is_not_speech(tmp_path: Path, text: str, kind: str) -> None:
    path = _write(tmp_path, f"05.03.24, 21:07 - Ana: hi\n05.03.24, 21:08 - Ben: {text}\n")
    assert _lines(path)[1].kind == kind


def test_system_lines_have_no_speaker(tmp_path: Path) -> None:
    path = _write(
        tmp_path,
        '3/5/24, 9:07 PM - Messages and calls are end-to-end encrypted.\n3/5/24, 9:07 PM - Ana created group "Trip: June"\n'
        "3/5/24, 9:08 PM - Ana: hi\n",
    )
    assert [(line.kind, line.speaker) for line in _lines(path)] == [("notice", ""), ("notice", ""), ("speech", "Ana")]


def test_caption_below_a_picture_is_speech_and_the_edit_mark_is_not(tmp_path: Path) -> None:
    path = _write(
        tmp_path, "05.03.24, 21:07 - Ana: IMG-1.jpg (file attached)\nThe new lamp!\n05.03.24, 21:08 - Ben: Nice ‎<This message was edited>\n"
    )
    assert [(line.kind, line.text) for line in _lines(path)] == [("speech", "The new lamp!"), ("speech", "Nice")]


def test_direction_marks_around_names_are_taken_off(tmp_path: Path) -> None:
    path = _write(tmp_path, "\u200e[05/03/2024, 21:07:00] \u202a+1 555\u202c: hi\n\u200e[05/03/2024, 21:08:00] ~\u202fBen: \u200eimage omitted\n")
    assert [(line.speaker, line.kind) for line in _lines(path)] == [("+1 555", "speech"), ("Ben", "media")]


def test_lines_before_the_first_date_are_quarantined(tmp_path: Path) -> None:
    _, others, _ = read(_write(tmp_path, "Chat export\n05.03.24, 21:07 - Ana: hi\n05.03.24, 21:08 - Ben: ho\n"), me=("Ben",))
    assert [(item.line, item.reason) for item in others] == [(1, "no_date")]


def test_carriage_returns_are_no_part_of_the_text(tmp_path: Path) -> None:
    path = tmp_path / "chat.txt"
    path.write_bytes(b"05.03.24, 21:07 - Ana: hi\r\nthere\r\n05.03.24, 21:08 - Ben: ho\r\n")
    found, _, _ = read(path, me=("ben",))
    assert turns(found[0]) == [("user", "hi\nthere"), ("assistant", "ho")]


@pytest.mark.parametrize("text", ["2024-03-05 10:00 went running\nIt was fine.\n", "Shopping list\n- 3/4 cup milk\n", "10:30 - meeting: all\n"])
def test_notes_with_dates_in_them_are_no_chat(tmp_path: Path, text: str) -> None:
    path = tmp_path / "notes.txt"
    path.write_text(text)
    assert format_of(path) == "notes"
