"""Memory does not grow with the data."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "ingest.py"
BOUND_MB = 150


def _peak_above_start_mb(n_mb: int) -> float:
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), "--mb", str(n_mb), "--rows", "short", "--json"], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)["peak_above_start_mb"]


@pytest.mark.slow
def test_ten_times_the_rows_need_little_more_memory_and_stay_below_the_bound() -> None:
    """40 MB of the shortest rows: what is kept for each row (a hash, a number) may grow by 20 bytes a row, texts may not."""
    small, large = _peak_above_start_mb(4), _peak_above_start_mb(40)
    rows = 40 * 2**20 / 170
    assert large < BOUND_MB
    assert large - small < 40 + 20 * rows / 2**20
