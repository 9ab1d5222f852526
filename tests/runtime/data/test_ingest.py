"""Whole ingest runs: real files in, a cache and an account of every record out."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mobilefinetuner.runtime.data import IngestOptions, IngestReport, Scenario, ingest
from mobilefinetuner.runtime.data.scenario import scenario_document
from mobilefinetuner.runtime.errors import UserError

from tests.support.chatml import byte_tokenizer, chatml
from tests.support.ingesting import CASES, cache_of, jsonl, row, take_in

TEMPLATES = Path(__file__).parents[3] / "templates"


def _template(name: str, **settings_: object) -> Scenario:
    document = scenario_document(TEMPLATES / name, {"name": name, "template": name, "window_tokens": 256, **settings_}, chatml().to_dict())
    return Scenario.from_json(document)


def _with_template(name: str, path: Path, cache_dir: Path, **options: object) -> IngestReport:
    return ingest([path], _template(name), byte_tokenizer(), chatml(), cache_dir, IngestOptions(**options))


def test_the_shop_is_kept_whole(tmp_path: Path) -> None:
    report = _with_template("customer_service", CASES / "customer_service_shop.jsonl", tmp_path)
    assert (report.records, report.kept, dict(report.dropped), dict(report.turns_removed), dict(report.redacted)) == (96, 96, {}, {}, {})


@pytest.mark.parametrize(("name", "records", "dropped"), [("education.en.jsonl", 321, {}), ("education.zh.jsonl", 223, {"duplicate": 1})])
def test_lessons_are_kept_but_for_the_duplicate(tmp_path: Path, name: str, records: int, dropped: dict[str, int]) -> None:
    report = _with_template("education", CASES / name, tmp_path)
    assert (report.records, dict(report.dropped), dict(report.turns_removed)) == (records, dropped, {})
    for decision in cache_of(report).decisions():
        assert (decision["line"], decision["detail"]) == (112, "is the same as record 81")


def test_poems_are_kept_whole_with_title_and_author(tmp_path: Path) -> None:
    report = _with_template("writing", CASES / "writing_poems.zh.txt", tmp_path)
    assert (report.records, report.kept) == (250, 250)
    extras = list(cache_of(report).extras())
    assert extras[0] == {"record": 0, "title": "感遇・其一", "author": "张九龄"} and len(extras) == 250


def test_repetitive_file_stops_the_run_and_goes_on_when_told_to(tmp_path: Path) -> None:
    path = CASES / "tech_support_raw.en.jsonl"
    with pytest.raises(UserError, match=r"1,040 of its 1,050 dialogues are duplicates.*--max-drop-share 1"):
        _with_template("customer_service", path, tmp_path / "cache")
    assert not (tmp_path / "cache").exists()
    assert _with_template("customer_service", path, tmp_path / "cache", max_drop_share=1.0).kept == 10


def test_records_are_kept_or_dropped_and_json_says_the_same_as_the_files(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    jsonl(folder / "a.jsonl", row("Is it open?", "Yes, daily."), "{broken", row("Is it open?", "Yes, daily."), row("a", "   "))
    (folder / "b.md").write_text("# Lamp\nA lamp that stands on the floor gives warm light.\n")
    report = take_in(folder, tmp_path / "cache")
    document = report.as_json()
    assert json.loads(json.dumps(document)) == document
    assert (document["records"], document["kept"]) == (5, 2)
    assert document["dropped"] == {"bad_json": 1, "duplicate": 1, "blank": 1}
    assert document["records"] == document["kept"] + sum(document["dropped"].values())
    assert [(entry["records"], entry["kept"]) for entry in document["files"]] == [(4, 1), (1, 1)]
    assert sum(document["histogram"]) == document["windows"] == 2
    decisions = [(decision["record"], decision["line"], decision["rule"]) for decision in cache_of(report).decisions()]
    assert decisions == [(2, 2, "bad_json"), (3, 3, "duplicate"), (4, 4, "blank")]
    assert IngestReport.from_json(document).as_json() == document


def test_unchanged_data_is_reused_and_anything_that_decides_the_samples_rebuilds(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", *(row(f"Question {n}?", f"Answer {n}.") for n in range(3)))
    first = take_in(path, tmp_path / "cache")
    again = take_in(path, tmp_path / "cache")
    assert (first.reused, again.reused) == (False, True)
    assert {**again.as_json(), "reused": False} == first.as_json()
    others = [
        take_in(path, tmp_path / "cache", rules={"min_answer_chars": 2}),
        take_in(path, tmp_path / "cache", window_tokens=300),
        take_in(path, tmp_path / "cache", settings={"system_prompt": "Hi."}),
        take_in(path, tmp_path / "cache", model={"tokenizer_sha256": "other"}),
    ]
    path.write_text(path.read_text() + json.dumps(row("More?", "More.")) + "\n")
    others.append(take_in(path, tmp_path / "cache"))
    assert not any(report.reused for report in others)
    assert len({report.fingerprint for report in [first, *others]}) == 6


def test_other_train_settings_rewrite_the_cache_under_the_same_fingerprint(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", row("Question?", "Answer."))
    first = take_in(path, tmp_path / "cache", train={"learning_rate": 1})
    other = take_in(path, tmp_path / "cache", train={"learning_rate": 2})
    assert not other.reused and other.fingerprint == first.fingerprint
    assert cache_of(other).header["train"] == {"learning_rate": 2}


def test_damaged_cache_is_built_again(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", row("Question?", "Answer."))
    cache = Path(take_in(path, tmp_path / "cache").cache)
    cache.write_bytes(cache.read_bytes()[:-10])
    report = take_in(path, tmp_path / "cache")
    assert not report.reused and len(cache_of(report).samples("train")) == 1


def test_heldout_conversations_are_a_stable_share_and_none_of_fewer_than_ten(tmp_path: Path) -> None:
    rows = [row(f"What is {n} plus {n}?", f"It is {2 * n}.") for n in range(200)]
    whole = take_in(jsonl(tmp_path / "a.jsonl", *rows), tmp_path / "cache")
    half = take_in(jsonl(tmp_path / "b.jsonl", *rows[100:]), tmp_path / "cache")
    few = take_in(jsonl(tmp_path / "c.jsonl", *rows[:9]), tmp_path / "cache")
    ten = take_in(jsonl(tmp_path / "d.jsonl", *rows[:10]), tmp_path / "cache", settings={"heldout_share": 0.0001})
    assert 8 <= whole.heldout <= 32 and whole.heldout_windows == len(cache_of(whole).samples("heldout")) == whole.heldout
    assert len(cache_of(whole).samples("train")) == 200 - whole.heldout
    assert (few.heldout, ten.heldout, ten.heldout_windows) == (0, 1, 1)
    texts = {
        name: {bytes(sample.token_ids.tobytes()) for sample in cache_of(report).samples("heldout")}
        for name, report in (("whole", whole), ("half", half))
    }
    assert texts["half"] <= texts["whole"]


def test_zip_and_folder_and_files_give_the_same_samples(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    jsonl(folder / "a.jsonl", row("Question?", "Answer."))
    with zipfile.ZipFile(tmp_path / "data.zip", "w") as archive:
        archive.write(folder / "a.jsonl", "a.jsonl")
    samples = [
        cache_of(take_in(path, tmp_path / f"cache{n}")).samples("train")[0].token_ids.tolist()
        for n, path in enumerate((folder, folder / "a.jsonl", tmp_path / "data.zip"))
    ]
    assert samples[0] == samples[1] == samples[2]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("empty.jsonl", b"", "is empty"),
        ("blank.jsonl", b"\n  \n", "is empty"),
        ("no_answer.jsonl", b'{"messages": [{"role": "user", "content": "hi"}]}\n', "no assistant turn"),
        ("latin.txt", "où êtes-vous allés hier après-midi?".encode("latin-1"), "not valid UTF-8"),
        ("binary.jsonl", b"\x00\x01\x02\x03", "not a text file"),
        ("cut.json", b'[{"messages": [{"role": "user"', "not valid JSON"),
        ("chat.txt", b"05.03.24, 21:07 - Ana: hi\n05.03.24, 21:08 - Ben: ho\n", "its speakers: Ana .1., Ben .1."),
    ],
    ids=lambda value: value if isinstance(value, str) and "." in value else "",
)
def test_data_that_cannot_be_used_ends_in_one_sentence_and_writes_nothing(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UserError, match=words) as caught:
        take_in(path, tmp_path / "workspace" / "cache")
    assert caught.value.exit_code == 2 and "\n" not in str(caught.value)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [name]


def test_half_surrogates_in_texts_and_file_names_are_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / "b\udcffad.jsonl"
    path.write_bytes(
        b'{"messages": [{"role": "user", "content": "\\ud83d"}, {"role": "assistant", "content": "x"}]}\n' + json.dumps(row("Why?", "So.")).encode()
    )
    report = take_in(path, tmp_path / "cache")
    assert dict(report.dropped) == {"broken_unicode": 1}
    assert cache_of(report).provenance(0)[1] == 2 and take_in(path, tmp_path / "cache").reused


def test_rows_of_an_unknown_form_are_refused_with_their_keys(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match="2 of its 2 dialogues were dropped as bad row, for instance line 1: has the keys foo; no known form has these"
    ):
        take_in(jsonl(tmp_path / "a.jsonl", {"foo": 1}, {"foo": 2}), tmp_path / "cache", max_drop_share=None)


def test_damaged_archive_is_blamed_on_the_archive_and_not_on_the_storage(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.jsonl", "".join(json.dumps(row(f"Question {n}?", f"Answer {n}.")) + "\n" for n in range(500)))
    data = bytearray(path.read_bytes())
    data[100:140] = b"\xaa" * 40
    path.write_bytes(data)
    with pytest.raises(UserError, match=r"x.zip!a.jsonl: cannot be read"):
        take_in(path, tmp_path / "cache")


def test_stray_file_in_a_folder_is_reported_and_the_others_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "a.txt").write_bytes(b"\x00binary")
    (folder / "empty.md").write_bytes(b"")
    jsonl(folder / "b.jsonl", row("Question?", "Answer."))
    report = take_in(folder, tmp_path / "cache")
    assert report.kept == 1
    assert [(Path(entry.name).name, bool(entry.skipped)) for entry in report.files] == [("a.txt", True), ("b.jsonl", False), ("empty.md", True)]
    assert "left out" in report.as_text()


def test_folder_of_which_nothing_can_be_read_says_why(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "a.txt").write_bytes(b"\x00binary")
    with pytest.raises(UserError, match=r"nothing in it can be read, for instance .*this is not a text file"):
        take_in(folder, tmp_path / "cache")


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"format": "jsonn"}, "--format: 'jsonn' is not known; allowed: telegram, chatgpt, openai, "),
        ({"encoding": "utf8-ish"}, "--encoding: .* allowed: utf-8, "),
        ({"date_order": "DYM"}, "--date-order: .* allowed: DMY"),
    ],
)
def test_unknown_option_values_are_refused_with_the_known_ones(tmp_path: Path, option: dict[str, str], words: str) -> None:
    with pytest.raises(UserError, match=words):
        take_in(jsonl(tmp_path / "a.jsonl", row("Question?", "Answer.")), tmp_path / "cache", read_options=option)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_file_is_refused(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", row("Question?", "Answer."))
    path.chmod(0)
    with pytest.raises(UserError, match="cannot be read"):
        take_in(path, tmp_path / "cache")


def test_conversation_that_the_chat_template_refuses_is_dropped_with_its_reason(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", row("Question?", "Answer."), row("Think.", "It is reserved text."))
    format_ = chatml().to_dict()
    from mobilefinetuner.runtime.bundle.chat_format import ChatFormat

    chat = ChatFormat.from_dict({**format_, "reserved_texts": ["reserved"]})
    report = ingest([path], _template("customer_service"), byte_tokenizer(), chat, tmp_path / "cache", IngestOptions(max_drop_share=1.0))
    assert dict(report.dropped) == {"chat_template": 1}


def test_preference_rows_train_the_chosen_answer_and_keep_the_pair(tmp_path: Path) -> None:
    report = take_in(jsonl(tmp_path / "p.jsonl", {"prompt": "Q?", "chosen": "good", "rejected": "bad"}), tmp_path / "cache")
    cache = cache_of(report)
    assert list(cache.extras()) == [{"record": 0, "pair": {"prompt": "Q?", "chosen": "good", "rejected": "bad"}}]
    sample = cache.samples("train")[0]
    assert byte_tokenizer().decode(sample.token_ids[sample.label_mask == 1]) == "good<|im_end|>"


def test_cache_describes_itself(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", row("Question?", "Answer."))
    header = cache_of(take_in(path, tmp_path / "cache", model={"layers": 30}, train={"epochs": 8})).header
    assert header["model"] == {"layers": 30} and header["train"] == {"epochs": 8}
    assert header["scenario"]["name"] == "test" and header["report"]["records"] == 1
    assert [source["name"] for source in header["sources"]] == [str(path)]


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(TEXT, min_size=1, max_size=5), min_size=1, max_size=6))
def test_every_record_of_any_text_is_accounted_for(tmp_path_factory, rows) -> None:
    folder = tmp_path_factory.mktemp("ingest")
    path = jsonl(folder / "a.jsonl", *(row(*texts) for texts in rows))
    try:
        report = take_in(path, folder / "cache")
    except UserError as error:
        is_silent = all(len(texts) == 1 for texts in rows)
        assert ("has no assistant turn" if is_silent else "nothing is left to learn") in str(error)
        return
    assert report.records == len(rows) == report.kept + sum(report.dropped.values())
    cache = cache_of(report)
    assert len({sample.record for split in ("train", "heldout") for sample in cache.samples(split)}) == report.kept
    assert sum(decision["action"] == "dropped" for decision in cache.decisions()) == sum(report.dropped.values())
