"""WhatsApp's text export of one chat.

In:  lines "[date, time] Name: text" (iPhone) or "date, time - Name: text" (Android) in whichever language, clock and date order.
Out: ChatLine for each message; notices, media placeholders and deleted messages keep their kind.
The order of day, month and year is the phone's, and no line says which: the reader uses the order in which the chat runs forward.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from ...errors import UserError
from ..files.encoding import BadBytes, Encoding, iter_lines
from ..files.head import Head
from ..files.sources import Source
from ..records import ChatLine, LineKind, Quarantined, excerpt
from .format import FileToRead, Format

DATE_ORDERS = ("DMY", "MDY", "YMD")
_MARKS = "\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff"
_MORNING = "上午|凌晨|清晨|早上|午前|오전|पूर्वाह्न|ص|πμ|π\\.μ\\.|öö|sa|de\\.|a\\.?\\s?m\\.?"
_EVENING = "下午|中午|晚上|午後|오후|अपराह्न|م|μμ|μ\\.μ\\.|ös|ch|du\\.|p\\.?\\s?m\\.?"
_HALF = f"{_MORNING}|{_EVENING}"
_HEADER = re.compile(
    rf"^[{_MARKS}]*(?P<open>\[)?"
    r"(?P<a>\d{1,4})(?:[./\-]|\.\s)(?P<b>\d{1,2})(?:[./\-]|\.\s)(?P<c>\d{1,4})\.?\s?[,،]?\s+"
    r"(?:(?:um|à|às|a las|alle ore|alle|kl\.?|at|o|ob|klo)\s+)?"
    rf"(?P<before>(?:{_HALF})\s?)?(?P<hour>\d{{1,2}})\s?[:.h]\s?(?P<minute>\d{{2}})(?:[:.](?P<second>\d{{2}}))?(?:\s?Uhr)?"
    rf"(?:\s*(?P<after>{_HALF}))?(?(open)\]\s?|\s[-–—]\s)(?P<rest>.*)$",
    re.IGNORECASE | re.DOTALL,
)
_NAMED = re.compile(r"(?P<name>[^:\n]{1,120}?):(?:\s(?P<text>.*)|$)", re.DOTALL)
_DIGITS = str.maketrans("٠١٢٣٤٥٦٧٨٩۰۱۲۳۴۵۶۷۸۹०१२३४५६७८९", "012345678901234567890123456789")
_SPACES = str.maketrans({"\u00a0": " ", "\u202f": " ", "\u2009": " "})
_EDITED = re.compile(rf"\s*[{_MARKS}]+<[^<>\n]{{3,60}}>\s*$")
_MEDIA = re.compile(
    r"<[^<>\n]{2,120}>|(?:image|video|audio|gif|sticker|document|contact card|photo|voice message|video note) omitted"
    r"|(?:bild|video|audio|gif|sticker|dokument|kontaktkarte) weggelassen|(?:imagen|vídeo|video|audio|gif|sticker|documento) omitid[oa]"
    r"|(?:image|vidéo|audio|gif|sticker|document|autocollant) absente?|(?:imagem|vídeo|áudio|figurinha|documento) ocult[oa]"
    r"|.{1,120}\((?:file attached|datei angehängt|archivo adjunto|fichier joint|arquivo anexado|file allegato|файл добавлен|文件附件|ファイル添付)\)"
    r"|(?:圖片|图片|影片|视频|音訊|音频|貼圖|贴图|表情|文件|GIF)已?(?:省略|略過|忽略)|(?:画像|動画|音声|スタンプ|文書)は?省略(?:されました)?|null",
    re.IGNORECASE,
)
_DELETED = re.compile(
    r"(?:this message was deleted|you deleted this message|diese nachricht wurde gelöscht|du hast diese nachricht gelöscht|se eliminó este mensaje"
    r"|eliminaste este mensaje|ce message a été supprimé|vous avez supprimé ce message|mensagem apagada|você apagou esta mensagem"
    r"|questo messaggio è stato eliminato|данное сообщение удалено|вы удалили данное сообщение|此訊息已刪除|此消息已被?删除"
    r"|您已?[刪删]除了?此[訊消]息"
    r"|このメッセージは削除されました|삭제된 메시지입니다)\.?",
    re.IGNORECASE,
)
_NOTICE = re.compile(
    r"end-to-end encrypted|ende-zu-ende|cifrados? de extremo|chiffrés de bout|criptografia de ponta|端到端|エンドツーエンド|종단간|сквозн"
    r"|(?:created (?:this )?group|added|removed|left|joined using|changed (?:the|this|their|to)|security code)\b"
    r"|hat die gruppe|cambió|a créé le groupe",
    re.IGNORECASE,
)
_SAMPLE_HEADERS = 20_000


@dataclass(frozen=True)
class _Header:
    """A line's date and time before the order of the date's fields is known."""

    fields: tuple[str, str, str]
    hour: int
    minute: int
    second: int
    rest: str

    def time_s(self, order: str) -> float | None:
        """Seconds since 1970 if the fields are a date in that order."""
        year, month, day = (self.fields[order.index(letter)] for letter in "YMD")
        if len(month) > 2 or len(day) > 2 or len(year) in (1, 3):
            return None
        full_year = int(year) + (2000 if len(year) == 2 else 0)
        try:
            if not 1 <= int(day) <= calendar.monthrange(full_year, int(month))[1]:
                return None
            return float(calendar.timegm((full_year, int(month), int(day), self.hour, self.minute, self.second)))
        except (ValueError, calendar.IllegalMonthError, OverflowError):
            return None


def parse_header(line: str) -> _Header | None:
    """None for a line that continues the message before it."""
    if not line[:24].strip(" [\u200e\u200f\ufeff\u202a\u202b\u202c")[:1].isdigit():
        return None
    match = _HEADER.match(line[:64].translate(_DIGITS).translate(_SPACES) + line[64:])
    if match is None:
        return None
    hour, minute, second = int(match["hour"]), int(match["minute"]), int(match["second"] or 0)
    half = (match["before"] or match["after"] or "").strip().lower()
    if half and hour <= 12:
        hour = hour % 12 + 12 * bool(re.fullmatch(_EVENING, half, re.IGNORECASE))
        if half == "中午" and hour == 23:
            hour = 11  # 中午11点 is before noon
    if hour > 23 or minute > 59 or second > 59:
        return None
    return _Header((match["a"], match["b"], match["c"]), hour, minute, second, match["rest"])


def looks_like_whatsapp(head: Head) -> str | None:
    """Whether the first written lines begin with date and time, and most of those name somebody."""
    written = [line.rstrip("\r") for line in head.lines if line.strip()]
    headers = [header for header in map(parse_header, written) if header]
    named = [header for header in headers if _NAMED.match(header.rest)]
    opens_with_one = any(parse_header(line) for line in written[:3])
    is_export = opens_with_one and len(named) >= 1 and 2 * len(named) >= len(headers) and (len(headers) >= 2 or len(written) == 1)
    return "lines begin with date, time and a name" if is_export else None


@dataclass(frozen=True)
class DateOrder:
    """In which order a chat writes day, month and year, and how that is known."""

    order: str
    """one of DATE_ORDERS"""
    evidence: str

    def __str__(self) -> str:
        return f"{self.order} ({self.evidence})"


def date_order(headers: Iterable[_Header], where: str) -> DateOrder:
    """The order under which every date exists and the chat jumps least; the usual one of its signs when several do."""
    sample = list(headers)
    jumps: dict[str, float] = {}
    steps_back: dict[str, int] = {}
    for order in DATE_ORDERS:
        times = [time_s for header in sample if (time_s := header.time_s(order)) is not None]
        if len(times) == len(sample):
            steps = [after - before for before, after in pairwise(times)]
            jumps[order] = sum(abs(step) * (1 if step >= 0 else 100) for step in steps)
            steps_back[order] = sum(step < 0 for step in steps)
    if not jumps:
        raise UserError(
            where,
            "its dates do not all fit one order of day, month and year",
            allowed=", ".join(DATE_ORDERS),
            remedy="the file may be two exports joined: split it",
        )
    least = min(jumps.values())
    taken = next(order for order in DATE_ORDERS if jumps.get(order) == least)
    return DateOrder(taken, _evidence(taken, jumps, steps_back))


def _evidence(taken: str, jumps: Mapping[str, float], steps_back: Mapping[str, int]) -> str:
    """Why this order, of those in which every date exists."""
    forward = [order for order, count in steps_back.items() if count == 0]
    if len(jumps) == 1:
        return f"only {taken} makes a date of every line"
    if forward == [taken]:
        return f"the chat runs forward only as {taken}"
    if list(jumps.values()).count(jumps[taken]) > 1:
        return "assumed: nothing decides; --date-order sets it"
    if taken in forward:
        return f"assumed: the chat runs forward as {', '.join(forward)}, with the shortest gaps as {taken}; --date-order sets it"
    return f"assumed: the chat runs back in every order, least as {taken}; --date-order sets it"


def date_order_of(file: FileToRead) -> DateOrder:
    """The order that the user named, or the one that the file's own dates show."""
    if file.options.date_order:
        return DateOrder(file.options.date_order, "named by the user")
    return date_order(_sample(file.source, file.encoding), file.source.name)


def with_date_order(file: FileToRead) -> FileToRead:
    """The file as if the user had named its order of dates; the report says which it is and why."""
    order = date_order_of(file)
    file.report.date_order = str(order)
    return replace(file, options=replace(file.options, date_order=order.order))


def read_whatsapp(file: FileToRead) -> Iterator[ChatLine | Quarantined]:
    """Messages in the file's order; lines before the first header are quarantined."""
    source, encoding, order = file.source, file.encoding, date_order_of(file).order
    open_header: _Header | None = None
    body: list[str] = []
    at = 0
    with source.open() as stream:
        for number, line in iter_lines(stream, encoding, source.name):
            if isinstance(line, BadBytes):
                detail = f"byte {line.offset_bytes} is not valid {encoding.name.upper()}"
                yield Quarantined(source.name, number, "undecodable", detail, excerpt(line.raw[:480].decode("utf-8", "backslashreplace")))
                continue
            line = line.removesuffix("\r")
            header = parse_header(line)
            if header is not None and header.time_s(order) is not None:
                if open_header is not None:
                    yield _message(source, at, open_header, order, body)
                open_header, body, at = header, [header.rest], number
            elif open_header is not None:
                body.append(line)
            elif line.strip():
                yield Quarantined(source.name, number, "no_date", "stands before the first dated line", excerpt(line))
    if open_header is not None:
        yield _message(source, at, open_header, order, body)


def _sample(source: Source, encoding: Encoding) -> list[_Header]:
    headers: list[_Header] = []
    with source.open() as stream:
        for _, line in iter_lines(stream, encoding, source.name):
            header = parse_header(line.removesuffix("\r")) if isinstance(line, str) else None
            if header is not None:
                headers.append(header)
                if len(headers) >= _SAMPLE_HEADERS:
                    break
    return headers


def _message(source: Source, number: int, header: _Header, order: str, body: list[str]) -> ChatLine:
    """Tell speech from what the app wrote."""
    text = "\n".join(body).rstrip()
    match = _NAMED.match(text)
    speaker = _clean(match["name"]) if match else ""
    if match is None or (_NOTICE.search(match["name"]) and len(match["name"].split()) > 2):
        return ChatLine(source.name, number, source.name, "", header.time_s(order), _clean(text), "notice")
    raw = match["text"] or ""
    text = _clean(_EDITED.sub("", raw)) or _clean(raw)  # a line that is nothing but a mark is an attachment, not an edit
    first, _, caption = text.partition("\n")
    kind: LineKind = "speech"
    if _DELETED.fullmatch(text):
        kind = "deleted"
    elif _MEDIA.fullmatch(first.strip()):
        kind, text = ("speech", caption.strip()) if caption.strip() else ("media", text)
    elif raw[:1] in "\u200e\u200f" and raw and _NOTICE.search(raw):
        kind = "notice"
    return ChatLine(source.name, number, source.name, speaker, header.time_s(order), text, kind)


def _clean(text: str) -> str:
    """Without the direction marks that the app puts around names and placeholders."""
    return text.strip().strip("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff~ ").strip()


FORMAT = Format("whatsapp", looks_like_whatsapp, read_whatsapp, (".txt",), is_chat=True, options=("date_order",), prepare=with_date_order)
