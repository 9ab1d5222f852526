"""JSON rows in their published shapes, well-formed and not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mobilefinetuner.runtime.data.readers.rows import iter_json_items
from mobilefinetuner.runtime.errors import UserError

from tests.support.ingesting import format_of, jsonl, read, row, turns

TOOL_ROW = {
    "messages": [
        {"role": "system", "content": "Use the tools."},
        {"role": "user", "content": "Weather in Boston?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Boston"}'}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": '{"celsius": 21}'},
        {"role": "assistant", "content": "21 degrees."},
    ],
    "tools": [{"type": "function"}],
    "parallel_tool_calls": False,
}

SHAPED = {
    "openai": ({"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}]}, [("user", "Q"), ("assistant", "A")]),
    "sharegpt": ({"id": "x", "conversations": [{"from": "human", "value": "Q"}, {"from": "gpt", "value": "A"}]}, [("user", "Q"), ("assistant", "A")]),
    "alpaca": ({"instruction": "Translate.", "input": "Haus", "output": "house"}, [("user", "Translate.\n\nHaus"), ("assistant", "house")]),
    "prompt_completion": ({"prompt": "Q", "completion": " A"}, [("user", "Q"), ("assistant", " A")]),
    "preference": ({"prompt": "Q", "chosen": "good", "rejected": "bad"}, [("user", "Q"), ("assistant", "good")]),
    "text_rows": ({"text": "A note of mine."}, [("assistant", "A note of mine.")]),
}


@pytest.mark.parametrize("shape", SHAPED)
@pytest.mark.parametrize("layout", ["jsonl", "array", "indented array", "single object"])
def test_every_shape_is_read_in_every_layout(tmp_path: Path, shape: str, layout: str) -> None:
    content, expected = SHAPED[shape]
    rows = [content, content]
    text = {
        "jsonl": "\n".join(map(json.dumps, rows)),
        "array": json.dumps(rows),
        "indented array": json.dumps(rows, indent=2),
        "single object": json.dumps(content, indent=1),
    }[layout]
    path = tmp_path / ("rows.json" if layout != "jsonl" else "rows.jsonl")
    path.write_text(text)
    assert format_of(path) == shape
    found, others, _ = read(path)
    assert [turns(conversation) for conversation in found] == [expected] * (1 if layout == "single object" else 2)
    assert others == []


def test_tool_calls_and_results_are_context_and_null_content_beside_a_call_is_legal(tmp_path: Path) -> None:
    found, others, _ = read(jsonl(tmp_path / "t.jsonl", TOOL_ROW))
    assert others == []
    assert turns(found[0]) == [
        ("system", "Use the tools."),
        ("user", "Weather in Boston?"),
        ("tool", 'get_weather({"city": "Boston"})'),
        ("tool", '{"celsius": 21}'),
        ("assistant", "21 degrees."),
    ]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('{"messages": [{"role": "user", "content": "Q"}', "bad_json"),
        ("[1, 2]", "bad_row"),
        ('{"other": 1}', "bad_row"),
        ({"messages": []}, "no_messages"),
        ({"messages": "Q"}, "no_messages"),
        ({"messages": ["Q"]}, "bad_turn"),
        ({"messages": [{"role": "wizard", "content": "Q"}]}, "unknown_role"),
        ({"messages": [{"role": ["user"], "content": "Q"}]}, "unknown_role"),
        ({"messages": [{"role": "assistant", "content": None}]}, "null_content"),
        ({"messages": [{"role": "assistant", "content": 7}]}, "bad_turn"),
        ({"messages": [{"role": "user", "content": "Q"}, {"role": "system", "content": "S"}]}, "late_system_turn"),
        ({"messages": [{"role": "assistant", "content": None, "tool_calls": [{"id": 1}]}]}, "bad_turn"),
    ],
    ids=lambda value: value if isinstance(value, str) and "_" in value else "",
)
def test_bad_row_is_quarantined_with_its_line_and_the_next_row_is_read(tmp_path: Path, content, reason: str) -> None:
    found, others, _ = read(jsonl(tmp_path / "r.jsonl", row("a", "b"), content, row("c", "d")))
    assert [conversation.metadata["line"] for conversation in found] == [1, 3]
    assert [(item.line, item.reason) for item in others] == [(2, reason)]


def test_undecodable_row_is_quarantined_with_its_byte_offset(tmp_path: Path) -> None:
    good = json.dumps(row("a", "b")).encode()
    path = tmp_path / "r.jsonl"
    path.write_bytes(good + b'\n{"messages": "\xff"}\n' + good + b"\n")
    found, others, _ = read(path)
    assert len(found) == 2
    assert others[0].reason == "undecodable" and f"byte {len(good) + 15}" in others[0].detail


def test_neighbouring_turns_of_one_role_are_joined(tmp_path: Path) -> None:
    messages = [{"role": role, "content": text} for role, text in (("user", "a"), ("user", "b"), ("assistant", "c"), ("assistant", "d"))]
    found, _, _ = read(jsonl(tmp_path / "r.jsonl", {"messages": messages}))
    assert turns(found[0]) == [("user", "a\nb"), ("assistant", "c\nd")]


def test_content_in_parts_keeps_its_texts(tmp_path: Path) -> None:
    parts = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": "x"}}, {"type": "text", "text": "Quick!"}]
    found, _, _ = read(jsonl(tmp_path / "r.jsonl", {"messages": [{"role": "user", "content": parts}, {"role": "assistant", "content": "A cat."}]}))
    assert found[0].messages[0].text.split("\n") == ["What is this?", "", "Quick!"]


def test_answer_of_weight_zero_is_marked_as_not_trained(tmp_path: Path) -> None:
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b", "weight": 0},
        {"role": "user", "content": "c"},
        {"role": "assistant", "content": "d", "weight": 1},
    ]
    found, _, _ = read(jsonl(tmp_path / "r.jsonl", {"messages": messages}))
    assert [message.metadata.get("train", True) for message in found[0].messages] == [True, False, True, True]


def test_preference_rows_keep_both_answers(tmp_path: Path) -> None:
    chosen = [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "good"}]
    rejected = [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "bad"}]
    found, _, _ = read(jsonl(tmp_path / "p.jsonl", {"chosen": chosen, "rejected": rejected}))
    assert turns(found[0]) == [("user", "Q"), ("assistant", "good")]
    assert found[0].metadata["pair"] == {"chosen": chosen, "rejected": rejected}


def test_alpaca_history_and_system_come_first(tmp_path: Path) -> None:
    content = {"instruction": "And now?", "input": "", "output": "Now.", "system": "S", "history": [["Then?", "Then."]]}
    found, _, _ = read(jsonl(tmp_path / "a.jsonl", content))
    assert turns(found[0]) == [("system", "S"), ("user", "Then?"), ("assistant", "Then."), ("user", "And now?"), ("assistant", "Now.")]


def test_line_separators_inside_a_string_do_not_break_a_row(tmp_path: Path) -> None:
    text = "one\u2028two\u2029three\x85four"
    found, others, _ = read(jsonl(tmp_path / "r.jsonl", row("q", text)))
    assert others == [] and found[0].messages[1].text == text


def test_cut_off_array_says_so(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps([row("a", "b")] * 3)[:-20])
    with pytest.raises(UserError, match=r"a.json"):
        read(path)


def test_array_larger_than_the_read_buffer_is_read_item_by_item(tmp_path: Path) -> None:
    path = tmp_path / "big.json"
    rows = [row(f"question {n} " + "x" * 700, f"answer {n}") for n in range(4000)]
    path.write_text(json.dumps(rows))
    found, others, _ = read(path)
    assert len(found) == 4000 and others == []
    assert found[-1].messages[1].text == "answer 3999" and found[-1].metadata["line"] == 4000


@settings(max_examples=150)
@given(
    st.lists(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
            max_leaves=6,
        ),
        max_size=6,
    ),
    st.integers(1, 7),
    st.sampled_from([None, 2]),
)
def test_items_of_any_array_come_back_whatever_pieces_it_arrives_in(items: list, size: int, indent: int | None) -> None:
    text = json.dumps(items, indent=indent, ensure_ascii=False)
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    assert list(iter_json_items(lambda: iter(pieces), "file")) == items


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@settings(max_examples=60)
@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=5), st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "gb18030"]), st.booleans())
def test_arbitrary_text_comes_back_exactly(tmp_path_factory, pairs, encoding: str, escaped: bool) -> None:
    path = tmp_path_factory.mktemp("rows") / "r.jsonl"
    path.write_bytes("\n".join(json.dumps(row(*pair), ensure_ascii=escaped) for pair in pairs).encode(encoding))
    found, others, _ = read(path, encoding="gb18030" if encoding == "gb18030" else None)
    assert others == []
    assert [tuple(message.text for message in conversation.messages) for conversation in found] == pairs


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["role", "content", "from", "value", "messages", "tool_calls", "text"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=150)
@given(
    st.dictionaries(
        st.sampled_from(
            ["messages", "conversations", "instruction", "input", "output", "prompt", "completion", "chosen", "rejected", "text", "history", "system"]
        ),
        JSON_VALUES,
        min_size=1,
    )
)
def test_row_of_any_json_is_a_conversation_or_is_quarantined(tmp_path_factory, content: dict) -> None:
    path = jsonl(tmp_path_factory.mktemp("rows") / "r.jsonl", content)
    found, others, _ = read(path)
    assert len(found) + len(others) == 1
