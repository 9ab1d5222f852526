"""Lock files say which file of a bundle is not what it was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mobilefinetuner.compiler.lock import checksums_of, differences, main, read_lock
from mobilefinetuner.runtime.errors import UserError

from tests.support.short_stack import on_a_short_stack
from tests.support.tiny_bundle import tiny_overrides

LOCKS = sorted((Path(__file__).parent.parent.parent / "bundles").glob("*.lock.json"))


def test_each_file_that_is_new_gone_or_changed_is_named() -> None:
    lock = {"overrides": [], "files": {"a": "1", "b": "2", "c": "3"}, "required_cpu_features": ["fp"]}
    assert differences(lock, {"files": {"a": "1", "b": "x", "d": "4"}, "required_cpu_features": ["fp"]}) == ["b", "c", "d"]
    assert differences(lock, {**lock, "required_cpu_features": []}) == ["required_cpu_features"]
    assert differences(lock, lock) == []


@pytest.mark.parametrize("content", ["", "[]", '{"files": {}}'])
def test_a_file_that_is_no_lock_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "x.lock.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UserError):
        read_lock(path)


def test_a_bundle_that_changed_is_named_and_write_makes_it_the_new_truth(tmp_path: Path, tiny_model_path: Path, monkeypatch) -> None:
    """It is compiled twice, which must give the same bytes; what is looked at after that needs no further compilation."""
    compiled: list[dict] = []

    def checksums(overrides: list[str], progress) -> dict:
        if len(compiled) < 2:
            compiled.append(on_a_short_stack(checksums_of, overrides, progress))
        return compiled[-1]

    monkeypatch.setattr("mobilefinetuner.compiler.lock.checksums_of", checksums)
    path = tmp_path / "tiny.lock.json"
    overrides = ["scenario=customer_service", "device=pixel_6", *tiny_overrides(tiny_model_path)]
    path.write_text(json.dumps({"overrides": overrides}), encoding="utf-8")
    assert main(["--write", str(path)], lambda _line: None) == 0
    assert main([str(path)], lambda _line: None) == 0
    lock = json.loads(path.read_text(encoding="utf-8"))
    lock["files"]["kernels.so"] = "0" * 64
    path.write_text(json.dumps(lock), encoding="utf-8")
    with pytest.raises(UserError, match=r"differs in kernels.so; "):
        main([str(path)], lambda _line: None)
    assert main(["--write", str(path)], lambda _line: None) == 0
    assert main([str(path)], lambda _line: None) == 0


@pytest.mark.slow
@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_the_reference_bundles_are_what_their_lock_files_say(lock: Path) -> None:
    assert on_a_short_stack(main, [str(lock)], lambda _line: None) == 0
