"""WeChat chats as WeChatMsg (MemoTrace) exports them: CSV and txt.

In:  CSV with the database's column names (StrContent, IsSender, …) or with Chinese ones (发送人, 内容, …); or txt whose
     messages are a line "2024-01-05 12:00:00 Name" and the text below it, sometimes under lines of asterisks with the day.
Out: ChatLine for each message. The database's columns say which messages are the owner's; the other two forms do not.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterator, Mapping

from ..files.encoding import iter_text
from ..files.head import Head
from ..records import ChatLine, LineKind, Quarantined
from .format import FileToRead, Format
from .tabular import iter_table

_TEXT_TYPES = ("1", "文本", "文本消息", "")
_NOTICE_TYPES = ("10000", "10002", "系统消息", "系统通知", "撤回消息")
_DATE_TIME = r"(?P<Y>\d{4})[-/](?P<M>\d{1,2})[-/](?P<D>\d{1,2})[ T](?P<h>\d{1,2}):(?P<m>\d{2})(?::(?P<s>\d{2}))?"
_TIME = re.compile(_DATE_TIME)
_HEADER = re.compile(rf"^(?:{_DATE_TIME}\s+(?P<name>\S.{{0,80}}?))\s*$")
_DAY = re.compile(r"^\*{5,}\s*\d{4}-\d{1,2}-\d{1,2}\s*\*{5,}\s*$")
_PLACEHOLDER = re.compile(
    r"\[(?:图片|表情|动画表情|表情包|语音|视频|文件|位置|名片|链接|转账|红包|语音通话|视频通话|聊天记录|小程序|分享|音乐|引用)[^\[\]\n]{0,60}\]|【[^】\n]{1,30}】"
    r"|<\?xml.*|<msg>.*",
    re.DOTALL,
)
_RECALLED = re.compile(r".{0,40}撤回了一条消息.{0,20}|以上是打招呼的内容|.{0,60}现在可以开始聊天了。?|.{0,40}拍了拍.{0,40}")


def looks_like_wechat_csv(head: Head) -> str | None:
    """Column names of either CSV form."""
    columns = {name.strip().strip('"\ufeff') for name in re.split(r"[,;\t]", head.lines[0].strip())}
    return "header has IsSender and StrContent" if {"StrContent", "IsSender"} <= columns or {"发送人", "内容", "时间"} <= columns else None


def looks_like_wechat_text(head: Head) -> str | None:
    """Whether the first written lines are dated name lines with text below them."""
    written = [line.rstrip("\r") for line in head.lines if line.strip() and not _DAY.match(line)]
    heads = [_HEADER.match(line) for line in written[:2]]
    # A diary's entries may begin with day and minute; the export always writes the seconds.
    is_export = len(heads) == 2 and heads[0] is not None and heads[0]["s"] is not None and heads[1] is None
    return "blocks begin with date, time and a name" if is_export else None


def read_wechat_csv(file: FileToRead) -> Iterator[ChatLine | Quarantined]:
    """Messages of either CSV form."""
    source = file.source
    for number, row in iter_table(source, file.encoding, None):
        if isinstance(row, Quarantined):
            yield row
        elif row.get("StrContent") is not None:
            yield _database_row(row, source.name, number)
        elif row.get("内容") is not None:
            yield _chinese_row(row, source.name, number)
        else:
            yield Quarantined(source.name, number, "bad_row", "has no content column", str(dict(row))[:120])


def _database_row(row: Mapping[str, str], source: str, number: int) -> ChatLine:
    mine = row.get("IsSender", "").strip() == "1"
    text = row["StrContent"].strip()
    other = row.get("Remark") or row.get("NickName") or row.get("Sender") or row.get("TalkerId") or "?"
    chat = row.get("StrTalker") or row.get("TalkerId") or row.get("room_name") or row.get("Remark") or source
    time_s = _number(row.get("CreateTime")) or _time_s(row.get("StrTime", ""))
    return ChatLine(source, number, chat, "me" if mine else other, time_s, text, _kind(row.get("Type", "1").strip(), text), mine)


def _chinese_row(row: Mapping[str, str], source: str, number: int) -> ChatLine:
    speaker = (row.get("发送人") or row.get("备注") or row.get("昵称") or "?").strip()
    text = row["内容"].strip()
    mine = True if speaker == "我" else None
    return ChatLine(source, number, source, speaker, _time_s(row.get("时间", "")), text, _kind((row.get("类型") or "").strip(), text), mine)


def read_wechat_text(file: FileToRead) -> Iterator[ChatLine | Quarantined]:
    """Messages of the txt form."""
    source = file.source
    header: re.Match | None = None
    body: list[str] = []
    at = 0
    with source.open() as stream:
        for number, line in enumerate(_lines(iter_text(stream, file.encoding, source.name)), start=1):
            opening = _HEADER.match(line)
            if opening is None and not _DAY.match(line):
                body.append(line)
            if opening is not None:
                if header is not None:
                    yield _text_message(source.name, at, header, body)
                elif any(text.strip() for text in body):
                    yield Quarantined(source.name, 1, "no_date", "stands before the first dated line", " ".join(body)[:120])
                header, body, at = opening, [], number
    if header is not None:
        yield _text_message(source.name, at, header, body)


def _lines(pieces: Iterator[str]) -> Iterator[str]:
    rest = ""
    for piece in pieces:
        *lines, rest = (rest + piece).split("\n")
        for line in lines:
            yield line.removesuffix("\r")
    if rest:
        yield rest


def _text_message(source: str, number: int, header: re.Match, body: list[str]) -> ChatLine:
    text, speaker = "\n".join(body).strip(), header["name"].strip()
    return ChatLine(source, number, source, speaker, _time_s(header.group()), text, _kind("1", text), True if speaker == "我" else None)


def _kind(message_type: str, text: str) -> LineKind:
    if message_type in _NOTICE_TYPES or _RECALLED.fullmatch(text):
        return "notice"
    if not text or _PLACEHOLDER.fullmatch(text):
        return "media"
    # 49 is an app message: a quoting reply comes as its words, everything else as XML
    return "speech" if message_type in (*_TEXT_TYPES, "49", "引用消息", "引用回复") else "media"


def _time_s(text: str) -> float | None:
    match = _TIME.search(text)
    if match is None:
        return None
    fields = [int(match[key] or 0) for key in ("Y", "M", "D", "h", "m", "s")]
    if not (1 <= fields[1] <= 12 and 1 <= fields[2] <= 31 and fields[3] <= 23 and fields[4] <= 59 and fields[5] <= 59):
        return None
    return float(calendar.timegm(tuple(fields)))


def _number(text: str | None) -> float | None:
    """Seconds since 1970; newer databases count milliseconds."""
    if not text or not text.strip().isdigit() or len(text.strip()) > 15:
        return None
    value = float(text)
    return value / 1000 if value > 1e11 else value


FORMATS = (
    Format("wechat", looks_like_wechat_csv, read_wechat_csv, (".csv",), is_chat=True),
    Format("wechat_txt", looks_like_wechat_text, read_wechat_text, (".txt",), is_chat=True),
)
