"""mft.pyz versions: list the versions with their lineage."""

from __future__ import annotations

import argparse

from ..session import Session

SUMMARY = "list the model's versions"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--prune", type=int, metavar="KEEP", help="free the space of all but the KEEP newest versions")


def run(session: Session, options: argparse.Namespace) -> int:
    if options.prune is not None:
        with session.workspace.locked("versions --prune"):
            pruned, freed_bytes = session.versions.prune(options.prune)
            session.audit.append("pruned", versions=pruned, freed_bytes=freed_bytes)
        session.say(f"freed {freed_bytes / 1e6:,.1f} MB: {', '.join(pruned) or 'nothing to prune'}")
    listing = session.versions.listing()
    session.notices(listing.notices)
    session.result(listing.as_json(), _table(listing.as_json()))
    return 0


def _table(document: dict) -> str:
    rows = [("", "version", "parent", "made", "steps", "MB", "verdict")]
    for version in document["versions"]:
        mark = "*" if version["id"] == document["current"] else ""
        rows.append((
            mark, version["id"], version["parent"] or "-", version["created"] or "-", str(version.get("steps") or "-"),
            f"{version['bytes'] / 1e6:,.1f}", version.get("verdict") or "-",
        ))  # fmt: skip
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)
