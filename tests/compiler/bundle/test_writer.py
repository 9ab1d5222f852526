"""A bundle is written in one step, always with the same bytes, and never over anything that is not a bundle."""

import errno
import json
import os

import pytest
from mobilefinetuner.compiler.bundle import writer as bundle_writer
from mobilefinetuner.compiler.bundle.writer import write_bundle
from mobilefinetuner.runtime.bundle.folder import Bundle
from mobilefinetuner.runtime.errors import UserError
from mobilefinetuner.runtime.storage.durable import FileLayer, use_layer

from tests.support.failing_storage import Recording, failing_once

FIELDS = {"abi": {"arch": "x86_64"}, "base_conversions": [], "recipe": {"a": 1.5}, "required_cpu_features": [], "tools": {"llvm": "1"}}
FILES = {"a.bin": b"aaa", "b.json": b"{}"}


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def only(tmp_path, *names):
    return sorted(path.name for path in tmp_path.iterdir()) == sorted(names)


def test_two_builds_have_the_same_bytes_whatever_the_order_of_their_parts(tmp_path):
    one = write_bundle(tmp_path / "one", FILES, FIELDS)
    other = write_bundle(tmp_path / "other", dict(reversed(FILES.items())), dict(reversed(FIELDS.items())))
    assert contents(one) == contents(other)
    assert Bundle.open(one, to_execute=False).bundle_id == Bundle.open(other, to_execute=False).bundle_id


@pytest.mark.parametrize("change", [{"recipe": {"a": 2}}, {"tools": {"llvm": "2"}}, {"required_cpu_features": ["avx2"]}], ids=str)
def test_whatever_is_different_gives_another_id(tmp_path, change):
    ids = {Bundle.open(write_bundle(tmp_path / str(n), files, fields), to_execute=False).bundle_id
           for n, (files, fields) in enumerate([(FILES, FIELDS), (FILES, {**FIELDS, **change}), ({**FILES, "b.json": b"[]"}, FIELDS)])}  # fmt: skip
    assert len(ids) == 3


def test_a_file_can_be_given_by_its_path(tmp_path):
    source = tmp_path / "weights"
    source.write_bytes(os.urandom(3 << 20))
    bundle = write_bundle(tmp_path / "deep" / "er" / "b", {"model.gguf": source}, FIELDS)
    assert Bundle.open(bundle, to_execute=False).path("model.gguf").read_bytes() == source.read_bytes()


def test_the_same_content_leaves_the_bundle_that_is_there_alone(tmp_path):
    bundle = write_bundle(tmp_path / "b", FILES, FIELDS)
    before = (bundle.stat().st_ino, (bundle / "a.bin").stat().st_ino)
    write_bundle(bundle, FILES, FIELDS)
    assert (bundle.stat().st_ino, (bundle / "a.bin").stat().st_ino) == before and only(tmp_path, "b")


def test_a_damaged_bundle_of_the_same_content_is_replaced(tmp_path):
    bundle = write_bundle(tmp_path / "b", FILES, FIELDS)
    (bundle / "a.bin").write_bytes(b"aab")
    write_bundle(bundle, FILES, FIELDS)
    assert (bundle / "a.bin").read_bytes() == b"aaa"


@pytest.mark.parametrize("exchange", [True, False], ids=["in one step", "without renameat2"])
def test_other_content_replaces_the_bundle_and_who_has_the_old_one_open_keeps_it(tmp_path, monkeypatch, exchange):
    if not exchange:
        monkeypatch.setattr(FileLayer, "exchange", lambda self, one, other: False)
    bundle = write_bundle(tmp_path / "b", FILES, FIELDS)
    with open(bundle / "a.bin", "rb") as old:
        write_bundle(bundle, {"a.bin": b"new"}, FIELDS)
        assert old.read() == b"aaa"
    assert contents(bundle).keys() == {"a.bin", "manifest.json"} and (bundle / "a.bin").read_bytes() == b"new"
    assert only(tmp_path, "b")


def test_an_empty_folder_becomes_the_bundle(tmp_path):
    (tmp_path / "b").mkdir()
    assert Bundle.open(write_bundle(tmp_path / "b", FILES, FIELDS), to_execute=False)


def test_a_folder_that_is_no_bundle_is_refused_and_untouched(tmp_path):
    for name, files in {"photos": {"me.jpg": "x"}, "site": {"manifest.json": '{"name": "my web page"}', "index.html": ""}}.items():
        (tmp_path / name).mkdir()
        for file, text in files.items():
            (tmp_path / name / file).write_text(text)
        with pytest.raises(UserError, match="not a bundle"):
            write_bundle(tmp_path / name, FILES, FIELDS)
        assert {path.name for path in (tmp_path / name).iterdir()} == set(files)


def test_a_bundle_with_somebodys_own_files_in_it_is_not_replaced(tmp_path):
    bundle = write_bundle(tmp_path / "b", FILES, FIELDS)
    (bundle / "workspace").mkdir()
    with pytest.raises(UserError, match="workspace"):
        write_bundle(bundle, {"a.bin": b"new"}, FIELDS)
    assert (bundle / "workspace").is_dir()


def test_a_bundle_of_another_format_version_is_replaced(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "manifest.json").write_text(json.dumps({"bundle_id": "x", "files": {}, "format_version": 0}))
    assert Bundle.open(write_bundle(tmp_path / "b", FILES, FIELDS), to_execute=False)


def test_a_file_or_a_link_in_the_way_is_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    os.symlink(tmp_path, tmp_path / "link")
    for name in ("file", "link"):
        with pytest.raises(UserError, match="out=DIR"):
            write_bundle(tmp_path / name, FILES, FIELDS)


def operations(tmp_path):
    """How many times the storage is changed when one bundle replaces another."""
    bundle = write_bundle(tmp_path / "counted", FILES, FIELDS)
    layer = Recording()
    with use_layer(layer):
        write_bundle(bundle, {"a.bin": b"new"}, FIELDS)
    return len(layer.log)


@pytest.mark.parametrize("exchange", [True, False], ids=["in one step", "without renameat2"])
def test_a_failure_at_any_step_leaves_the_old_bundle_or_the_new_one_and_no_leftovers(tmp_path, monkeypatch, exchange):
    if not exchange:
        monkeypatch.setattr(FileLayer, "exchange", lambda self, one, other: False)
    steps = operations(tmp_path)
    assert steps > 15
    for step in range(1, steps + 1):
        bundle = write_bundle(tmp_path / str(step) / "b", FILES, FIELDS)
        with use_layer(failing_once(step, errno.ENOSPC)), pytest.raises(UserError, match=r"the bundle cannot be written \(No space left.*out=DIR"):
            write_bundle(bundle, {"a.bin": b"new"}, FIELDS)
        assert Bundle.open(bundle, to_execute=False)
        write_bundle(bundle, {"a.bin": b"newer"}, FIELDS)
        assert (bundle / "a.bin").read_bytes() == b"newer" and only(tmp_path / str(step), "b"), step


def test_a_volume_without_room_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(FileLayer, "free_bytes", lambda self, folder: 2)
    with pytest.raises(UserError, match=r"bytes are needed and 2 are free; try: out=DIR"):
        write_bundle(tmp_path / "b", FILES, FIELDS)
    assert only(tmp_path)


def test_what_a_killed_compiler_left_is_removed_and_what_a_running_one_writes_is_not(tmp_path):
    with open("/proc/sys/kernel/pid_max", encoding="ascii") as file:
        dead = int(file.read()) + 1
    for pid in (dead, os.getppid()):
        (tmp_path / f".b.{pid}.xyz.building").mkdir()
    write_bundle(tmp_path / "b", FILES, FIELDS)
    assert only(tmp_path, "b", f".b.{os.getppid()}.xyz.building")


def test_a_source_that_changes_while_it_is_copied_is_noticed(tmp_path, monkeypatch):
    source = tmp_path / "w"
    source.write_bytes(b"first")
    fill = bundle_writer._fill

    def change_then_fill(*arguments):
        source.write_bytes(b"other")
        fill(*arguments)

    monkeypatch.setattr(bundle_writer, "_fill", change_then_fill)
    with pytest.raises(UserError, match="changed while"):
        write_bundle(tmp_path / "b", {"w": source}, FIELDS)


@pytest.mark.parametrize("name", ["../x", "a/b", ".x", "manifest.json", ""])
def test_a_file_name_that_would_not_open_is_our_own_mistake(tmp_path, name):
    with pytest.raises(ValueError):
        write_bundle(tmp_path / "b", {name: b""}, FIELDS)


def test_a_forgotten_or_surplus_manifest_field_is_our_own_mistake(tmp_path):
    with pytest.raises(ValueError):
        write_bundle(tmp_path / "b", FILES, {**FIELDS, "time": 1})
    with pytest.raises(ValueError):
        write_bundle(tmp_path / "b", FILES, {"abi": {}})
