"""Personal numbers and addresses replaced by placeholders.

In:  a text and the kinds to replace (a scenario's `redact` list).
Out: the text with placeholders, and how many of each kind were replaced.
Card, ID and IBAN numbers are replaced only when their checksum is right: an order number must survive.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

_SEPARATED = r"[ \-]?"


def _digits(text: str) -> str:
    return "".join(character for character in text if character.isdigit())


def luhn_is_valid(number: str) -> bool:
    """ISO/IEC 7812 check digit of a payment card number."""
    digits = [int(character) for character in _digits(number)]
    if not 13 <= len(digits) <= 19 or len(set(digits)) == 1:
        return False
    doubled = (digit * 2 - 9 if digit > 4 else digit * 2 for digit in digits[-2::-2])
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def chinese_id_is_valid(number: str) -> bool:
    """GB 11643-1999: 17 digits with a birth date inside and a check character (ISO 7064 MOD 11-2)."""
    weights = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
    month, day = int(number[10:12]), int(number[12:14])
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return False
    total = sum(weight * int(digit) for weight, digit in zip(weights, number))
    return "10X98765432"[total % 11] == number[17].upper()


def iban_is_valid(number: str) -> bool:
    """ISO 13616: the rearranged number modulo 97 is 1."""
    compact = number.replace(" ", "").upper()
    if not 15 <= len(compact) <= 34:
        return False
    return int("".join(str(int(character, 36)) for character in compact[4:] + compact[:4])) % 97 == 1


def phone_is_plausible(number: str) -> bool:
    """Eight to fifteen digits (ITU-T E.164), and written like a phone number rather than like a date or an amount."""
    digits = _digits(number)
    is_date = re.fullmatch(r"(19|20)\d\d[-./ ]\d\d?[-./ ]\d\d?.*", number)
    is_in_fours = re.fullmatch(r"[1-9]\d{3}(?:[ -]\d{4}){2,}.*", number)  # accounts and order numbers are written so
    if not 8 <= len(digits) <= 15 or is_date or is_in_fours:
        return False
    return number.startswith(("+", "(", "0")) or len(re.findall(r"[ \-.]", number)) >= 2 or bool(re.fullmatch(r"1[3-9]\d{9}", digits))


def _is_any(found: str) -> bool:
    return True


# kind -> (placeholder, expression, check); the order matters: the longest and surest kinds first.
_KINDS: dict[str, tuple[str, str, Callable[[str], bool]]] = {
    "email": ("[email]", r"[A-Za-z0-9._%+\-]{1,64}@(?:[A-Za-z0-9\-]{1,63}\.)+[A-Za-z]{2,24}", _is_any),
    "iban": ("[iban]", r"(?<![A-Za-z0-9])[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?(?![A-Za-z0-9])", iban_is_valid),
    "id_card_cn": ("[id number]", r"(?<!\d)[1-9]\d{16}[\dXx](?![\dXx])", chinese_id_is_valid),
    "bank_card": ("[card number]", r"(?<!\d)\d(?:" + _SEPARATED + r"\d){12,18}(?!\d)", luhn_is_valid),
    "phone": ("[phone]", r"(?<![\w@.])(?:\+\d{1,3}[ \-.]?)?(?:\(\d{1,4}\)[ \-.]?)?\d{1,5}(?:[ \-.]?\d{2,5}){1,5}(?![\w@])", phone_is_plausible),
}
REDACTIONS: tuple[str, ...] = tuple(_KINDS)
_COMPILED = {kind: re.compile(expression, re.ASCII) for kind, (_, expression, _) in _KINDS.items()}
_FEWEST_DIGITS = 7


def redact(text: str, kinds: Iterable[str]) -> tuple[str, dict[str, int]]:
    """Replace every valid find of the given kinds; counts hold only kinds that were found."""
    counts: dict[str, int] = {}
    wanted = set(kinds)
    for kind in _KINDS:
        if kind not in wanted or not _may_hold(kind, text):
            continue
        placeholder, _, is_valid = _KINDS[kind]

        def put(match: re.Match, kind: str = kind, placeholder: str = placeholder, is_valid: Callable = is_valid) -> str:
            if not is_valid(match.group()):
                return match.group()
            counts[kind] = counts.get(kind, 0) + 1
            return placeholder

        text = _COMPILED[kind].sub(put, text)
    return text, counts


def _may_hold(kind: str, text: str) -> bool:
    """Cheap test that spares most texts the expressions."""
    if kind == "email":
        return "@" in text
    return sum(map(str.isdigit, text)) >= _FEWEST_DIGITS
