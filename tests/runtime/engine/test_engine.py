"""Opening a model: what does not fit the bundle is refused, and nothing stays open behind a refusal."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from mobilefinetuner.runtime.bundle.plan import KernelCall
from mobilefinetuner.runtime.engine.engine import Engine, rope_tables
from mobilefinetuner.runtime.errors import MftError, UserError
from mobilefinetuner.runtime.gguf.file import GgufFile
from mobilefinetuner.runtime.train.step import TrainStep

from tests.support.engine_trial import EngineTrial, load_plan
from tests.support.tiny_bundle import TinySizes, write_tiny_model


def opened(bundle, weights=None, plan=None, threads=1) -> Engine:
    return Engine(plan or load_plan(bundle), bundle / "kernels.so", GgufFile.open(weights or bundle / "model.gguf"), threads)


def test_weights_of_types_without_kernels_are_refused_and_the_library_stays_free(tiny_bundle_path, tmp_path):
    other = write_tiny_model(tmp_path / "other.gguf", TinySizes(projections="Q4_0"))
    with pytest.raises(UserError, match="Q4_0"):
        opened(tiny_bundle_path, other)
    opened(tiny_bundle_path).close()


def test_weights_that_can_be_run_but_not_trained_are_refused_by_the_training_step(tiny_bundle_path, tmp_path):
    lifted = write_tiny_model(tmp_path / "lifted.gguf", TinySizes(projections="Q8_0"))
    with opened(tiny_bundle_path, lifted) as engine, pytest.raises(UserError, match="can run but not train"):
        TrainStep(engine, "1x32")


def test_weights_that_are_not_aligned_are_refused_and_the_library_stays_free(tiny_bundle_path, tmp_path):
    other = write_tiny_model(tmp_path / "other.gguf", TinySizes(alignment=32))
    with pytest.raises(UserError, match="aligned"):
        opened(tiny_bundle_path, other)
    opened(tiny_bundle_path).close()


def test_more_threads_than_the_library_has_room_for_are_refused(tiny_bundle_path):
    with pytest.raises(MftError, match="65 threads"):
        opened(tiny_bundle_path, threads=65)
    opened(tiny_bundle_path).close()


def test_a_second_engine_in_the_process_is_refused_until_the_first_is_closed(tiny_bundle_path):
    first = opened(tiny_bundle_path)
    with pytest.raises(MftError, match="open already"):
        opened(tiny_bundle_path)
    first.close()
    opened(tiny_bundle_path).close()


def test_a_plan_of_another_library_is_refused_by_the_kernel_it_wants(tiny_bundle_path):
    plan = load_plan(tiny_bundle_path)
    entries = tuple(dataclasses.replace(e, calls=(KernelCall("foreign_7", e.calls[0].arguments),)) if e.name == "embed" else e for e in plan.entries)
    with opened(tiny_bundle_path, plan=dataclasses.replace(plan, entries=entries)) as engine, pytest.raises(MftError, match="foreign_7"):
        engine.program(engine.plan.entry("embed", "1x32"), {"ids": 0, "y": 0}, 0)


def test_an_operand_without_an_address_is_named(tiny_bundle_path):
    with opened(tiny_bundle_path) as engine, pytest.raises(KeyError, match="ids"):
        engine.program(engine.plan.entry("embed", "1x32"), {"y": 0}, 0)


def test_rope_tables_are_cosine_and_sine_of_position_times_frequency():
    cos, sin = rope_tables(64, 16, 10000.0)
    angles = np.arange(64)[:, None] * 10000.0 ** (-np.arange(0, 16, 2) / 16)
    np.testing.assert_allclose(cos, np.cos(angles), atol=64 * 2e-7)
    np.testing.assert_allclose(sin, np.sin(angles), atol=64 * 2e-7)


def test_answers_do_not_depend_on_threads_or_on_what_was_asked_before(tiny):
    prompts = [[5, 6, 7], list(range(3, 60)), list(range(3, 80))]
    lengths = [20, 20, 12]
    both = tiny.answers(prompts, lengths)
    assert [len(answer) for answer in both] == lengths
    assert tiny.answers(prompts[::-1], lengths[::-1]) == both[::-1]
    tiny.reopen(threads=1)
    assert tiny.answers(prompts, lengths) == both


def test_reading_a_prompt_at_once_and_token_by_token_lead_to_the_same_answer(tiny):
    """A prompt beyond the longest bucket is read on token by token; a part of it that fits is read at once."""
    from mobilefinetuner.runtime.engine.decode import Decoder

    decoder = Decoder(tiny.engine)
    prompt = list(np.random.RandomState(0).randint(3, 512, 60))
    at_once = decoder.start(prompt).copy()
    decoder.start(prompt[:1])
    for token in prompt[1:]:
        one_by_one = decoder.next(token)
    np.testing.assert_allclose(one_by_one, at_once, rtol=0, atol=1e-5 * np.abs(at_once).max())


def test_a_closed_trial_leaves_no_thread_behind(tiny_bundle_path):
    import threading

    before = threading.active_count()
    trial = EngineTrial.open(tiny_bundle_path, threads=4)
    assert threading.active_count() == before + 3
    trial.close()
    assert threading.active_count() == before
