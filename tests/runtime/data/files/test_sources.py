"""Which files are read when files, folders and archives are named."""

from __future__ import annotations

import errno
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from mobilefinetuner.runtime.data.reading import sources_under
from mobilefinetuner.runtime.errors import UserError

from tests.support.ingesting import jsonl, row, take_in


def _zip(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def test_folders_and_archives_are_opened_in_the_order_of_their_names(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "notes.md").write_text("note")
    (tmp_path / "a.jsonl").write_text("{}")
    (tmp_path / "picture.jpg").write_bytes(b"\xff")
    (tmp_path / ".hidden.txt").write_text("no")
    _zip(tmp_path / "c.zip", {"chat/_chat.txt": b"hello", "chat/PHOTO.jpg": b"x", "__MACOSX/._chat.txt": b"x"})
    names = [source.name.removeprefix(f"{tmp_path}{os.sep}") for source in sources_under([tmp_path])]
    assert names == ["a.jsonl", "c.zip!chat/_chat.txt", "b/notes.md"]


def test_archive_members_are_streamed(tmp_path: Path) -> None:
    path = _zip(tmp_path / "x.zip", {"../../evil.txt": b"just text"})
    (source,) = sources_under([path])
    with source.open() as stream:
        assert stream.read() == b"just text"
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.zip"]


def test_archive_is_known_by_its_content(tmp_path: Path) -> None:
    path = _zip(tmp_path / "export.bin", {"a.txt": b"text"})
    assert [source.member for source in sources_under([path])] == ["a.txt"]


def test_file_named_twice_is_read_once(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("x")
    assert len(sources_under([file, tmp_path, tmp_path / "." / "a.txt"])) == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda folder: folder / "missing.txt",
        lambda folder: _zip(folder / "empty.zip", {}),
        lambda folder: _zip(folder / "pictures.zip", {"a.jpg": b"x"}),
        lambda folder: _zip(folder / "bomb.zip", {"a.txt": b"\0" * 30_000_000}),
        lambda folder: (folder / "broken.zip", (folder / "broken.zip").write_bytes(b"PK\x03\x04nonsense"))[0],
        lambda folder: (folder / "nothing", (folder / "nothing").mkdir())[0],
    ],
    ids=["missing", "empty archive", "no text in the archive", "absurd ratio", "broken archive", "empty folder"],
)
def test_what_cannot_be_read_is_refused_in_a_sentence(tmp_path: Path, make) -> None:
    with pytest.raises(UserError) as caught:
        sources_under([make(tmp_path)])
    assert caught.value.exit_code == 2 and "\n" not in str(caught.value)


def _refusing(path: Path, open_it: Callable) -> Callable:
    """`open_it`, but not for this path: as root, permissions refuse nothing."""

    def refusing(name, *arguments, **options):
        if Path(name) == path:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return open_it(name, *arguments, **options)

    return refusing


def test_stray_files_that_cannot_be_read_are_reported_and_the_rest_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "exports"
    (folder / "closed").mkdir(parents=True)
    jsonl(folder / "good.jsonl", *(row(f"Question {n}?", f"Answer {n}.") for n in range(3)))
    (folder / "broken.zip").write_bytes(b"PK\x03\x04nonsense")
    _zip(folder / "pictures.zip", {"a.jpg": b"x"})
    (folder / "secret.txt").write_text("diary")
    monkeypatch.setattr("mobilefinetuner.runtime.data.files.sources.open", _refusing(folder / "secret.txt", open), raising=False)
    monkeypatch.setattr(os, "scandir", _refusing(folder / "closed", os.scandir))
    report = take_in(folder, tmp_path / "cache")
    assert report.kept == 3
    assert {Path(entry.name).name: entry.skipped.split(": ", 1)[1].split(" (")[0] for entry in report.files if entry.skipped} == {
        "broken.zip": "is not a readable zip archive",
        "pictures.zip": "holds no file that can be read; allowed: .csv .json .jsonl .markdown .md .ndjson .text .tsv .txt",
        "secret.txt": "cannot be read",
        "closed": "cannot be read",
    }
    assert f"{folder / 'secret.txt'}: left out, cannot be read (Permission denied)" in report.as_text()
    with pytest.raises(UserError, match=r"secret.txt: cannot be read"):
        take_in([folder, folder / "secret.txt"], tmp_path / "cache")


def test_stray_archive_member_that_is_damaged_is_reported_and_the_rest_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "exports"
    folder.mkdir()
    jsonl(folder / "good.jsonl", *(row(f"Question {n}?", f"Answer {n}.") for n in range(3)))
    path = _zip(folder / "x.zip", {"a.txt": bytes(range(97, 123)) * 4000})
    data = bytearray(path.read_bytes())
    data[60:80] = b"\xaa" * 20
    path.write_bytes(data)
    report = take_in(folder, tmp_path / "cache")
    assert report.kept == 3 and report.files[1].skipped != ""
    assert take_in(folder, tmp_path / "cache").reused


def test_damaged_archive_member_is_refused_when_it_is_read(tmp_path: Path) -> None:
    path = _zip(tmp_path / "x.zip", {"a.txt": bytes(range(97, 123)) * 400})
    data = bytearray(path.read_bytes())
    data[60:80] = b"\xaa" * 20
    path.write_bytes(data)
    (source,) = sources_under([path])
    with pytest.raises(UserError, match="cannot be read"):
        source.sha256()
