"""How facts look in running text, one pattern per kind.

In:  nothing.
Out: PATTERNS: kind → compiled pattern, in the order in which they claim their place; the fact is the group `fact`.
They are narrow on purpose: a pattern that also matches what is no fact would make test questions that a right answer fails.
"""

from __future__ import annotations

import re
from typing import Literal

from .normal_form import HAN
from .number_forms import MEASURES, NUMBER_WORDS, TENS_WORDS

FactKind = Literal["email", "url", "date", "time", "price", "phone", "quantity", "quoted", "code", "name", "number"]

_MONTH = "(?:January|February|March|April|May|June|July|August|September|October|November|December|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)"
_ORDINAL = "(?:st|nd|rd|th)?"
_NUMBER = r"\d+(?:[.,]\d+)*"
_WORD_NUMBER = "|".join([*list(NUMBER_WORDS)[1:], *TENS_WORDS])  # "one" is often no number
_HAN_DIGITS = "一二两三四五六七八九十百千万亿零〇"
_HAN_NUMBER = f"(?<![几数第好一二三四五六七八九十百千万])(?:[二两三四五六七八九十]|一[十百千万亿])[{_HAN_DIGITS}]*"
"""not 一: 一天 may be "some day"; not 第二天, the next day"""
_HAN_FACT_MEASURES = (
    "个?小时|個?小時|分钟|分鐘|公里|公斤|厘米|毫米|毫升|个?星期|個?星期|个月|個月|平方米|平米|块钱|塊錢|"
    "天|年|周|週|月|日|号|號|岁|歲|元|折|楼|樓|层|層|米|克|斤|吨|升|瓦|度|秒|倍"
)
"""behind a numeral in characters; 三点建议 and 两个 are too often no facts"""
_UNITS = (
    "hundred|thousand|million|billion|percent|per cent|degrees?|watts?|volts?|hours?|hrs?|minutes?|mins?|seconds?|secs?|days?|weeks?|months?|years?|"
    "miles?|metres?|meters?|feet|inch|inches|"
    "litres?|liters?|grams?|kilos?|kilograms?|kilomet(?:er|re)s?|pounds?|ounces?|tons?|tonnes?|dollars?|euros?|cents?|rupiah|yuan|yen|"
    "km|cm|mm|m|kg|g|mg|ml|l|lbs?|oz|kwh?|w|v|mah|ghz|mhz|hz|gb|mb|tb|"
    "hari|jam|menit|minggu|bulan|tahun|persen|tage?n?|stunden?|minuten?|wochen?|monate?n?|jahre?n?|prozent|"
    "jours?|heures?|semaines?|mois|ans?|días?|horas?|semanas?|meses|años?|дн(?:я|ей)|час(?:а|ов)?|рубл(?:я|ей)"
)
_NO_UNITS = "times|things|ways|others|steps|points|parts|items|kinds|types|sides|cases|examples|is|was|has"
"""plural-looking words behind a number that a right answer may leave out"""
_SIGN = "(?:US\\$|HK\\$|NT\\$|[$€£¥￥₹₩฿₫])"
_CODE = "(?:USD|EUR|GBP|RMB|CNY|IDR)"
_NAME_WORD = r"(?:(?:Mc|Mac|O['’]|[a-z])?[A-Z][a-zà-öø-ÿ]+(?:-[A-Za-z]+)*|[A-Z]{2,})"
_CONNECTOR = "(?:(?:of(?: the)?|de|van|von|du|la|al|bin) )?"

_SOURCES: dict[FactKind, str] = {
    "email": r"(?P<fact>[A-Za-z0-9][A-Za-z0-9_.%+\-]*@[A-Za-z0-9\-]+(?:\.[A-Za-z0-9\-]+)+)",
    "url": r"(?P<fact>(?:https?://|www\.)[A-Za-z0-9][A-Za-z0-9\-._~:/?#@!$&*+,;=%]*[A-Za-z0-9/])",
    "date": (
        r"(?<![\d.])(?P<fact>(?:19|20)\d\d(?P<dash>[-/.])\d{1,2}(?P=dash)\d{1,2}(?!\d)|(?:\d{4}年)?\d{1,2}月\d{1,2}[日号號]"
        rf"|\d{{1,2}}{_ORDINAL} (?:of )?{_MONTH}\b(?:,? \d{{4}})?|\b{_MONTH} \d{{1,2}}{_ORDINAL}\b(?:, \d{{4}})?)"
    ),
    "time": (
        r"(?<![\d:.])(?P<fact>(?:[01]?\d|2[0-4])(?:[:：][0-5]\d(?![\d:])(?:\s?[ap]\.?m\b)?|\s?[ap]\.?m\b)"
        r"|(?:(?<=[Pp]ukul )|(?<=[Jj]am ))\d{1,2}\.\d\d|\d{1,2}\.\d\d(?= Uhr))"
    ),
    "price": rf"(?P<fact>(?:{_SIGN}|\b{_CODE}|\bRp\.?)\s?{_NUMBER}|(?<![A-Za-z\d.,]){_NUMBER}\s?(?:{_SIGN}|{_CODE}\b|元(?!旦)|块钱|塊錢))",
    "phone": r"(?<![\w.,])(?P<fact>\+?\(?\d(?:[\-() ]{0,2}\d){6,})(?![\w%])(?!\s*[.,]\d)",
    "quantity": (
        rf"(?<![\w.,:/])(?<![A-Za-z]-)(?P<fact>{_NUMBER}(?:%|％|(?:\s|-)?(?i:{_UNITS})\b|\s(?!(?:{_NO_UNITS})\b)[a-z]{{3,}}(?<!s)s\b)"
        rf"|(?i:\b(?:{_WORD_NUMBER})(?:\s|-)(?:{_UNITS})\b))"
        rf"|(?<![A-Za-z\d.,:])(?P<han_fact>{_NUMBER}\s?(?:{_HAN_FACT_MEASURES}|[{MEASURES}個張條層樓歲點塊種項頁雙臺])|{_HAN_NUMBER}(?:{_HAN_FACT_MEASURES}))"
    ),
    "quoted": "|".join(
        rf"{opening}(?P<fact_{place}>[^{closing}{opening}\s。！？!?][^{closing}{opening}\n。！？!?]{{0,28}}[^{closing}{opening}\s。！？!?]){closing}"
        for place, (opening, closing) in enumerate(("“”", "「」", "『』", "《》", "«»", "„“", '""'))
    ),
    "code": r"(?<![\w.\-@/])(?P<fact>(?=[A-Za-z0-9\-]*\d)(?=[A-Za-z0-9\-]*[A-Z])[A-Za-z][A-Za-z0-9]*(?:-[A-Za-z0-9]+)*)(?![A-Za-z0-9@])",
    "name": rf"(?<![A-Za-z0-9])(?P<fact>(?:\d+ )?{_NAME_WORD}(?: (?:\d+ |{_CONNECTOR}){_NAME_WORD})*)(?![A-Za-z0-9])",
    "number": r"(?<![\w.,:/\-#])(?P<fact>\d{2,}(?:[.,]\d+)*|\d+[.,]\d+)(?![\w%:/\-]|[.,]\d)|(?P<han_fact>\d{2,}(?:[.,]\d+)*[百千万亿]*)(?=["
    + HAN
    + "])",
}
PATTERNS: dict[FactKind, re.Pattern[str]] = {kind: re.compile(source) for kind, source in _SOURCES.items()}
