"""No bytes that anybody may have in a file end in anything but conversations, quarantined records or a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mobilefinetuner.runtime.data.readers import choices
from mobilefinetuner.runtime.errors import UserError

from tests.support.ingesting import CASES, read

EXPORTS = sorted((CASES / "formats").glob("*/*"))
FRAGMENTS = st.sampled_from(
    [
        b"{",
        b"}",
        b"[",
        b"]",
        b'"',
        b",",
        b":",
        b"\n",
        b"\r\n",
        b"\t",
        b'"messages"',
        b'"role": "user"',
        b'"content": null',
        b'{"messages": []}',
        b"05.03.24, 21:07 - A: x\n",
        b"[3/5/24, 9:07:00 PM] B: y\n",
        b"2024-01-05 12:00:00 C\n",
        b"StrContent,IsSender\n",
        b"question,answer\n",
        b"\xff",
        b"\x00",
        b"\xef\xbb\xbf",
        b"\xff\xfe",
        "。".encode(),
        "《题》\n".encode(),
        b"\xe2\x80\xa8",
        b"9" * 400,
        b'{"mapping": {"a": 1}, "current_node": "a"}',
        b"1e999",
    ]
)


def _survives(path: Path, **options) -> None:
    try:
        found, others, _ = read(path, me=("A",), **options)
    except UserError as error:
        assert error.exit_code == 2
    else:
        assert all(conversation.messages for conversation in found)
        assert all(item.reason and item.source for item in others)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    data=st.binary(max_size=400) | st.lists(FRAGMENTS | st.binary(max_size=5), max_size=14).map(b"".join),
    suffix=st.sampled_from([".jsonl", ".json", ".csv", ".tsv", ".txt", ".md", ".zip"]),
)
def test_arbitrary_bytes_never_crash(tmp_path: Path, data: bytes, suffix: str) -> None:
    path = tmp_path / f"file{suffix}"
    path.write_bytes(data)
    _survives(path)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.lists(FRAGMENTS | st.binary(max_size=5), max_size=14).map(b"".join), name=st.sampled_from(choices()))
def test_arbitrary_bytes_never_crash_under_a_forced_format(tmp_path: Path, data: bytes, name: str) -> None:
    path = tmp_path / "file.txt"
    path.write_bytes(data)
    _survives(path, format=name)


@pytest.mark.parametrize("export", EXPORTS, ids=lambda path: f"{path.parent.name}/{path.name}")
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
def test_damaged_exports_never_crash(tmp_path: Path, export: Path, data: st.DataObject) -> None:
    content = bytearray(export.read_bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 8))] = data.draw(st.binary(max_size=3))
    path = tmp_path / export.name
    path.write_bytes(content[: data.draw(st.integers(1, max(1, len(content))))])
    _survives(path)
