"""What is in a bundle, for a person or as JSON.

In:  a bundle's folder, for any device: nothing of it is executed.
Out: a dict (`describe_bundle`) and a page for the terminal (`print_bundle`).
A damaged bundle is refused like everywhere else, because a description of it would describe something else.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ...runtime.bundle.cpu_features import read_machine_cpu
from ...runtime.bundle.folder import MANIFEST_NAME, Bundle
from ...runtime.bundle.plan import PhaseMemory
from ...runtime.errors import UserError
from ...runtime.plain_data import bind, plain


def describe_bundle(folder: Path) -> dict[str, Any]:
    """Everything the manifest says, and whether this machine can run it."""
    bundle = Bundle.open(folder, to_execute=False)
    files = {name: plain(record) for name, record in sorted(bundle.files.items())}
    runs_here, reason = True, ""
    try:
        bundle.require_machine(read_machine_cpu())
    except UserError as error:
        runs_here, reason = False, error.found
    return {
        "path": str(folder),
        "bundle_id": bundle.bundle_id,
        "format_version": bundle.manifest.format_version,
        "abi": plain(bundle.manifest.abi),
        "required_cpu_features": list(bundle.manifest.required_cpu_features),
        "runs_here": runs_here,
        "runs_here_reason": reason,
        "n_bytes": sum(record.n_bytes for record in bundle.files.values()) + (folder / MANIFEST_NAME).stat().st_size,
        "files": files,
        "memory": [{**dataclasses.asdict(phase), "total": phase.total} for phase in _memory_plan(bundle)],
        "base_conversions": plain(bundle.manifest.base_conversions),
        "recipe": bundle.recipe,
        "tools": bundle.manifest.tools,
    }


def print_bundle(description: Mapping[str, Any], console: Console) -> None:
    """The same as a page."""
    facts = {
        "bundle": description["path"],
        "id": description["bundle_id"],
        "format": description["format_version"],
        "size": _size(description["n_bytes"]),
        "made for": _made_for(description["abi"]),
        "needs": " ".join(description["required_cpu_features"]) or "no special CPU features",
        "runs here": "yes" if description["runs_here"] else f"no: {description['runs_here_reason']}",
        "made with": ", ".join(f"{name} {version}" for name, version in description["tools"].items()),
    }
    console.print(_table((), ((name, str(value)) for name, value in facts.items())))
    rows = [(name, _size(file["n_bytes"]), file["sha256"][:16]) for name, file in description["files"].items()]
    console.print(_table(("file", "size", "sha256"), rows))
    if conversions := description["base_conversions"]:
        converted = ([f"{v:.1e}" if isinstance(v, float) else str(v) for v in c.values()] for c in conversions)
        console.print(_table(("base converted", *list(conversions[0])[1:]), converted))
    if phases := description["memory"]:
        console.print(_table(("phase", "memory"), ((phase["phase"], _size(phase["total"])) for phase in phases)))
        peak, budget = max(phase["total"] for phase in phases), description["recipe"]["device"]["memory_budget_mb"] << 20
        console.print(f" peak {_size(peak)} of the device's {_size(budget)}; --json has the parts of each phase", highlight=False)
    console.print(_table(("recipe", ""), ((key, str(value)) for key, value in _flat(description["recipe"]))))


def _memory_plan(bundle: Bundle) -> list[PhaseMemory]:
    """What each phase needs at its peak, as the static plan says."""
    plan = json.loads(bundle.path("plan.json").read_bytes())
    return list(bind(tuple[PhaseMemory, ...], plan["memory"], "plan.json.memory"))


def _table(head: tuple[str, ...], rows: Any) -> Table:
    table = Table(box=box.ASCII if head else None, show_header=bool(head), title_justify="left")
    for name in head or ("", ""):
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    return table


def _flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Dotted keys, as they are typed on the command line."""
    pairs: list[tuple[str, Any]] = []
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            pairs += _flat(value, f"{prefix}{key}.")
        else:
            pairs.append((f"{prefix}{key}", ", ".join(map(str, value)) if isinstance(value, list) else value))
    return pairs


def _size(n_bytes: int) -> str:
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if n_bytes >= factor:
            return f"{n_bytes / factor:.1f} {unit}"
    return f"{n_bytes} B"


def _made_for(abi: dict[str, Any]) -> str:
    """arch, mtriple and cpu, and the variants by their files."""
    facts = [f"{key} {value}" for key, value in abi.items() if isinstance(value, str)]
    return ", ".join([*facts, *(f"or better: {variant['file']}" for variant in abi.get("variants", []))])
