"""Interop tests compare with other tools' own code; the PyTorch oracle lies beside the golden values' scripts."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "oracles"))
