"""A push over every transport: what changed, verified there, switched in one step, however often the cable is pulled."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import pytest
from mobilefinetuner.compiler.cli import main
from mobilefinetuner.compiler.remote import push as push_module
from mobilefinetuner.compiler.remote import transfer as transfer_module
from mobilefinetuner.compiler.remote.address import parse_address
from mobilefinetuner.compiler.remote.pull import pull
from mobilefinetuner.compiler.remote.push import push_bundle, push_files
from mobilefinetuner.compiler.remote.retry import PAUSES_SECONDS, Retry
from mobilefinetuner.compiler.remote.target import ConnectionLost, Target, connect
from mobilefinetuner.compiler.remote.transfer import free_bytes_there
from mobilefinetuner.runtime.bundle.folder import Bundle
from mobilefinetuner.runtime.errors import UserError

from tests.phone.cable import cable
from tests.phone.small_bundle import make_bundle

PIECE = 60_000


@pytest.fixture
def bundle(tmp_path) -> Path:
    return make_bundle(tmp_path / "made")


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(Target, "PIECE_BYTES", PIECE)


def push(bundle: Path, address: str, progress=lambda *_: None):
    with connect(parse_address(address)) as target:
        return push_bundle(Bundle.open(bundle, to_execute=False), target, retrying(target), progress, sys.executable)


def retrying(target: Target) -> Retry:
    return Retry(target, lambda _text: None, pause=lambda _seconds: None)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_pushed_bundle_is_the_bundle_and_nothing_else_is_left(phone, bundle):
    pushed = push(bundle, phone.address())
    assert contents(phone.folder / "bundle") == contents(bundle)
    assert pushed.path == str(phone.folder / "bundle") and set(pushed.sent) == set(Bundle.open(bundle, to_execute=False).files)
    assert [path for path in (phone.folder / ".incoming").iterdir()] == []


def test_a_second_push_sends_only_what_changed(phone, bundle, tmp_path):
    push(bundle, phone.address())
    again = push(bundle, phone.address())
    assert again.sent == ()
    newer = make_bundle(tmp_path / "newer", seed=7)
    pushed = push(newer, phone.address())
    assert pushed.sent == ("kernels.so",) and pushed.sent_bytes == 60_000
    assert contents(phone.folder / "bundle") == contents(newer)
    assert len(list((phone.folder / ".bundles").iterdir())) == 1


def test_a_damaged_file_there_is_sent_anew(phone, bundle):
    push(bundle, phone.address())
    damaged = phone.folder / "bundle" / "model.gguf"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"\0")
    assert push(bundle, phone.address()).sent == ("model.gguf",)
    assert contents(phone.folder / "bundle") == contents(bundle)


@pytest.mark.parametrize("seed", range(3))
def test_a_cable_that_is_pulled_at_random_points_costs_time_and_nothing_else(phone, bundle, tmp_path, seed):
    if phone.port is None:
        pytest.skip("a folder has no cable")
    dice = random.Random(seed)
    push(make_bundle(tmp_path / "older", seed=99, weights_bytes=1000), phone.address())
    cuts = [dice.randrange(2_000, 200_000) for _ in range(3)]
    with cable(phone.port, cuts) as pulled:
        push(bundle, phone.address(port=pulled.port))
        assert pulled.cut_count == len(cuts)
    assert contents(phone.folder / "bundle") == contents(bundle)


def test_a_push_that_gives_up_leaves_the_old_bundle_and_the_next_one_goes_on(phone, bundle, tmp_path, monkeypatch):
    older = make_bundle(tmp_path / "older", seed=99, weights_bytes=1000)
    push(older, phone.address())
    sends = {"count": 0}
    kind = type(connect(parse_address(phone.address())))
    send = kind.send

    def breaking(self, piece, path):
        sends["count"] += 1
        if sends["count"] > 5:
            raise ConnectionLost("pulled for good")
        send(self, piece, path)

    monkeypatch.setattr(kind, "send", breaking)
    with pytest.raises(UserError, match=r"keeps breaking.*the same command again"):
        push(bundle, phone.address())
    assert contents(phone.folder / "bundle") == contents(older)
    monkeypatch.setattr(kind, "send", send)
    arrived = []
    push(bundle, phone.address(), lambda name, at, n_bytes: arrived.append((name, at)))
    assert contents(phone.folder / "bundle") == contents(bundle)
    assert next(at for name, at in arrived if name == "model.gguf") > PIECE  # it did not start from nothing


def test_bytes_that_change_on_the_way_are_noticed_and_sent_again(phone, bundle, monkeypatch):
    kind = type(connect(parse_address(phone.address())))
    send, spoiled = kind.send, []

    def noisy(self, piece, path):
        if "model.gguf" in path and not spoiled:
            spoiled.append(path)
            piece = piece[:-1] + bytes([piece[-1] ^ 1])
        send(self, piece, path)

    monkeypatch.setattr(kind, "send", noisy)
    push(bundle, phone.address())
    assert spoiled and contents(phone.folder / "bundle") == contents(bundle)


def test_a_late_piece_of_a_lost_connection_is_not_added_twice(phone, bundle, monkeypatch):
    """The first answer is lost after the piece was added: the next look finds the longer part and goes on behind it."""
    kind, run = type(connect(parse_address(phone.address()))), Target.run
    lost = []

    def forgetful(self, script):
        done = run(self, script)
        if "cat " in script and ">>" in script and len(lost) < 3:
            lost.append(script)
            raise ConnectionLost("the answer never came")
        return done

    monkeypatch.setattr(kind, "run", forgetful)
    push(bundle, phone.address())
    assert len(lost) == 3 and contents(phone.folder / "bundle") == contents(bundle)


def test_storage_without_links_gets_a_folder(phone, bundle, tmp_path, monkeypatch):
    monkeypatch.setattr(push_module, "SWITCH", push_module.SWITCH.replace("ln -s", "false"))
    push(make_bundle(tmp_path / "older", seed=5), phone.address())
    push(bundle, phone.address())
    assert not (phone.folder / "bundle").is_symlink() and contents(phone.folder / "bundle") == contents(bundle)


def test_files_of_the_owner_go_to_data_once(phone, bundle, tmp_path):
    push(bundle, phone.address())
    file = tmp_path / "my shop's chats.jsonl"
    file.write_bytes(random.Random(3).randbytes(50_000))
    with connect(parse_address(phone.address())) as target:
        sent = []
        for _ in range(2):
            assert push_files([file], target, retrying(target), lambda *what: sent.append(what)) == [f"data/{file.name}"]
    assert (phone.folder / "data" / file.name).read_bytes() == file.read_bytes() and len({at for _, at, _ in sent}) == len(sent)


def test_pull_brings_a_file_through_a_breaking_cable(phone, bundle, tmp_path):
    push(bundle, phone.address())
    port, cuts = phone.port, [90_000, 110_000, 130_000] if phone.port else []
    with cable(port or 1, cuts) as pulled, connect(parse_address(phone.address(port=pulled.port if port else None))) as target:
        fetched = pull(target, "base", tmp_path / "here.gguf", retrying(target), lambda *_: None)
        assert pulled.cut_count == (3 if port else 0)
    assert fetched.read_bytes() == (bundle / "model.gguf").read_bytes()
    assert [path.name for path in tmp_path.glob(".*")] == []


def test_pull_brings_a_folder_with_all_that_is_in_it(phone, bundle, tmp_path):
    push(bundle, phone.address())
    (phone.folder / "peft" / "inner").mkdir(parents=True)
    (phone.folder / "peft" / "adapter.safetensors").write_bytes(b"weights")
    (phone.folder / "peft" / "inner" / "it's a file.json").write_bytes(b"{}")
    with connect(parse_address(phone.address())) as target:
        fetched = pull(target, "peft", tmp_path / "here", retrying(target), lambda *_: None)
    assert (fetched / "adapter.safetensors").read_bytes() == b"weights" and (fetched / "inner" / "it's a file.json").read_bytes() == b"{}"


def test_a_storage_that_fills_up_on_the_way_is_told_at_once_and_the_next_push_goes_on(phone, bundle, monkeypatch):
    kind, sent = type(connect(parse_address(phone.address()))), []
    send = kind.send

    def filling(self, piece, path):
        sent.append(path)
        if len(sent) > 4:
            monkeypatch.setattr(transfer_module, "free_bytes_there", lambda *_: 20_000)
            piece = piece[: len(piece) // 2]
        send(self, piece, path)

    monkeypatch.setattr(kind, "send", filling)
    with pytest.raises(UserError, match=r"the storage there is full.*free some space there, then the same command again"):
        push(bundle, phone.address())
    assert len(sent) == 5 and not (phone.folder / "bundle").exists() and len(list(phone.folder.glob(".incoming/*/*.part.*"))) == 0
    monkeypatch.setattr(kind, "send", send)
    monkeypatch.setattr(transfer_module, "free_bytes_there", free_bytes_there)
    push(bundle, phone.address())
    assert contents(phone.folder / "bundle") == contents(bundle)


def test_small_files_get_one_line_and_large_ones_a_line_for_each_tenth():
    lines = []
    progress = transfer_module.print_progress(lines.append)
    progress("empty.jsonl", 0, 0)
    progress("plan.json", 71_700, 71_700)
    for arrived in range(1, 41):
        progress("model.gguf", arrived * 10**6, 40 * 10**6)
    assert lines[:2] == ["  empty.jsonl: 0 bytes", "  plan.json: 72 KB"]
    assert len(lines[2:]) == 11 and lines[3] == "  model.gguf: 4.0 of 40.0 MB" and lines[-1] == "  model.gguf: 40.0 MB"


@pytest.mark.parametrize("what", ["../secret", "/etc/passwd", "nothing-there", "v0001"])
def test_pull_of_what_is_not_there_is_one_sentence(bundle, tmp_path, what, capsys):
    push(bundle, str(tmp_path / "target"))
    assert main(["pull", str(tmp_path / "target"), what]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_command_says_what_was_sent_and_what_to_type(phone, bundle, tmp_path, capsys):
    words = ["push", str(bundle), "--to", phone.address(), "--python", sys.executable]
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sent_bytes"] > 300_000
    assert main(words) == 0
    assert f"mft on {phone.address()} VERB" in capsys.readouterr().out


def test_nobody_at_the_other_end_is_one_sentence_and_not_a_trace(capsys, bundle, phone):
    if phone.port is None:
        pytest.skip("a folder always answers")
    assert main(["push", str(bundle), "--to", phone.address(port=1)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "try: " in error and len(PAUSES_SECONDS) == 5
