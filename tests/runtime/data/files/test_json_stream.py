"""Documents too large to hold: whatever pieces they arrive in, the same comes out, and little is held."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mobilefinetuner.runtime.data.files.json_stream import JsonStream
from mobilefinetuner.runtime.data.readers.format import ReadOptions
from mobilefinetuner.runtime.data.readers.rows import iter_json_items
from mobilefinetuner.runtime.data.reading import Reading, sources_under
from mobilefinetuner.runtime.data.report import IngestReport
from mobilefinetuner.runtime.errors import UserError

from tests.support.chatml import scenario
from tests.support.ingesting import format_of, read, row, turns
from tests.support.tiny_bundle import ROOT

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.sampled_from('ab"\\[]{},: \n你'), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.sampled_from('ab"\\[{'), max_size=3), inner, max_size=3),
    max_leaves=8,
)


def _stream(text: str, size: int) -> JsonStream:
    return JsonStream(iter([text[at : at + size] for at in range(0, len(text), size)]), "file")


@settings(max_examples=200)
@given(st.dictionaries(st.text(max_size=3), VALUES, max_size=5), st.integers(1, 9), st.sampled_from([None, 1]), st.sets(st.integers(0, 4)))
def test_members_of_any_object_come_back_and_skipping_some_does_not_matter(document: dict, size: int, indent: int | None, skipped: set[int]) -> None:
    stream = _stream(json.dumps(document, indent=indent, ensure_ascii=False), size)
    found = {}
    for place, key in enumerate(stream.members()):
        if place in skipped:
            stream.skip()
        else:
            found[key] = stream.value()
    stream.finish()
    assert found == {key: value for place, (key, value) in enumerate(document.items()) if place not in skipped}


@settings(max_examples=200)
@given(st.text(st.sampled_from('ab"\\[]{},:1- \n'), max_size=30), st.integers(1, 9))
def test_text_is_read_as_json_loads_reads_it_or_is_refused_in_one_sentence(text: str, size: int) -> None:
    stream = _stream(text, size)
    try:
        expected = json.loads(text.strip(" \n,"))  # blanks and commas around a value are passed over
    except ValueError:
        with pytest.raises(UserError, match="file: "):
            stream.value()
            stream.finish()
    else:
        assert stream.value() == expected
        stream.finish()


@pytest.mark.parametrize("text", ['{"a": 1', '{"a"', '{"a" 1}', "{1: 2}", '["a", "b', '{"a": [1, {"b": "]}'])
def test_skipping_to_an_end_that_never_comes_is_refused(text: str) -> None:
    stream = _stream(text, 3)
    with pytest.raises(UserError, match="file"):
        for _ in stream.members() if text.startswith("{") else stream.items():
            stream.skip()


@pytest.mark.parametrize("order", [("name", "rows"), ("rows", "name")])
def test_rows_under_a_usual_key_are_found_wherever_it_stands(tmp_path: Path, order: tuple[str, str]) -> None:
    document = {"name": "set", "rows": [row("a", "b"), row("c", "d")]}
    path = tmp_path / "set.json"
    path.write_text(json.dumps({key: document[key] for key in order}))
    found, others, _ = read(path)
    assert others == [] and [turns(conversation)[1][1] for conversation in found] == ["b", "d"]


def test_objects_that_follow_one_another_over_several_lines_are_all_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text("\n".join(json.dumps(row(f"q{n}", f"a{n}"), indent=2) for n in range(3)))
    found, others, _ = read(path)
    assert others == [] and [turns(conversation)[1][1] for conversation in found] == ["a0", "a1", "a2"]


def test_text_behind_an_array_is_refused() -> None:
    with pytest.raises(UserError, match="there is more text after its end: 'x'"):
        list(iter_json_items(lambda: iter(["[1, 2] x"]), "file"))


def _message(number: int, speaker: str, words: str) -> dict[str, Any]:
    return {
        "id": number,
        "type": "message",
        "date": f"2024-01-05T12:{number % 60:02}:00",
        "from": speaker,
        "from_id": f"user{len(speaker)}",
        "text": words,
    }


CHAT = [_message(1, "Ann", "Lunch?"), _message(2, "Ben Braun", "At noon")]
ACCOUNT = {
    "personal_information": {"user_id": 9},
    "chats": {"about": "x", "list": [{"name": "Ann", "type": "personal_chat", "id": 1, "messages": CHAT}]},
}


@pytest.mark.parametrize("order", [("name", "type", "messages"), ("messages", "name", "type"), ("messages", "type", "name")])
def test_telegram_chat_may_have_its_keys_in_any_order(tmp_path: Path, order: tuple[str, ...]) -> None:
    chat = {"name": "Ann [1]", "type": "personal_chat", "messages": CHAT}
    path = tmp_path / "result.json"
    path.write_text(json.dumps({key: chat[key] for key in order}, indent=1))
    assert format_of(path) == "telegram"
    found, others, _ = read(path, me=("Ben Braun",))
    assert others == [] and [turns(conversation) for conversation in found] == [[("user", "Lunch?"), ("assistant", "At noon")]]
    assert found[0].metadata["chat"] == "1 Ann [1]"


def test_telegram_account_may_name_its_owner_and_its_chats_last(tmp_path: Path) -> None:
    chat = ACCOUNT["chats"]["list"][0]
    turned = {"chats": {"list": [{key: chat[key] for key in reversed(chat)}]}, "personal_information": ACCOUNT["personal_information"]}
    for name, document in (("usual.json", ACCOUNT), ("turned.json", turned)):
        path = tmp_path / name
        path.write_text(json.dumps(document, indent=1))
        found, others, _ = read(path)
        assert others == [] and [turns(conversation) for conversation in found] == [[("user", "Lunch?"), ("assistant", "At noon")]]


def write_items(path: Path, n_bytes: int, head: str, item: Callable[[int, random.Random], dict], tail: str, indent: int | None = None) -> None:
    """A document of that size: as many items as it takes between head and tail."""
    rng = random.Random(3)
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(head)
        number = 0
        while stream.tell() < n_bytes:
            stream.write(("," if number else "") + json.dumps(item(number, rng), indent=indent))
            number += 1
        stream.write(tail)


def letters(rng: random.Random, count: int) -> str:
    return "".join(rng.choices("abcdefg hij", k=count))


def write_telegram(path: Path, n_bytes: int) -> None:
    """An account's export: many chats, everything that has to be known at the very end."""

    def chat(number: int, rng: random.Random) -> dict:
        messages = [_message(n, ("Ann", "Ben Braun")[n % 2], letters(rng, 90)) for n in range(200)]
        return {"messages": messages, "type": "personal_chat", "name": f"chat {number}"}

    write_items(path, n_bytes, '{\n "chats": {"list": [', chat, ']},\n "personal_information": {"user_id": 9}\n}\n', indent=1)


def write_chatgpt(path: Path, n_bytes: int) -> None:
    def conversation(number: int, rng: random.Random) -> dict:
        nodes = {
            str(n): {
                "id": str(n),
                "parent": str(n - 1) if n else None,
                "children": [str(n + 1)],
                "message": {"author": {"role": ("user", "assistant")[n % 2]}, "content": {"content_type": "text", "parts": [letters(rng, 400)]}},
            }
            for n in range(40)
        }
        return {"title": f"t{number}", "mapping": nodes, "current_node": "39"}

    write_items(path, n_bytes, "[", conversation, "]")


def write_rows(path: Path, n_bytes: int) -> None:
    write_items(path, n_bytes, '{"data": [', lambda number, rng: row(f"q{number}", letters(rng, 900)), '], "version": 1}')


WRITERS = {"telegram": write_telegram, "chatgpt": write_chatgpt, "rows": write_rows}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_large_document_is_read_in_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path, int], None]) -> None:
    """3 MB are read in pieces of 32 KB, holding some of those, one value and one conversation."""
    monkeypatch.setattr("mobilefinetuner.runtime.data.files.encoding._CHUNK_BYTES", 1 << 15)
    monkeypatch.setattr("mobilefinetuner.runtime.data.files.sources._HASH_CHUNK_BYTES", 1 << 15)
    path = tmp_path / "large.json"
    write(path, 3 << 20)
    reading = Reading(sources_under([path]), scenario(), ReadOptions(), IngestReport())
    tracemalloc.start()
    try:
        count = sum(1 for _ in reading.items())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count > 20
    assert peak < 1 << 20


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITERS)
def test_two_hundred_megabytes_need_no_more_memory_than_a_few(tmp_path: Path, name: str) -> None:
    path = tmp_path / "huge.json"
    WRITERS[name](path, 200 << 20)
    program = (
        "import re, sys\n"
        "from tests.support.chatml import scenario\n"
        "from mobilefinetuner.runtime.data.readers.format import ReadOptions\n"
        "from mobilefinetuner.runtime.data.reading import Reading, sources_under\n"
        "from mobilefinetuner.runtime.data.report import IngestReport\n"
        "peak_kb = lambda: int(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])\n"
        "reading, before = Reading(sources_under([sys.argv[1]]), scenario(), ReadOptions(), IngestReport()), peak_kb()\n"
        "print(sum(1 for _ in reading.items()), peak_kb() - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], cwd=ROOT, capture_output=True, text=True, check=True)
    count, grown_kb = map(int, done.stdout.split())
    assert count > 300 and grown_kb < 40 << 10
