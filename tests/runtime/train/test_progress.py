"""The line that a running job shows."""

from __future__ import annotations

import pytest
from mobilefinetuner.runtime.train.progress import StepLine, fitting, step_parts
from mobilefinetuner.runtime.train.trainer import StepReport


def report(**changes) -> StepReport:
    facts = {
        "step": 12, "steps": 36, "loss": 1.2344, "replay_loss": 0.3061, "heldout_loss": 1.5, "gradient_norm": 1.0, "tokens_per_second": 1234.5,
        "seconds_left": 125.0,
    }  # fmt: skip
    return StepReport(**{**facts, **changes})


def test_a_line_shows_the_losses_the_distance_from_the_base_and_the_time_left():
    *shown, _memory = step_parts(report(), "kl")
    assert shown == ["step 12/36", "loss 1.234", "held-out 1.500", "kl 0.31", "2 min 05 s left", "1,234 tokens/s"]


def test_what_a_run_does_not_have_is_not_shown():
    *shown, _memory = step_parts(report(replay_loss=None, heldout_loss=None), "kl")
    assert shown == ["step 12/36", "loss 1.234", "2 min 05 s left", "1,234 tokens/s"]


@pytest.mark.parametrize(("width", "line"), [(11, "ab  cd  efg"), (10, "ab  cd"), (3, "ab"), (1, "ab")])
def test_a_narrow_terminal_shows_the_first_parts_that_fit(width, line):
    assert fitting(["ab", "cd", "efg"], width) == line


@pytest.mark.parametrize(("replay_loss", "name"), [("kl", "kl 0.31"), ("next_token", "replay 0.31")])
def test_a_log_names_the_replays_loss_by_its_kind(capsys, replay_loss, name):
    line = StepLine(replay_loss)
    line.show(report())
    line.end()
    assert f"  {name}  " in capsys.readouterr().err
