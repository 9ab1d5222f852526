"""mft.pyz: the same bytes every time, runs with the interpreter alone, notices damage by itself."""

import os
import subprocess
import sys
import zipfile

import pytest
from mobilefinetuner.compiler.bundle.zipapp_writer import make_zipapp


@pytest.fixture
def runtime(tmp_path):
    """A runtime of one command, so that this does not depend on what the real one does."""
    folder = tmp_path / "runtime"
    (folder / "part" / "__pycache__").mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "cli.py").write_text("import sys\nfrom .part import word\ndef main():\n    print(word, *sys.argv[1:])\n    return 3\n")
    (folder / "part" / "__init__.py").write_text("word = 'ran'\n")
    (folder / "part" / "__pycache__" / "x.py").write_text("")
    (folder / "part" / "x.pyc").write_bytes(b"x")
    return folder


def run(archive, *words, cwd=None):
    return subprocess.run([sys.executable, str(archive), *words], capture_output=True, text=True, cwd=cwd)


def test_two_builds_have_the_same_bytes_whatever_the_files_times(runtime):
    one = make_zipapp(runtime)
    for path in runtime.rglob("*.py"):
        os.utime(path, (1, 1_000_000_000))
        path.chmod(0o600)
    assert make_zipapp(runtime) == one


def test_it_runs_the_runtimes_command_and_passes_words_and_exit_code(runtime, tmp_path):
    (tmp_path / "mft.pyz").write_bytes(make_zipapp(runtime))
    for archive, cwd in ((tmp_path / "mft.pyz", None), ("mft.pyz", tmp_path)):
        done = run(archive, "status", "--json", cwd=cwd)
        assert (done.stdout, done.returncode, done.stderr) == ("ran status --json\n", 3, "")


def test_nothing_but_sources_is_packed(runtime, tmp_path):
    (tmp_path / "mft.pyz").write_bytes(make_zipapp(runtime))
    assert zipfile.ZipFile(tmp_path / "mft.pyz").namelist() == [
        "__main__.py", "mobilefinetuner/__init__.py", "mobilefinetuner/runtime/__init__.py", "mobilefinetuner/runtime/cli.py",
        "mobilefinetuner/runtime/part/__init__.py",
    ]  # fmt: skip


def test_the_real_runtime_is_packed_whole(tmp_path):
    import mobilefinetuner.runtime as package

    (tmp_path / "mft.pyz").write_bytes(make_zipapp())
    names = set(zipfile.ZipFile(tmp_path / "mft.pyz").namelist())
    root = os.path.dirname(package.__file__)
    sources = {os.path.relpath(os.path.join(folder, name), root) for folder, _, files in os.walk(root) for name in files if name.endswith(".py")}
    assert {f"mobilefinetuner/runtime/{name}" for name in sources} <= names


def test_damage_in_the_packed_code_ends_in_a_sentence(runtime, tmp_path):
    content = make_zipapp(runtime)
    position = content.index(b"word, *sys.argv")
    (tmp_path / "mft.pyz").write_bytes(content[:position] + b"W" + content[position + 1 :])
    done = run(tmp_path / "mft.pyz")
    assert done.returncode == 2 and "is damaged (mobilefinetuner/runtime/cli.py)" in done.stderr and done.stderr.count("\n") == 1


def test_a_missing_package_of_the_phone_is_named(runtime, tmp_path):
    (runtime / "cli.py").write_text("raise ModuleNotFoundError('No module', name='tokenizers')\n")
    (tmp_path / "mft.pyz").write_bytes(make_zipapp(runtime))
    done = run(tmp_path / "mft.pyz")
    assert done.returncode == 2 and "pip install numpy tokenizers" in done.stderr and done.stderr.count("\n") == 1


def test_a_broken_import_of_our_own_keeps_its_traceback(runtime, tmp_path):
    (runtime / "cli.py").write_text("import mobilefinetuner.runtime.nothing\n")
    (tmp_path / "mft.pyz").write_bytes(make_zipapp(runtime))
    done = run(tmp_path / "mft.pyz")
    assert done.returncode == 1 and "Traceback" in done.stderr
