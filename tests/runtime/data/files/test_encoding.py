"""Which encoding a file is in: told with evidence, refused with an offset, never guessed."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mobilefinetuner.runtime.data.files.encoding import BadBytes, Encoding, detect_encoding, iter_lines, iter_text
from mobilefinetuner.runtime.errors import UserError

CHINESE = "您好，请问这件商品什么时候可以发货？我们一般在三天内发货。\n谢谢，我再看看别的款式。\n" * 3


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"plain", "utf-8"),
        ("grün".encode(), "utf-8"),
        ("grün".encode("utf-8-sig"), "utf-8"),
        (CHINESE.encode("gb18030"), "gb18030"),
        (CHINESE.encode("gbk"), "gb18030"),
        ("\ufeff你好".encode("utf-16-le"), "utf-16-le"),
        ("\ufeff你好".encode("utf-16-be"), "utf-16-be"),
        ("hello there\n".encode("utf-16-le"), "utf-16-le"),
        ("hello there\n".encode("utf-16-be"), "utf-16-be"),
        ("\ufeffhello".encode("utf-32-le"), "utf-32-le"),
    ],
    ids=[
        "ascii",
        "utf-8",
        "utf-8 with mark",
        "gb18030",
        "gbk",
        "utf-16-le mark",
        "utf-16-be mark",
        "utf-16-le bare",
        "utf-16-be bare",
        "utf-32 mark",
    ],
)
def test_encoding_is_told_from_the_bytes_and_names_its_evidence(data: bytes, name: str) -> None:
    found = detect_encoding(data, "file")
    assert found.name == name
    assert found.evidence
    text = "".join(iter_text(io.BytesIO(data), found, "file"))
    assert "\ufeff" not in text and text.encode(name) == data[found.mark_bytes :]


def test_latin_1_is_refused_with_its_offset_instead_of_becoming_rare_chinese() -> None:
    data = "où êtes-vous allés hier après-midi, mes très chers élèves".encode("latin-1")
    with pytest.raises(UserError, match=r"byte 1 .0xF9. is not valid UTF-8 or GB18030"):
        detect_encoding(data, "lettre.txt")


def test_one_broken_line_among_good_ones_does_not_change_the_encoding() -> None:
    data = "".join(f"ligne numéro {n}\n" for n in range(20)).encode() + b"bad \xff line\n"
    assert detect_encoding(data, "file").name == "utf-8"


def test_binary_data_is_refused() -> None:
    with pytest.raises(UserError, match="zero: this is not a text file"):
        detect_encoding(b"\x89PNG\0\0\0\x0dIHDR\0\1", "image.txt")


def test_undecodable_byte_is_named_by_its_offset_in_the_file() -> None:
    data = b"x" * (1 << 20) + b"abc\xe9\n"
    with pytest.raises(UserError, match=f"byte {(1 << 20) + 3} .0xE9."):
        list(iter_text(io.BytesIO(data), Encoding("utf-8", ""), "file"))


def test_broken_line_is_yielded_with_its_offset_and_the_others_are_read() -> None:
    data = b"eins\nzw" + b"\xff" + b"ei\ndrei"
    lines = list(iter_lines(io.BytesIO(data), Encoding("utf-8", ""), "file"))
    assert [number for number, _ in lines] == [1, 2, 3]
    assert lines[0][1] == "eins" and lines[2][1] == "drei"
    assert lines[1][1] == BadBytes(7, b"zw\xffei")


@pytest.mark.parametrize("name", ["utf-8", "utf-16-le", "gb18030"])
@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\r"])
def test_only_a_newline_ends_a_line(separator: str, name: str) -> None:
    data = f"one{separator}still one\ntwo".encode(name)
    lines = [line for _, line in iter_lines(io.BytesIO(data), Encoding(name, ""), "file")]
    assert lines == [f"one{separator}still one", "two"]


@given(st.text(st.characters(exclude_categories=["Cs"])), st.sampled_from(["utf-8", "utf-16-le", "utf-16-be", "gb18030"]))
def test_lines_of_any_text_in_any_encoding_put_together_are_the_text(text: str, name: str) -> None:
    lines = [line for _, line in iter_lines(io.BytesIO(text.encode(name)), Encoding(name, ""), "file")]
    assert "\n".join(lines) == text.removesuffix("\n")


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_decoded_exactly_or_refused(data: bytes) -> None:
    try:
        found = detect_encoding(data, "file")
        text = "".join(iter_text(io.BytesIO(data), found, "file"))
    except UserError as error:
        assert "byte" in str(error)
    else:
        assert text.encode(found.name) == data[found.mark_bytes :]
