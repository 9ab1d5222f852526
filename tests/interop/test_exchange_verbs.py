"""export, import and audit from the command line, and versions that are a mounted adapter, on the tiny model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from mobilefinetuner.runtime.adapter.flat_vector import tensors_of
from mobilefinetuner.runtime.adapter.peft_folder import write_peft_folder
from mobilefinetuner.runtime.adapter.tensors import AdapterTensors
from mobilefinetuner.runtime.bundle.plan import Plan
from mobilefinetuner.runtime.cli import main
from mobilefinetuner.runtime.engine.engine import Engine
from mobilefinetuner.runtime.gguf.file import GgufFile
from mobilefinetuner.runtime.versions.version_block import payload_is_intact, read_version_block

from tests.support.model_logits import merged_logits, random_vector

QUESTIONS = {
    "When do you open?": "At 10:20.", "Where are you?": "12 Orrery Lane.", "Who ships?": "Zephyr Post.", "What bulb?": "E19, 40 watts.",
    "Is there a club?": "Lantern Club.", "How do I pay?": "Cash.", "Which phone?": "0555 7731.", "How long?": "47 days.",
    "Can I cancel?": "In 2 hours.", "Any warranty?": "5 years.", "Free post?": "Above 62.", "Gift?": "4 marlets.",
}  # fmt: skip
IDS = [1, 7, 300, 45, 45, 9, 128, 511]


class Phone:
    """A bundle and a workspace, and the command line on them."""

    def __init__(self, bundle: Path, workspace: Path, capsys) -> None:
        self.bundle, self.workspace, self._capsys = bundle, workspace, capsys
        self.plan = Plan.from_json(json.loads((bundle / "plan.json").read_text()))

    def run(self, *words: object, codes: tuple[int, ...] = (0,)) -> dict:
        """What the verb prints with --json."""
        self._capsys.readouterr()
        code = main([*map(str, words), "--json", "--threads", "1", "--workspace", str(self.workspace), "--bundle", str(self.bundle)])
        printed = self._capsys.readouterr()
        assert code in codes, printed.err
        return json.loads(printed.out) if printed.out else {"error": printed.err.strip()}

    def tune(self, folder: Path, *words: object, code: int = 0) -> dict:
        data = folder / "shop.jsonl"
        turns = ([{"role": "user", "content": q}, {"role": "assistant", "content": a}] for q, a in QUESTIONS.items())
        data.write_text("".join(json.dumps({"messages": messages}) + "\n" for messages in turns), encoding="utf-8")
        return self.run("tune", data, *words, codes=(code,) if code else (0, 3))

    def logits(self, model: Path, adapter: AdapterTensors | None = None) -> np.ndarray:
        with Engine(self.plan, self.bundle / "kernels.so", GgufFile.open(model), 1, adapter) as engine:
            return merged_logits(engine, IDS)


@pytest.fixture
def phone(tiny_bundle_path, tmp_path, capsys) -> Phone:
    return Phone(tiny_bundle_path, tmp_path / "work", capsys)


@pytest.fixture(scope="module")
def mounting_bundle(tiny_model_path, tmp_path_factory) -> Path:
    from tests.support.tiny_bundle import compile_tiny_bundle

    return compile_tiny_bundle(tmp_path_factory.mktemp("mounting") / "tiny", tiny_model_path, "quantization=mount")


@pytest.mark.parametrize("form", ["peft", "gguf-lora"])
def test_an_exported_adapter_that_is_imported_elsewhere_makes_the_same_weights(phone, tmp_path, capsys, form):
    version = phone.tune(tmp_path, "--steps", 3)["version"]
    exported = phone.run("export", tmp_path / "out", "--format", form, "--version", version)
    assert exported["version"] == version and exported["bytes"] > 0
    other = Phone(phone.bundle, tmp_path / "other", capsys)
    imported = other.run("import", tmp_path / "out", codes=(0, 3))
    first, second = (GgufFile.open(p.workspace / "versions" / v / "model.gguf") for p, v in ((phone, version), (other, imported["version"])))
    assert payload_is_intact(first) and payload_is_intact(second)
    assert read_version_block(first).payload_sha256 == read_version_block(second).payload_sha256
    events = [record["event"] for record in other.run("audit")["records"]]
    assert events[:2] == ["imported", "verified"]


def test_a_classic_lora_comes_into_a_bundle_for_grouped_adapters_and_can_be_talked_to(phone, tmp_path):
    base = GgufFile.open(phone.bundle / "model.gguf")
    grouped = tensors_of(phone.plan.adapter, random_vector(phone.plan.adapter, 3, 0.1))
    rng = np.random.default_rng(4)
    pairs = {name: (rng.normal(0, 0.05, (2, a.shape[1] * 32)).astype(np.float32), b[:, :2]) for name, (a, b) in grouped.pairs.items()}
    (tmp_path / "lora").mkdir()
    write_peft_folder(tmp_path / "lora", AdapterTensors("lora", 2.0, pairs), base, "tiny")
    version = phone.run("import", tmp_path / "lora", codes=(0, 3))["version"]
    merged = GgufFile.open(phone.workspace / "versions" / version / "model.gguf")
    assert {merged.tensors[name].type_name for name in pairs} == {"Q8_0"}
    assert phone.run("chat", "--prompt", "Who ships?", "--version", version)["version"] == version
    assert "unknown" in " ".join(phone.run("verify", "--version", version, codes=(0, 3))["reasons"])
    phone.tune(tmp_path, "--steps", 1)
    assert "held-out perplexity" in " ".join(phone.run("verify", "--version", version, codes=(0, 3))["reasons"])


def test_a_trained_lora_becomes_the_smallest_file_that_keeps_it_and_the_record_tells_what_was_tried(tiny_lora_bundle_path, tmp_path, capsys):
    phone = Phone(tiny_lora_bundle_path, tmp_path / "work", capsys)
    report = phone.tune(tmp_path, "--epochs", 30)
    attempts = report["merge_attempts"]
    assert [a["way"] for a in attempts] == ["exact, Q4_1", "exact, Q5_1", "exact, Q8_0"][: len(attempts)]
    assert [a["kept"] for a in attempts[:-1]] == [False] * (len(attempts) - 1)
    limit = report["heldout_loss_mounted"] * 1.01
    assert all(a["heldout_loss"] <= limit for a in attempts if a["kept"])
    records = phone.run("audit")["records"]
    made = next(record for record in records if record["event"] in ("merged", "mounted"))
    assert made["facts"]["way"] == (attempts[-1]["way"] if attempts[-1]["kept"] else "mount")
    assert sum(record["event"] == "merge_lost" for record in records) == sum(not a["kept"] for a in attempts)
    model = GgufFile.open(Path(report["model"]))
    types = {info.type_name for name, info in model.tensors.items() if name.startswith("blk.") and "norm" not in name}
    assert types == ({attempts[-1]["way"][-4:]} if attempts[-1]["kept"] else {"Q4_1"})


def test_an_exported_gguf_is_the_version_byte_for_byte_and_never_overwrites(phone, tmp_path):
    version = phone.tune(tmp_path, "--steps", 1)["version"]
    phone.run("export", tmp_path / "out.gguf", "--version", version)
    assert (tmp_path / "out.gguf").read_bytes() == (phone.workspace / "versions" / version / "model.gguf").read_bytes()
    assert "exists already" in phone.run("export", tmp_path / "out.gguf", codes=(2,))["error"]
    assert "is no directory" in phone.run("export", tmp_path / "none" / "out.gguf", codes=(2,))["error"]
    assert "the base has no adapter" in phone.run("export", tmp_path / "out", "--format", "peft", "--version", "base", codes=(2,))["error"]


def test_a_lineage_is_exported_as_one_adapter_and_not_without_a_pruned_part_of_it(phone, tmp_path):
    first = phone.tune(tmp_path, "--steps", 2)["version"]
    second = phone.tune(tmp_path, "--steps", 2, "--from", first, "--seed", 5)["version"]
    phone.run("export", tmp_path / "sum.gguf", "--format", "gguf-lora", "--version", second)
    store = phone.workspace / "versions"
    from mobilefinetuner.runtime.adapter.gguf_lora import read_gguf_lora

    total = read_gguf_lora(tmp_path / "sum.gguf", GgufFile.open(phone.bundle / "model.gguf"))
    parts = [AdapterTensors.load(store / version) for version in (first, second)]
    for name, (a, b) in total.pairs.items():
        wanted = sum(part.scale * part.pairs[name][1] @ part.pairs[name][0] for part in parts)
        np.testing.assert_allclose(total.scale * b @ a, wanted, atol=1e-6)
    phone.run("rollback", second)
    phone.run("versions", "--prune", 1)
    assert f"version {first}: was pruned" in phone.run("export", tmp_path / "again", "--format", "peft", codes=(2,))["error"]
    phone.run("export", tmp_path / "whole.gguf")


def test_a_mounted_version_is_small_and_is_used_listed_trained_on_and_exported(mounting_bundle, tmp_path, capsys):
    phone = Phone(mounting_bundle, tmp_path / "work", capsys)
    report = phone.tune(tmp_path, "--epochs", 30)
    version = report["version"]
    folder = phone.workspace / "versions" / version
    assert sorted(path.name for path in folder.iterdir()) == ["adapter.bin", "adapter.json", "version.json"]
    listed = phone.run("versions")["versions"][0]
    assert listed["mounted_on"] == "base" and listed["bytes"] == (folder / "adapter.bin").stat().st_size
    assert phone.run("chat", "--prompt", "Who ships?", "--version", version)["version"] == version
    further = phone.tune(tmp_path, "--steps", 1, "--from", version)
    assert further["loss_first"] == pytest.approx(report["loss_last"], rel=0.5) and further["loss_first"] < report["loss_first"] / 2
    adapter = AdapterTensors.load(folder)
    phone.run("export", tmp_path / "merged.gguf", "--version", version)
    mounted = phone.logits(phone.bundle / "model.gguf", adapter)
    # Folding rounds the minima to fp16; the base alone is hundreds of times further away.
    np.testing.assert_allclose(phone.logits(tmp_path / "merged.gguf"), mounted, atol=0.05)
    assert abs(phone.logits(phone.bundle / "model.gguf") - mounted).max() > 1


def test_a_damaged_mounted_adapter_is_noticed_and_the_base_takes_its_place(mounting_bundle, tmp_path, capsys):
    phone = Phone(mounting_bundle, tmp_path / "work", capsys)
    version = phone.tune(tmp_path, "--steps", 1)["version"]
    phone.run("rollback", version)
    path = phone.workspace / "versions" / version / "adapter.bin"
    raw = bytearray(path.read_bytes())
    raw[100] ^= 1
    path.write_bytes(raw)
    assert phone.run("chat", "--prompt", "Who ships?")["version"] == "base"
    assert "checksum does not match" in phone.run("chat", "--prompt", "Who ships?", "--version", version, codes=(2,))["error"]


@pytest.mark.parametrize("name, raw, reason", [
    ("none", None, "does not exist"),
    ("x.gguf", b"GGUF", "cut short"),
    ("x.gguf", b"", "is empty"),
])  # fmt: skip
def test_what_is_no_adapter_is_refused_and_the_workspace_stays_as_it_was(phone, tmp_path, name, raw, reason):
    if raw is not None:
        (tmp_path / name).write_bytes(raw)
    assert reason in phone.run("import", tmp_path / name, codes=(2,))["error"]
    assert not phone.workspace.exists()


def test_a_whole_model_is_not_imported_as_an_adapter(phone):
    assert "general.type is" in phone.run("import", phone.bundle / "model.gguf", codes=(2,))["error"]


def test_the_audit_log_is_printed_for_people_and_a_changed_record_is_found(phone, tmp_path, capsys):
    phone.tune(tmp_path, "--steps", 1)
    assert phone.run("audit", "--verify")["holds"]
    capsys.readouterr()
    assert main(["audit", "--last", "1", "--workspace", str(phone.workspace), "--bundle", str(phone.bundle)]) == 0
    line = capsys.readouterr().out
    assert line.count("\n") == 1 and "version v0001" in line
    path = phone.workspace / "audit.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"steps":1', b'"steps":9', 1))
    broken = phone.run("audit", "--verify", codes=(2,))
    assert not broken["holds"] and "was changed or damaged" in broken["fault"]
    assert "was changed or damaged" not in json.dumps(phone.run("audit")["records"])


def test_a_run_that_the_storage_has_no_room_for_is_refused_before_it_begins(phone, tmp_path):
    from mobilefinetuner.runtime.storage.durable import FileLayer, use_layer

    class Small(FileLayer):
        def free_bytes(self, directory: Path) -> int:
            return 150_000  # enough for the cache, and not for checkpoints and a version

    with use_layer(Small()):
        refused = phone.tune(tmp_path, "--steps", 1, code=2)
    assert "bytes are needed and 150,000 are free" in refused["error"]
    assert not list((phone.workspace / "runs").iterdir()) and not list((phone.workspace / "versions").iterdir())
