"""Code is loaded from where it may run. The noexec mounts are real ones where this user may make them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from mobilefinetuner.runtime.engine import executable_place
from mobilefinetuner.runtime.engine.executable_place import executable_path, may_execute
from mobilefinetuner.runtime.errors import UserError

LIBRARY = bytes(range(256)) * 64


@pytest.fixture
def library(tmp_path) -> Path:
    path = tmp_path / "bundle" / "kernels.so"
    path.parent.mkdir()
    path.write_bytes(LIBRARY)
    return path


@pytest.fixture
def card(monkeypatch):
    """Makes everything below the given folders storage without execution."""

    def forbid(*folders: Path) -> None:
        def allowed(path: Path) -> bool:
            return not any(folder in path.parents for folder in folders)

        monkeypatch.setattr(executable_place, "may_execute", allowed)

    return forbid


def test_a_library_that_may_be_executed_stays_where_it_is(library, tmp_path):
    assert executable_path(library, [tmp_path / "cache"]) == library
    assert not (tmp_path / "cache").exists()


def test_from_a_card_without_execution_the_library_is_copied_to_the_first_place_that_allows_it(library, card, tmp_path):
    (tmp_path / "also-card").mkdir()
    (tmp_path / "cache").mkdir()
    card(library.parent, tmp_path / "also-card")
    copy = executable_path(library, [tmp_path / "also-card", library / "no-folder", tmp_path / "cache"])
    assert tmp_path / "cache" in copy.parents and copy.read_bytes() == LIBRARY
    assert copy.parent.stat().st_mode & 0o077 == 0


def test_a_damaged_copy_is_written_again_and_an_intact_one_is_kept(library, card, tmp_path):
    card(library.parent)
    copy = executable_path(library, [tmp_path / "cache"])
    copy.write_bytes(b"something else")
    assert executable_path(library, [tmp_path / "cache"]).read_bytes() == LIBRARY
    before = copy.stat().st_ino
    assert executable_path(library, [tmp_path / "cache"]).stat().st_ino == before


def test_a_folder_that_is_a_link_of_somebody_is_not_trusted(library, card, tmp_path):
    card(library.parent)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / f"{executable_place.CACHE_FOLDER}-{executable_place.os.getuid()}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError):
        executable_path(library, [tmp_path / "cache"])
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_without_any_place_the_sentence_says_what_to_set(library, card, tmp_path):
    card(tmp_path)
    with pytest.raises(UserError, match="TMPDIR"):
        executable_path(library, [tmp_path / "cache"])


MOUNT = """
set -e
mount -t tmpfs -o noexec,size=1m none "$1/card"
cp "$1/bundle/kernels.so" "$1/card/kernels.so"
exec "$2" -c 'import sys
from pathlib import Path
from mobilefinetuner.runtime.engine.executable_place import executable_path, may_execute
library = Path(sys.argv[1]) / "card" / "kernels.so"
print(may_execute(library), executable_path(library, [Path(sys.argv[1]) / "card", Path(sys.argv[1]) / "cache"]))' "$1"
"""


def test_a_real_noexec_mount_is_noticed(library, tmp_path):
    (tmp_path / "card").mkdir()
    unshare = shutil.which("unshare")
    if not unshare or subprocess.run([unshare, "-rm", "true"], capture_output=True).returncode:
        pytest.skip("this user may not make mounts of its own (unshare)")
    done = subprocess.run([unshare, "-rm", "sh", "-c", MOUNT, "sh", str(tmp_path), sys.executable], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answer, place = done.stdout.split()
    assert answer == "False" and Path(place).parent.parent == tmp_path / "cache"
    assert may_execute(library)
