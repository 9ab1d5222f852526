"""The audit log: every change to its past is noticed, and a torn last line is survived."""

from __future__ import annotations

import json
import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mobilefinetuner.runtime.storage.audit import AuditLog


def filled(path, count: int = 4) -> AuditLog:
    log = AuditLog(path, now=lambda: 1_700_000_000)
    for number in range(count):
        log.append("trained", steps=number, loss=0.5, file="Läden/数据.jsonl")
    return log


def test_records_come_back_in_order_and_the_chain_holds(tmp_path):
    log = filled(tmp_path / "audit.jsonl")
    assert [(record.number, record.event, record.facts["steps"]) for record in log.records()] == [(n + 1, "trained", n) for n in range(4)]
    assert next(log.records()).utc == "2023-11-14T22:13:20Z"
    verdict = log.verify()
    assert verdict.holds and verdict.records == 4 and verdict.torn_bytes == 0
    assert AuditLog(tmp_path / "none.jsonl").verify().holds


def edited(lines: list[bytes], what: str) -> list[bytes]:
    if what == "value changed":
        return [lines[0], lines[1].replace(b'"loss":0.5', b'"loss":0.4'), *lines[2:]]
    if what == "line resealed":
        from hashlib import sha256

        from mobilefinetuner.runtime.storage.durable import canonical_json

        body = json.loads(lines[1])
        body.pop("sha256")
        body["facts"]["loss"] = 0.1
        return [lines[0], canonical_json({**body, "sha256": sha256(canonical_json(body)).hexdigest()}) + b"\n", *lines[2:]]
    return {
        "line removed": lines[:1] + lines[2:],
        "first removed": lines[1:],
        "line twice": lines[:2] + lines[1:],
        "order changed": [lines[1], lines[0], *lines[2:]],
        "last line changed": [*lines[:-1], lines[-1].replace(b"0.5", b"0.6")],
        "noise between": [lines[0], b"\xff\x00\n", *lines[1:]],
    }[what]


@pytest.mark.parametrize(
    "what", ["value changed", "line resealed", "line removed", "first removed", "line twice", "order changed", "last line changed", "noise between"]
)
def test_a_changed_past_is_noticed_and_does_not_stop_the_log(tmp_path, what):
    path = tmp_path / "audit.jsonl"
    log = filled(path)
    path.write_bytes(b"".join(edited(path.read_bytes().splitlines(keepends=True), what)))
    assert not log.verify().holds and "line" in log.verify().fault
    log.append("verified", score=1.0)
    assert not log.verify().holds
    assert [record.event for record in log.records()][-1] == "verified"


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_single_flipped_bit_is_noticed(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "flipped.jsonl"
    path.unlink(missing_ok=True)
    log = filled(path, 3)
    raw = bytearray(path.read_bytes())
    position = data.draw(st.integers(0, len(raw) * 8 - 1))
    raw[position // 8] ^= 1 << position % 8
    path.write_bytes(raw)
    verdict = log.verify()
    if position // 8 == len(raw) - 1:  # a flip of the last newline looks like a torn line
        assert verdict.holds and verdict.torn_bytes and verdict.records == 2
    else:
        assert not verdict.holds and verdict.torn_bytes == 0


def test_a_last_line_torn_anywhere_is_repaired_and_said(tmp_path):
    whole = tmp_path / "whole.jsonl"
    filled(whole)
    last_length = len(whole.read_bytes().splitlines(keepends=True)[-1])
    for torn in range(1, last_length):
        path = tmp_path / "torn.jsonl"
        shutil.copy(whole, path)
        path.write_bytes(path.read_bytes()[:-torn])
        log = AuditLog(path)
        assert log.verify().holds and log.verify().torn_bytes == last_length - torn and log.verify().records == 3
        log.append("resumed", steps=9)
        assert log.verify().holds and log.verify().torn_bytes == 0
        assert [record.event for record in log.records()] == ["trained"] * 3 + ["torn_line_dropped", "resumed"]


def test_a_reader_of_the_old_file_keeps_it_while_the_log_is_repaired(tmp_path):
    path = tmp_path / "audit.jsonl"
    log = filled(path, 2)
    path.write_bytes(path.read_bytes()[:-3])
    before = path.read_bytes()
    with path.open("rb") as reader:
        log.append("resumed")
        assert reader.read() == before


@pytest.mark.parametrize(
    "facts", [{"text": "hello"}, {"sample": {"content": "x"}}, {"reason": "y" * 301}, {"turns": [{"raw": "z"}]}, {"list": ["q" * 400]}]
)
def test_trained_text_is_kept_out(tmp_path, facts):
    log = AuditLog(tmp_path / "audit.jsonl")
    with pytest.raises(ValueError, match="audit fact"):
        log.append("read", **facts)
    assert not log.path.exists()
