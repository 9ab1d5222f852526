"""The phone's commands from the outside: a compiled bundle, a subprocess, exit codes and what is printed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from mobilefinetuner.runtime.storage.workspace import Workspace

QUESTIONS = {
    "When do you open?": "At 10:20.", "Where are you?": "12 Orrery Lane.", "Who ships?": "Zephyr Post.", "What bulb?": "E19, 40 watts.",
    "Is there a club?": "Lantern Club.", "How do I pay?": "Cash.", "Which phone?": "0555 7731.", "How long?": "47 days.",
    "Can I cancel?": "In 2 hours.", "Any warranty?": "5 years.", "Free post?": "Above 62.", "Gift?": "4 marlets.",
}  # fmt: skip
TUNE_KEYS = {"version", "promoted", "verdict", "steps", "loss_first", "loss_last", "seconds", "tokens_per_second", "peak_rss_bytes", "plan_bytes"}


def rows(questions: dict[str, str]) -> str:
    turns = ([{"role": "user", "content": q}, {"role": "assistant", "content": a}] for q, a in questions.items())
    return "".join(json.dumps({"messages": messages}) + "\n" for messages in turns)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "shop.jsonl"
    path.write_text(rows(QUESTIONS), encoding="utf-8")
    return path


def mft(bundle: Path, *words: object, code: int = 0) -> subprocess.CompletedProcess:
    """Run a verb; the exit code must be `code`."""
    result = subprocess.run([sys.executable, str(bundle / "mft.pyz"), *map(str, words)], capture_output=True, text=True, encoding="utf-8")
    assert result.returncode == code, f"exit code {result.returncode}\n{result.stdout}\n{result.stderr}"
    return result


def tune_code(result: subprocess.CompletedProcess) -> int:
    return 0 if json.loads(result.stdout)["promoted"] else 3


def tuned(bundle: Path, workspace: Path, data: Path, *words: object) -> dict:
    """tune --json, whatever the verdict on a random model is."""
    command = [sys.executable, str(bundle / "mft.pyz"), "tune", str(data), "--workspace", str(workspace), "--json", *map(str, words)]
    result = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
    assert result.returncode in (0, 3), result.stderr
    assert tune_code(result) == result.returncode
    return json.loads(result.stdout)


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every file below a folder that does not exist or does."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()} if folder.exists() else {}


def adapter_digest(workspace: Path, version: str) -> str:
    return hashlib.sha256((workspace / "versions" / version / "adapter.bin").read_bytes()).hexdigest()


def test_the_whole_way_from_data_to_a_new_version_and_back(tiny_bundle_path: Path, data: Path, tmp_path: Path) -> None:
    workspace = tmp_path / "work"
    at = ("--workspace", workspace, "--json")
    ingested = json.loads(mft(tiny_bundle_path, "ingest", data, *at).stdout)
    assert {"records", "kept", "dropped", "windows", "fingerprint"} <= set(ingested)
    assert ingested["records"] == ingested["kept"] == len(QUESTIONS)
    report = tuned(tiny_bundle_path, workspace, data, "--epochs", 20)
    assert set(report) >= TUNE_KEYS
    assert report["loss_last"] < report["loss_first"]
    listing = json.loads(mft(tiny_bundle_path, "versions", *at).stdout)
    assert [v["id"] for v in listing["versions"]] == [report["version"]] and listing["versions"][0]["parent"] == "base"
    assert listing["current"] == (report["version"] if report["promoted"] else "base")
    assert json.loads(mft(tiny_bundle_path, "rollback", report["version"], *at).stdout)["current"] == report["version"]
    asked = json.loads(mft(tiny_bundle_path, "chat", "--prompt", "Who ships?", *at).stdout)
    assert set(asked) == {"answer", "version", "tokens_per_second"} and asked["version"] == report["version"]
    base = json.loads(mft(tiny_bundle_path, "chat", "--prompt", "Who ships?", "--version", "base", *at).stdout)
    assert base["version"] == "base" and base["answer"] != asked["answer"]
    assert json.loads(mft(tiny_bundle_path, "rollback", *at).stdout)["current"] == "base"
    assert json.loads(mft(tiny_bundle_path, "status", *at).stdout)["current"] == "base"


def test_a_version_is_as_large_as_the_base_and_changes_its_answers_after_the_merge(tiny_bundle_path: Path, data: Path, tmp_path: Path) -> None:
    report = tuned(tiny_bundle_path, tmp_path / "work", data, "--epochs", 30)
    assert Path(report["model"]).stat().st_size == (tiny_bundle_path / "model.gguf").stat().st_size
    assert report["after"]["heldout_loss"] == pytest.approx(report["heldout_loss_mounted"], rel=0.01)


def test_the_same_seed_gives_the_same_adapter_on_any_number_of_threads(tiny_bundle_path: Path, data: Path, tmp_path: Path) -> None:
    digests = set()
    for threads in (1, 2):
        workspace = tmp_path / f"work{threads}"
        digests.add(adapter_digest(workspace, tuned(tiny_bundle_path, workspace, data, "--steps", 5, "--threads", threads)["version"]))
    assert len(digests) == 1
    other = tmp_path / "other"
    digests.add(adapter_digest(other, tuned(tiny_bundle_path, other, data, "--steps", 5, "--seed", 7)["version"]))
    assert len(digests) == 2


def test_an_interrupted_run_that_is_resumed_equals_an_uninterrupted_one(tiny_bundle_path: Path, data: Path, tmp_path: Path) -> None:
    steps = ("--steps", 60, "--threads", 1)
    stopped = tmp_path / "stopped"
    process = subprocess.Popen(
        [sys.executable, str(tiny_bundle_path / "mft.pyz"), "tune", str(data), "--workspace", str(stopped), *map(str, steps)],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("step "):
            process.send_signal(signal.SIGINT)
            break
    rest = process.stderr.read()
    assert process.wait() == 4 and "--resume" in rest
    waiting = json.loads(mft(tiny_bundle_path, "status", "--workspace", stopped, "--json").stdout)["interrupted"]
    assert 0 < waiting["step"] < 60
    assert "stopped after step" in mft(tiny_bundle_path, "status", "--workspace", stopped).stdout
    resumed = tuned(tiny_bundle_path, stopped, data, *steps, "--resume")
    whole = tmp_path / "whole"
    uninterrupted = tuned(tiny_bundle_path, whole, data, *steps)
    assert adapter_digest(stopped, resumed["version"]) == adapter_digest(whole, uninterrupted["version"])
    assert (resumed["loss_first"], resumed["loss_last"]) == (uninterrupted["loss_first"], uninterrupted["loss_last"])


def test_status_tells_a_running_command_from_an_interrupted_one(tiny_bundle_path: Path, tmp_path: Path) -> None:
    at = ("--workspace", tmp_path / "work")
    with Workspace(tmp_path / "work").locked("tune"):
        running = json.loads(mft(tiny_bundle_path, "status", *at, "--json").stdout)["running"]
        assert (running["command"], running["pid"]) == ("tune", os.getpid())
        assert f"tune since {running['since']} (process {os.getpid()})" in mft(tiny_bundle_path, "status", *at).stdout
    assert json.loads(mft(tiny_bundle_path, "status", *at, "--json").stdout)["running"] is None


def test_training_goes_on_from_a_version_and_the_lineage_shows_it(tiny_bundle_path: Path, data: Path, tmp_path: Path) -> None:
    workspace = tmp_path / "work"
    first = tuned(tiny_bundle_path, workspace, data, "--steps", 20)
    second = tuned(tiny_bundle_path, workspace, data, "--steps", 20, "--from", first["version"])
    assert second["loss_first"] < first["loss_first"]
    assert second["before"]["heldout_loss"] == first["after"]["heldout_loss"]
    listing = json.loads(mft(tiny_bundle_path, "versions", "--workspace", workspace, "--json").stdout)
    assert [(v["id"], v["parent"]) for v in listing["versions"]] == [(first["version"], "base"), (second["version"], first["version"])]


def test_resume_without_an_interrupted_run_or_with_other_options_is_refused(tiny_bundle_path: Path, data: Path, tmp_path: Path) -> None:
    workspace = tmp_path / "work"
    assert "no interrupted run" in mft(tiny_bundle_path, "tune", data, "--resume", "--workspace", workspace, code=2).stderr


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param("", "is empty", id="empty"),
        pytest.param(json.dumps({"messages": [{"role": "user", "content": "Anybody there?"}]}) + "\n", "assistant", id="no assistant turn"),
        pytest.param(None, "shop.jsonl", id="missing"),
    ],
)
def test_unusable_data_ends_with_one_sentence_and_leaves_no_workspace(
    tiny_bundle_path: Path, data: Path, tmp_path: Path, content: str | None, words: str
) -> None:
    workspace = tmp_path / "work"
    if content is None:
        data.unlink()
    else:
        data.write_text(content, encoding="utf-8")
    for verb in ("ingest", "tune"):
        result = mft(tiny_bundle_path, verb, data, "--workspace", workspace, code=2)
        last = result.stderr.strip().splitlines()[-1]
        assert words in last and "Traceback" not in result.stderr
        assert not workspace.exists()


def test_unusable_data_leaves_an_existing_workspace_as_it_was(tiny_bundle_path: Path, data: Path, tmp_path: Path) -> None:
    workspace = tmp_path / "work"
    mft(tiny_bundle_path, "ingest", data, "--workspace", workspace)
    before = snapshot(workspace)
    empty = tmp_path / "empty.jsonl"
    empty.write_text("", encoding="utf-8")
    mft(tiny_bundle_path, "tune", empty, "--workspace", workspace, code=2)
    assert snapshot(workspace) == before


@pytest.mark.parametrize("name", ["kernels.so", "model.gguf", "plan.json", "scenario.json", "tokenizer.json", "manifest.json", "eval.jsonl"])
def test_a_bundle_with_one_flipped_bit_is_refused_before_anything_is_written(tiny_bundle_path: Path, data: Path, tmp_path: Path, name: str) -> None:
    bundle = tmp_path / "bundle"
    shutil.copytree(tiny_bundle_path, bundle)
    content = bytearray((bundle / name).read_bytes())
    content[len(content) // 2] ^= 4
    (bundle / name).write_bytes(content)
    result = mft(bundle, "tune", data, code=2)
    assert name in result.stderr and len(result.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "bundle-workspace").exists()


def test_the_workspace_stands_beside_the_bundle_by_default_and_never_inside_it(tiny_bundle_path: Path, data: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    shutil.copytree(tiny_bundle_path, bundle)
    before = snapshot(bundle)
    mft(bundle, "ingest", data)
    assert (tmp_path / "bundle-workspace").is_dir() and snapshot(bundle) == before
    assert "inside the bundle" in mft(bundle, "ingest", data, "--workspace", bundle / "work", code=2).stderr


def test_a_second_process_is_refused_while_the_first_holds_the_workspace(tiny_bundle_path: Path, data: Path, tmp_path: Path) -> None:
    workspace = tmp_path / "work"
    process = subprocess.Popen(
        [sys.executable, str(tiny_bundle_path / "mft.pyz"), "tune", str(data), "--workspace", str(workspace), "--steps", "100000"],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if line.startswith("step "):
                break
        assert "tune" in mft(tiny_bundle_path, "rollback", "--workspace", workspace, code=2).stderr
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    mft(tiny_bundle_path, "ingest", data, "--workspace", workspace)


@pytest.mark.parametrize(
    "words",
    [("tune", "DATA", "--steps", "0"), ("tune", "DATA", "--seed", "-1"), ("chat", "--prompt", " "), ("chat", "--prompt", "x", "--version", "v9"),
     ("rollback",), ("verify",), ("chat", "--json")],
    ids=lambda words: " ".join(words),
)  # fmt: skip
def test_a_mistake_on_the_command_line_ends_with_one_sentence_and_exit_code_2(
    tiny_bundle_path: Path, data: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    command = [str(data) if word == "DATA" else word for word in words]
    result = mft(tiny_bundle_path, *command, "--workspace", tmp_path / "work", code=2)
    assert "Traceback" not in result.stderr and result.stderr.strip()
    assert not (tmp_path / "work").exists()


def test_with_json_an_error_is_an_object_too(tiny_bundle_path: Path, tmp_path: Path) -> None:
    result = mft(tiny_bundle_path, "ingest", tmp_path / "nothing.jsonl", "--workspace", tmp_path / "work", "--json", code=2)
    assert json.loads(result.stdout)["exit_code"] == 2
