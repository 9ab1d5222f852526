"""mft demo: the whole way on a shop's conversations, on this machine.

In:  nothing: the model is fetched, the shop's conversations ship with the customer_service scenario.
Out: a bundle and a workspace under demo-run/; the answers before and after, perplexity, time, memory, and where the new weights are.
Everything shown comes from the runtime's own report of this run.
"""

from __future__ import annotations

import argparse
import importlib.resources
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ..runtime.errors import MftError

OVERRIDES = ("scenario=customer_service", "model=smollm2_135m", "device=host")
QUESTIONS_SHOWN = 6


def main(words: Sequence[str]) -> int:
    """Compile, tune, show. Returns the runtime's exit code."""
    parser = argparse.ArgumentParser(prog="mft demo", description="Compile, tune, merge, verify and ask, on a shop's conversations.")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="settings of the recipe, such as train.epochs=4")
    parser.add_argument("--folder", type=Path, default=Path("demo-run"), metavar="DIR", help="where bundle and workspace go (default: demo-run)")
    options = parser.parse_args(words)
    from .pipeline import compile_bundle
    from .recipe.load import load_recipe

    folder = options.folder.absolute()
    begun = time.monotonic()
    bundle = compile_bundle(load_recipe([*OVERRIDES, f"out={folder / 'bundle'}", *options.overrides]), lambda line: print(line, file=sys.stderr))
    compiled = time.monotonic() - begun
    code, report = _tune(bundle, folder / "workspace")
    if report is None:
        return code
    _show(Console(highlight=False), report, bundle, folder / "workspace", compiled, time.monotonic() - begun)
    return code


def _tune(bundle: Path, workspace: Path) -> tuple[int, dict | None]:
    """Run the phone's tune on the shipped sample; its progress goes to this terminal."""
    sample = importlib.resources.files("mobilefinetuner.templates") / "customer_service" / "sample.jsonl"
    command = [sys.executable, str(bundle / "mft.pyz"), "tune", str(sample), "--workspace", str(workspace), "--json"]
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, encoding="utf-8")
    if result.returncode not in (0, 3):
        return result.returncode, None
    try:
        return result.returncode, json.loads(result.stdout)
    except ValueError:
        raise MftError(f"the runtime printed no JSON: {result.stdout[:200]!r}") from None


def _show(console: Console, report: dict, bundle: Path, workspace: Path, compiled: float, total: float) -> None:
    before, after = report["before"], report["after"]
    table = Table(title="Questions that were held back from training", show_lines=True)
    for heading in ("question", "before", "after", "facts"):
        table.add_column(heading, overflow="fold")
    pairs = list(zip(before["answers"], after["answers"]))
    for old, new in pairs[:: max(1, len(pairs) // QUESTIONS_SHOWN)][:QUESTIONS_SHOWN]:
        table.add_row(new["question"], _shortened(old["answer"]), new["answer"], _facts(new))
    console.print(table)
    rows = [
        ("held-out perplexity", f"{before['perplexity']:.2f} → {after['perplexity']:.2f}"),
        ("facts in the answers", f"{before['entity_recall']:.2f} → {after['entity_recall']:.2f} (all {len(pairs)} held-back questions)"),
        (
            "training",
            f"{report['steps']} steps, loss {report['loss_first']:.3f} → {report['loss_last']:.3f}, {report['tokens_per_second']:.0f} tokens/s",
        ),
        ("time", f"compile {compiled:.0f} s, train {report['seconds']:.0f} s, all {total:.0f} s"),
        ("peak memory", f"{report['peak_rss_bytes'] / 2**20:.0f} MB, planned {report['plan_bytes'] / 2**20:.0f} MB"),
        ("verdict", f"{report['verdict']}: " + "; ".join(report["reasons"])),
        ("new weights", report["model"]),
    ]
    for name, value in rows:
        console.print(f"{name + ':':<22}{value}", soft_wrap=True, markup=False)
    pyz = f"python3 {bundle / 'mft.pyz'}"
    console.print(f"\nask it:   {pyz} chat --workspace {workspace}", soft_wrap=True, markup=False)
    console.print(f"go back:  {pyz} rollback --workspace {workspace}", soft_wrap=True, markup=False)


def _facts(answer: dict) -> str:
    return "\n".join([*(f"✓ {fact}" for fact in answer["found"]), *(f"✗ {fact}" for fact in answer["missed"])])


def _shortened(text: str, limit: int = 160) -> str:
    one_line = " ".join(text.split())
    return one_line if len(one_line) <= limit else one_line[: limit - 1] + "…"
