"""The desktop command from outside: a process, its output and its exit code."""

import json
import os
import shutil
import signal
import subprocess
import sys

import pytest
from mobilefinetuner.compiler.bundle.writer import write_bundle
from mobilefinetuner.compiler.bundle.zipapp_writer import make_zipapp
from mobilefinetuner.runtime.bundle.cpu_features import read_machine_cpu

CONVERSIONS = [
    {"from_type": "Q4_0", "to_type": "Q4_1", "tensors": 14, "mean_error": 0.0, "worst_error": 2.5e-5, "worst_tensor": "blk.0.attn_q.weight"}
]
FIELDS = {
    "abi": {"arch": read_machine_cpu().arch},
    "base_conversions": CONVERSIONS,
    "recipe": {"device": {"memory_budget_mb": 256}, "train": {"rank": 16, "note": "[bold]店"}},
    "required_cpu_features": [],
    "tools": {"mft": "1"},
}
PLAN = json.dumps(
    {"memory": [dict(phase="backward", weights=97 << 20, adapter=1 << 20, optimizer=2 << 20, activations=3 << 20, scratch=512, floor=30 << 20)]}
).encode()


def mft(*words, cwd=None, **environment):
    command = [sys.executable, "-m", "mobilefinetuner.compiler.cli", *words]
    return subprocess.run(command, capture_output=True, cwd=cwd, env={**os.environ, **environment})


@pytest.fixture
def bundle(tmp_path):
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    (runtime / "__init__.py").write_text("")
    (runtime / "cli.py").write_text(
        "import os, signal, sys\n"
        "def main():\n"
        "    if sys.argv[1:] == ['wait']:\n"
        "        try:\n"
        "            print('ready', flush=True); signal.pause()\n"
        "        except KeyboardInterrupt:\n"
        "            return 4\n"
        "    print(os.getcwd(), *sys.argv[1:]); return 3\n"
    )
    return write_bundle(tmp_path / "b", {"mft.pyz": make_zipapp(runtime), "plan.json": PLAN}, FIELDS)


def test_without_a_verb_the_verbs_are_listed():
    for words, code in ([], 2), (["--help"], 0):
        done = mft(*words)
        assert done.returncode == code
        for verb in (b"compile", b"run", b"inspect", b"demo"):
            assert verb in done.stdout


def test_a_mistyped_verb_is_refused_in_one_line():
    done = mft("compil")
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1) and b"compile" in done.stderr


def test_show_prints_the_resolved_recipe_and_touches_nothing(tmp_path):
    yaml = pytest.importorskip("yaml")
    done = mft("compile", "train.rank=8", "--show", "scenario=education", cwd=tmp_path)
    recipe = yaml.safe_load(done.stdout)
    assert done.returncode == 0 and (recipe["train"]["rank"], recipe["scenario"]["name"]) == (8, "education")
    assert mft("compile", "--cfg", "train.rank=8", "scenario=education", cwd=tmp_path).stdout == done.stdout
    assert not list(tmp_path.iterdir())


def test_wrong_settings_end_with_two_and_a_line_for_each(tmp_path):
    done = mft("compile", "train.rank=0", "train.lerning_rate=1", "device=pixel_9", cwd=tmp_path)
    assert (done.returncode, done.stderr.count(b"\n"), done.stdout) == (2, 3, b"")
    assert b"Traceback" not in done.stderr and not list(tmp_path.iterdir())


def test_an_own_folder_of_configurations_is_used(tmp_path):
    (tmp_path / "mine" / "train").mkdir(parents=True)
    (tmp_path / "mine" / "train" / "slow.yaml").write_text("epochs: 99\n")
    done = mft("compile", "--config-dir", "mine", "train=slow", "--show", cwd=tmp_path)
    assert b"epochs: 99" in done.stdout


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "gb18030", "cp437", "utf-8"])
def test_no_terminals_encoding_ends_the_command(encoding, bundle, tmp_path):
    for code, words in (
        (0, ["compile", 'scenario.system_prompt="你好 😀"', "--show"]),
        (2, ["compile", "scenario.system_prompt=你好 😀", "train.rank=😀"]),
        (0, ["inspect", str(bundle)]),
    ):
        done = mft(*words, cwd=tmp_path, PYTHONIOENCODING=encoding)
        assert done.returncode == code and b"Traceback" not in done.stderr
        (done.stdout + done.stderr).decode(encoding)


def test_bytes_that_are_no_text_are_refused(tmp_path):
    done = mft("compile", b"scenario.system_prompt='\xff\xfe'", "--show", cwd=tmp_path)
    assert done.returncode == 2 and b"UTF-8" in done.stderr


def test_inspect_shows_files_recipe_and_whether_it_runs_here(bundle):
    page = mft("inspect", str(bundle), COLUMNS="200").stdout.decode()
    for text in (
        "mft.pyz",
        "plan.json",
        "train.rank",
        "16",
        "[bold]店",
        "runs here",
        "yes",
        "backward",
        "133.0 MiB of the device's 256.0 MiB",
        "Q4_0",
        "2.5e-05",
    ):
        assert text in page
    document = json.loads(mft("inspect", str(bundle), "--json").stdout)
    assert document["runs_here"] and set(document["files"]) == {"mft.pyz", "plan.json"} and document["recipe"] == FIELDS["recipe"]
    assert document["memory"][0]["total"] == (133 << 20) + 512


def test_inspect_fits_80_columns_without_breaking_a_word(bundle):
    lines = mft("inspect", str(bundle), COLUMNS="80").stdout.decode().splitlines()
    assert max(map(len, lines)) <= 80
    cells = {cell.strip() for line in lines for cell in line.split("|")}
    assert {"backward", "phase", "memory", "133.0 MiB"} <= cells


def test_inspect_explains_a_bundle_for_another_machine(tmp_path):
    other = write_bundle(tmp_path / "other", {"plan.json": PLAN}, {**FIELDS, "abi": {"arch": "sparc"}})
    document = json.loads(mft("inspect", str(other), "--json").stdout)
    assert not document["runs_here"] and "sparc" in document["runs_here_reason"]


def test_inspect_refuses_a_damaged_bundle(bundle):
    (bundle / "plan.json").write_bytes(b"[]")
    done = mft("inspect", str(bundle), "--json")
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (2, b"", 1)


def test_run_passes_words_directory_and_exit_code(bundle, tmp_path):
    done = mft("run", str(bundle), "chat", "--prompt", "a b", "--help", cwd=tmp_path)
    assert (done.returncode, done.stdout.decode()) == (3, f"{tmp_path} chat --prompt a b --help\n")


def test_run_passes_ctrl_c_to_the_runtime_and_returns_its_answer(bundle):
    command = [sys.executable, "-m", "mobilefinetuner.compiler.cli", "run", str(bundle), "wait"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGINT)
        assert process.wait() == 4


def test_run_refuses_a_damaged_runtime_before_starting_it(bundle):
    content = bytearray((bundle / "mft.pyz").read_bytes())
    content[len(content) // 2] ^= 1
    (bundle / "mft.pyz").write_bytes(content)
    done = mft("run", str(bundle), "status")
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (2, b"", 1)


def test_run_without_a_bundle_is_refused(tmp_path):
    assert mft("run", str(tmp_path), "status").returncode == 2
    assert mft("run").returncode == 2


def test_a_reader_that_has_seen_enough_is_no_error(bundle):
    if not shutil.which("head"):
        pytest.skip("there is no head here")
    script = f"{sys.executable} -m mobilefinetuner.compiler.cli inspect {bundle} | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True)
    assert done.returncode == 0 and b"Traceback" not in done.stderr
