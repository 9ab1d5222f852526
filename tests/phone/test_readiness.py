"""A phone that is not ready yet: everything that is missing in one sentence, with the lines to type on that kind of phone."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from pathlib import Path

import pytest
from mobilefinetuner.compiler.remote import readiness
from mobilefinetuner.compiler.remote.address import parse_address
from mobilefinetuner.compiler.remote.readiness import check_target
from mobilefinetuner.compiler.remote.target import connect
from mobilefinetuner.runtime.bundle.cpu_features import read_machine_cpu
from mobilefinetuner.runtime.bundle.folder import Bundle
from mobilefinetuner.runtime.errors import UserError

from tests.phone.small_bundle import make_bundle

TOOLS = ["sh", "mkdir", "rm", "wc", "cut", "sha256sum", "cat", "touch", "df", "head", "tail", "mv", "ln", "ls", "base64", "tr"]


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """A machine with nothing but the tools that every POSIX system has; returns the folder of its programs."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in TOOLS:
        (programs / name).symlink_to(str(shutil.which(name)))
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.delenv("PREFIX", raising=False)
    return programs


def program(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(f"#!{os.path.realpath(shutil.which('sh') or '/bin/sh')}\n{text}\n")
    path.chmod(0o755)
    return path


def check(tmp_path: Path, needed_bytes: int = 0, python: str | None = None, **fields: object):
    (tmp_path / "target").mkdir(exist_ok=True)
    bundle = Bundle.open(make_bundle(tmp_path / "made", weights_bytes=1000, **fields), to_execute=False)
    with connect(parse_address(str(tmp_path / "target"))) as target:
        return check_target(target, bundle, needed_bytes, python)


SYSTEMS = {
    "termux": ("", "/data/data/com.termux/files/usr", "pkg install python python-numpy"),
    "debian": ("apt", "", "apt install python3 python3-venv"),
    "android": ("getprop", "", "Termux"),
    "other": ("", "", "Python 3.10 or newer"),
}


@pytest.mark.parametrize("system", SYSTEMS)
def test_without_python_the_lines_are_those_of_the_system(bare, tmp_path, monkeypatch, system):
    command, prefix, line = SYSTEMS[system]
    if command:
        program(bare, command, "exit 0")
    if prefix:
        monkeypatch.setenv("PREFIX", prefix)
    with pytest.raises(UserError, match="has no Python") as refused:
        check(tmp_path)
    assert line in refused.value.remedy and "push" not in line


def test_missing_packages_are_named_together_with_the_line_that_installs_them(bare, tmp_path):
    program(bare, "python3", f'exec {shlex.quote(sys.executable)} -I -S "$@"')
    with pytest.raises(UserError) as refused:
        check(tmp_path)
    assert "numpy" in refused.value.found and "tokenizers" in refused.value.found
    venv = f"{tmp_path}/target/venv"
    assert refused.value.remedy.splitlines()[1:] == [f"  python3 -m venv {venv} && {venv}/bin/pip install numpy tokenizers"]


def test_a_debian_that_cannot_make_a_venv_is_told_its_package_first(bare, tmp_path):
    program(bare, "apt", "exit 0")
    facts = {"python": [3, 13, 1], "arch": "x86_64", "features": [], "numpy": "", "tokenizers": "", "makes_venv": False}
    program(bare, "python3", f"echo {shlex.quote(json.dumps(facts))}")
    with pytest.raises(UserError) as refused:
        check(tmp_path)
    first, second = refused.value.remedy.splitlines()[1:]
    assert first.removeprefix("  sudo").strip() == "apt install python3 python3-venv" and second.endswith("pip install numpy tokenizers")


def test_a_python_that_was_named_gets_its_packages_itself(bare, tmp_path):
    named = program(bare, "python3.12", f'exec {shlex.quote(sys.executable)} -I -S "$@"')
    with pytest.raises(UserError) as refused:
        check(tmp_path, python=str(named))
    assert refused.value.remedy.splitlines()[1:] == [f"  {named} -m pip install numpy tokenizers"]


def test_on_termux_each_package_has_its_own_line(bare, tmp_path, monkeypatch):
    monkeypatch.setenv("PREFIX", "/data/data/com.termux/files/usr")
    program(bare, "python3", f'exec {shlex.quote(sys.executable)} -I -S "$@"')
    with pytest.raises(UserError) as refused:
        check(tmp_path)
    assert refused.value.remedy.splitlines()[1:] == ["  pkg install python python-numpy", "  pkg install rust && pip install tokenizers"]


def test_an_old_python_and_a_full_storage_are_told_at_once(bare, tmp_path, monkeypatch):
    facts = {"python": [3, 8, 1], "arch": "x86_64", "features": [], "numpy": "1.26", "tokenizers": "0.20", "makes_venv": True}
    program(bare, "python3", f"echo {shlex.quote(json.dumps(facts))}")
    monkeypatch.setattr(readiness, "free_bytes_there", lambda *_: 5 << 20)
    with pytest.raises(UserError) as refused:
        check(tmp_path, needed_bytes=100 << 20)
    assert "3.8.1" in refused.value.found and "5 MB free where 132 MB" in refused.value.found


def test_a_python_that_does_not_start_is_told_with_its_own_words(bare, tmp_path):
    program(bare, "python3", "echo 'CANNOT LINK EXECUTABLE: library libpython not found' >&2; exit 1")
    with pytest.raises(UserError, match="CANNOT LINK EXECUTABLE"):
        check(tmp_path)


def test_a_feature_that_the_processor_lacks_is_told_before_anything_is_sent(tmp_path):
    with pytest.raises(UserError, match="no_such_feature") as refused:
        check(tmp_path, python=sys.executable, required_cpu_features=["no_such_feature"])
    assert refused.value.where == str(tmp_path / "target") and "probe --output" in refused.value.remedy


def test_a_bundle_for_another_kind_of_processor_is_told_with_a_profile_that_fits(tmp_path):
    machine = read_machine_cpu().arch
    other = {"aarch64": "x86_64", "x86_64": "aarch64"}[machine]
    with pytest.raises(UserError, match=f"is {machine}, and .* is compiled for {other}.*device=generic_"):
        check(tmp_path, python=sys.executable, abi={"arch": other})


def test_a_venv_in_the_targets_folder_is_preferred(bare, tmp_path):
    program(bare, "python3", "exit 1")
    (tmp_path / "target" / "venv" / "bin").mkdir(parents=True)
    inside = program(tmp_path / "target" / "venv" / "bin", "python3", f'exec {shlex.quote(sys.executable)} "$@"')
    ready = check(tmp_path)
    assert ready.python == str(inside) and ready.versions["numpy"]


def test_a_named_python_that_is_not_there_is_told(bare, tmp_path):
    with pytest.raises(UserError, match="has no /opt/nothing/python"):
        check(tmp_path, python="/opt/nothing/python")
