"""Checkpoints: what goes in comes out, and the newest intact one is found."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mobilefinetuner.runtime.errors import UserError
from mobilefinetuner.runtime.storage import checkpoint


def state(step: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(step)
    return {
        "adapter": rng.normal(size=(7, 3)).astype(np.float32),
        "m": rng.normal(size=21).astype(np.float32),
        "order": rng.permutation(9),
        "none": np.empty((0, 2), np.float32),
    }


def test_arrays_and_facts_come_back_bit_for_bit_also_a_generators_state(tmp_path):
    generator = np.random.default_rng(5)
    meta = {"step": 12, "random_state": generator.bit_generator.state, "fingerprint": "数据", "scale": 0.1}
    checkpoint.save(tmp_path / "runs" / "a", state(1), meta)
    loaded = checkpoint.load_newest(tmp_path / "runs" / "a")
    assert loaded.meta == meta and loaded.passed_over == ()
    for name, array in state(1).items():
        assert loaded.state[name].dtype == array.dtype and loaded.state[name].shape == array.shape
        assert loaded.state[name].tobytes() == array.tobytes() and loaded.state[name].flags.writeable
    resumed = np.random.default_rng()
    resumed.bit_generator.state = loaded.meta["random_state"]
    np.testing.assert_array_equal(resumed.normal(size=4), generator.normal(size=4))


def test_only_the_newest_two_stay_and_none_is_no_error(tmp_path):
    assert checkpoint.load_newest(tmp_path / "none") is None
    for step in range(1, 6):
        checkpoint.save(tmp_path, state(step), {"step": step})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-00000004.mftc", "checkpoint-00000005.mftc"]
    assert checkpoint.load_newest(tmp_path).meta["step"] == 5
    checkpoint.discard(tmp_path)
    assert checkpoint.load_newest(tmp_path) is None and list(tmp_path.iterdir()) == []


@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_any_cut_or_flipped_bit_in_the_newest_falls_back_to_the_one_before(tmp_path_factory, data):
    directory = tmp_path_factory.getbasetemp() / "fallback"
    checkpoint.discard(directory)
    checkpoint.save(directory, state(1), {"step": 1})
    newest = checkpoint.save(directory, state(2), {"step": 2})
    raw = bytearray(newest.read_bytes())
    if data.draw(st.booleans()):
        raw = raw[: data.draw(st.integers(0, len(raw) - 1))]
    else:
        position = data.draw(st.integers(0, len(raw) * 8 - 1))
        raw[position // 8] ^= 1 << position % 8
    newest.write_bytes(raw)
    loaded = checkpoint.load_newest(directory)
    assert loaded.meta == {"step": 1} and loaded.state["adapter"].tobytes() == state(1)["adapter"].tobytes()
    assert len(loaded.passed_over) == 1 and newest.name in loaded.passed_over[0]


def test_when_every_checkpoint_is_damaged_the_user_is_told_what_to_do(tmp_path):
    checkpoint.save(tmp_path, state(1), {}).write_bytes(b"")
    with pytest.raises(UserError, match=r"every checkpoint is damaged.*start again without --resume"):
        checkpoint.load_newest(tmp_path)


@pytest.mark.parametrize("meta", [{1: "key"}, {"pair": (1, 2)}, {"loss": float("nan")}])
def test_facts_that_json_would_change_are_refused_when_saving(tmp_path, meta):
    with pytest.raises(ValueError, match="does not survive JSON"):
        checkpoint.save(tmp_path, {}, meta)


def test_an_array_of_objects_is_refused(tmp_path):
    with pytest.raises(ValueError, match="checkpoint array 'x' is object"):
        checkpoint.save(tmp_path, {"x": np.array([{}], object)}, {})
    assert list(tmp_path.iterdir()) == []
