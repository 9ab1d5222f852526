"""The course of a run: the learning rate of each step, and which samples it sees.

References: numbers worked out by hand; transformers' schedulers, whose step is one behind in the warm-up and the same after it.
"""

from __future__ import annotations

import dataclasses

import pytest
from mobilefinetuner.runtime.train.replay import ReplaySettings
from mobilefinetuner.runtime.train.schedule import TrainingSchedule, TrainSettings
from mobilefinetuner.runtime.train.step import AdamW

RATE = 0.8
SETTINGS = TrainSettings(
    learning_rate=RATE, warmup_share=0.2, schedule="linear", batch_samples=4, epochs=2, seed=7, checkpoint_every_steps=10,
    optimizer=AdamW(0.9, 0.999, 1e-8, 0.0, 1.0, 0.0), replay=ReplaySettings(0, "kl", 1.0), early_stop=False,
)  # fmt: skip
SCHEDULES = ("linear", "cosine", "constant")


def course(steps: int | None = None, samples: int = 10, **changes) -> TrainingSchedule:
    return TrainingSchedule.of(dataclasses.replace(SETTINGS, **changes), samples, steps)


@pytest.mark.parametrize(
    ("schedule", "step", "rate"),
    [
        # 10 steps, 2 of them warm-up: half the rate, the whole rate, the whole rate again, and down.
        pytest.param("linear", 1, RATE / 2, id="linear, step 1"),
        pytest.param("linear", 2, RATE, id="linear, end of the warm-up"),
        pytest.param("linear", 3, RATE, id="linear, first step after the warm-up"),
        pytest.param("linear", 7, RATE / 2, id="linear, half way down"),
        pytest.param("linear", 10, RATE / 8, id="linear, last step"),
        pytest.param("cosine", 1, RATE / 2, id="cosine, step 1"),
        pytest.param("cosine", 2, RATE, id="cosine, end of the warm-up"),
        pytest.param("cosine", 3, RATE, id="cosine, first step after the warm-up"),
        pytest.param("cosine", 7, RATE / 2, id="cosine, half way down"),
        pytest.param("cosine", 10, RATE * 0.0380602337443566, id="cosine, last step"),  # (1 - cos(pi/8)) / 2
        pytest.param("constant", 1, RATE / 2, id="constant, step 1"),
        pytest.param("constant", 2, RATE, id="constant, end of the warm-up"),
        pytest.param("constant", 10, RATE, id="constant, last step"),
    ],
)
def test_the_learning_rate_of_a_step_is_the_schedules(schedule, step, rate):
    assert course(10, schedule=schedule).learning_rate(step) == pytest.approx(rate, rel=1e-12)


@pytest.mark.parametrize(
    ("share", "steps", "rates"),
    [
        pytest.param(0.0, 4, (1.0, 0.75, 0.5, 0.25), id="no warm-up begins at the whole rate"),
        pytest.param(0.1, 4, (1.0, 0.75, 0.5, 0.25), id="a warm-up of less than half a step is none"),
        pytest.param(0.9, 4, (0.25, 0.5, 0.75, 1.0), id="a warm-up that rounds to the whole run only rises"),
        pytest.param(0.1, 1, (1.0,), id="a single step has the whole rate"),
    ],
)
def test_the_warm_up_is_rounded_to_whole_steps(share, steps, rates):
    found = course(steps, warmup_share=share)
    assert [found.learning_rate(step) for step in range(1, steps + 1)] == pytest.approx([RATE * rate for rate in rates], rel=1e-12)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_no_step_trains_with_a_rate_of_zero(schedule):
    found = course(50, schedule=schedule)
    assert min(found.learning_rate(step) for step in range(1, 51)) > 0


@pytest.mark.oracle
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_after_the_warm_up_every_rate_is_that_of_transformers(schedule):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    steps, warmup = 30, 6
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=RATE)
    name = "constant_with_warmup" if schedule == "constant" else schedule
    theirs = transformers.get_scheduler(name, optimizer, num_warmup_steps=warmup, num_training_steps=steps)
    ours = course(steps, schedule=schedule)
    for step in range(1, steps + 1):
        # Theirs rises from 0, so that its first step changes nothing; ours reaches the same values one step earlier.
        expected = theirs.get_last_lr()[0] if step > warmup else theirs.get_last_lr()[0] + RATE / warmup
        assert ours.learning_rate(step) == pytest.approx(expected, rel=1e-9), step
        optimizer.step()
        theirs.step()


@pytest.mark.parametrize(
    ("samples", "batch_samples", "epochs", "steps", "expected"),
    [
        pytest.param(8, 4, 2, None, 4, id="full batches"),
        pytest.param(10, 4, 2, None, 6, id="a short last batch is a step of its own"),
        pytest.param(3, 4, 5, None, 5, id="fewer samples than a batch"),
        pytest.param(10, 4, 2, 7, 7, id="the user's own number of steps"),
    ],
)
def test_the_number_of_steps_is_that_of_all_epochs_unless_it_is_given(samples, batch_samples, epochs, steps, expected):
    assert course(steps, samples, batch_samples=batch_samples, epochs=epochs).steps == expected


def test_two_epochs_show_every_sample_twice_each_time_in_another_order():
    found = course(samples=10)
    batches = [found.batch(step) for step in range(1, found.steps + 1)]
    assert [len(batch) for batch in batches] == [4, 4, 2, 4, 4, 2]
    first, second = ([sample for batch in epoch for sample in batch] for epoch in (batches[:3], batches[3:]))
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second and first != list(range(10)) != second


def test_a_batch_depends_on_the_seed_and_the_step_alone():
    found = course(samples=10)
    last_first = [found.batch(step) for step in range(found.steps, 0, -1)][::-1]
    again = course(samples=10, learning_rate=0.1, schedule="cosine")
    assert last_first == [again.batch(step) for step in range(1, again.steps + 1)]
    assert course(samples=10, seed=8).batch(1) != found.batch(1)


def test_more_steps_than_epochs_go_on_with_further_epochs():
    longer, run = course(steps=8, samples=10), course(samples=10)
    assert [longer.batch(step) for step in range(1, 7)] == [run.batch(step) for step in range(1, 7)]
    assert len(longer.batch(7)) == len(longer.batch(8)) == 4 and not set(longer.batch(7)) & set(longer.batch(8))
