"""A bundle is opened whole, on a machine that can run it, or not at all."""

import hashlib
import json
import os
import shutil

import pytest
from mobilefinetuner.compiler.bundle.writer import write_bundle
from mobilefinetuner.runtime.bundle.cpu_features import MachineCpu
from mobilefinetuner.runtime.bundle.folder import FORMAT_VERSION, Bundle, bundle_id_of, manifest_bytes
from mobilefinetuner.runtime.errors import UserError

MACHINE = MachineCpu("aarch64", frozenset({"fp", "asimd", "asimddp"}))
FIELDS = {
    "abi": {"arch": "aarch64", "mtriple": "aarch64-linux-android"},
    "recipe": {"train": {"rank": 16, "learning_rate": 1e-4}, "scenario": {"system_prompt": "你好 “shop”"}},
    "base_conversions": [],
    "required_cpu_features": ["asimd", "asimddp"],
    "tools": {"mobilefinetuner": "0.1.0"},
}
FILES = {"kernels.so": b"\x7fELF" + bytes(range(60)), "plan.json": b"{}\n", "empty.jsonl": b""}


@pytest.fixture
def bundle(tmp_path):
    return write_bundle(tmp_path / "b", FILES, FIELDS)


def refusal(folder, machine=MACHINE, **how):
    with pytest.raises(UserError) as caught:
        Bundle.open(folder, machine, **how)
    assert caught.value.exit_code == 2 and "\n" not in str(caught.value)
    return str(caught.value)


def rewrite_manifest(folder, **changes):
    """A manifest that belongs to itself but says something else."""
    manifest = {**json.loads((folder / "manifest.json").read_bytes()), **changes}
    manifest["bundle_id"] = bundle_id_of(manifest)
    (folder / "manifest.json").write_bytes(manifest_bytes(manifest))


def test_an_intact_bundle_opens_with_its_recipe_and_files(bundle):
    opened = Bundle.open(bundle, MACHINE)
    assert opened.recipe == FIELDS["recipe"]
    assert opened.path("plan.json").read_bytes() == b"{}\n"
    assert set(opened.files) == set(FILES)


def test_the_checksums_are_what_sha256_says(bundle):
    records = Bundle.open(bundle, MACHINE).files
    assert {name: hashlib.sha256(content).hexdigest() for name, content in FILES.items()} == {name: record.sha256 for name, record in records.items()}


def test_one_flipped_bit_anywhere_is_refused(bundle):
    for path in sorted(bundle.iterdir()):
        intact = path.read_bytes()
        for position in range(len(intact)):
            for bit in range(8) if position % 7 == 0 or len(intact) < 100 else (position % 8,):
                damaged = bytearray(intact)
                damaged[position] ^= 1 << bit
                path.write_bytes(damaged)
                assert refusal(bundle)
        path.write_bytes(intact)
    assert Bundle.open(bundle, MACHINE)


def test_a_file_cut_off_anywhere_is_refused(bundle):
    for path in sorted(bundle.iterdir()):
        intact = path.read_bytes()
        for length in range(0, len(intact), 3):
            path.write_bytes(intact[:length])
            assert refusal(bundle)
        path.write_bytes(intact + b"\n")
        assert refusal(bundle)
        path.write_bytes(intact)


def test_a_missing_file_is_named(bundle):
    (bundle / "plan.json").unlink()
    assert "plan.json" in refusal(bundle)


def test_a_file_that_was_not_compiled_is_named(bundle):
    (bundle / "notes.txt").write_text("mine")
    assert "notes.txt" in refusal(bundle) and "--workspace" in refusal(bundle)


def test_a_link_instead_of_a_file_is_refused(bundle, tmp_path):
    shutil.move(bundle / "plan.json", tmp_path / "plan.json")
    os.symlink(tmp_path / "plan.json", bundle / "plan.json")
    assert "regular file" in refusal(bundle)


@pytest.mark.parametrize("name", ["../plan.json", "/etc/passwd", "a/b", ".hidden", "manifest.json", ""])
def test_a_manifest_that_names_a_place_outside_is_refused(bundle, name):
    record = {"n_bytes": 3, "sha256": "0" * 64}
    rewrite_manifest(bundle, files={name: record})
    assert "form that no compiler writes" in refusal(bundle)


@pytest.mark.parametrize(
    "changes",
    [{"files": []}, {"files": {"a": 1}}, {"files": {"a": {"n_bytes": True, "sha256": "0" * 64}}},
     {"files": {"a": {"n_bytes": -1, "sha256": "0" * 64}}}, {"abi": {}}, {"abi": "arm"}, {"required_cpu_features": "asimd"},
     {"required_cpu_features": [1]}, {"recipe": None}, {"base_conversions": {}}, {"surplus": 1}],
    ids=str,
)  # fmt: skip
def test_a_manifest_of_another_form_is_refused(bundle, changes):
    rewrite_manifest(bundle, **changes)
    assert "manifest.json" in refusal(bundle)


@pytest.mark.parametrize(
    "content", [b"", b"null", b"[]", b"[" * 100000, b"\xff\xfe", b'{"format_version": 1}', b'{"a": 1, "a": 2}', b'{"format_version": NaN}']
)
def test_whatever_stands_in_the_manifest_the_answer_is_a_sentence(bundle, content):
    (bundle / "manifest.json").write_bytes(content)
    assert refusal(bundle)


@pytest.mark.parametrize("version", [0, FORMAT_VERSION + 1, "1", None])
def test_another_format_version_is_refused_and_both_numbers_are_named(bundle, version):
    rewrite_manifest(bundle, format_version=version)
    text = refusal(bundle)
    assert repr(version) in text and f"{FORMAT_VERSION} is what this runtime" in text


def test_a_newer_format_with_other_keys_is_still_named_as_such(bundle):
    (bundle / "manifest.json").write_text(json.dumps({"format_version": 99, "everything": "else"}))
    assert "99" in refusal(bundle)


def test_a_machine_of_another_architecture_is_refused(bundle):
    text = refusal(bundle, MachineCpu("x86_64", frozenset({"avx2"})))
    assert "aarch64" in text and "x86_64" in text


def test_lacking_cpu_features_are_named_and_only_those(bundle):
    text = refusal(bundle, MachineCpu("aarch64", frozenset({"asimd"})))
    assert "asimddp" in text and "asimd," not in text


def test_a_bundle_for_another_machine_can_still_be_looked_at(bundle):
    assert Bundle.open(bundle, MachineCpu("x86_64", frozenset()), to_execute=False).bundle_id


def test_a_damaged_file_is_reported_before_the_machine_is_looked_at(bundle):
    (bundle / "kernels.so").write_bytes(b"")
    assert "kernels.so" in refusal(bundle, MachineCpu("x86_64", frozenset()))


def test_what_is_not_a_bundle_is_called_that(tmp_path):
    assert "is not a bundle" in refusal(tmp_path)
    assert "is not a bundle" in refusal(tmp_path / "nowhere")
    (tmp_path / "file").write_text("x")
    assert "is not a bundle" in refusal(tmp_path / "file")


def test_a_file_that_the_bundle_does_not_hold_is_refused_by_name(bundle):
    with pytest.raises(UserError, match=r"eval.jsonl"):
        Bundle.open(bundle, MACHINE).path("eval.jsonl")
