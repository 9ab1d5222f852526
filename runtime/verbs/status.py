"""mft.pyz status: what this workspace holds and whether something waits to be resumed."""

from __future__ import annotations

import argparse

from ..data.old_caches import caches_in
from ..engine.memory import available_bytes
from ..session import Session
from ..storage import checkpoint

SUMMARY = "show the current version, a running or interrupted run, caches and memory"


def configure(parser: argparse.ArgumentParser) -> None:
    pass


def run(session: Session, options: argparse.Namespace) -> int:
    listing = session.versions.listing()
    session.notices(listing.notices)
    found = checkpoint.load_newest(session.workspace.tune_dir)
    interrupted = None
    if found is not None:
        interrupted = {"step": found.meta["record"]["step"], "steps": found.meta["identity"]["steps"], "data": found.meta["identity"]["data"]}
    owner = session.workspace.owner()
    free = available_bytes()
    document = {
        "bundle": session.bundle.bundle_id, "model": session.bundle.recipe["model"]["name"], "scenario": session.scenario.name,
        "workspace": str(session.workspace.path), "current": listing.current, "versions": len(listing.versions), "interrupted": interrupted,
        "running": None if owner is None else {"command": owner.command, "pid": owner.pid, "since": owner.since_utc},
        "caches": sorted(path.name for path in caches_in(session.workspace.cache_dir)), "threads": session.threads,
        "plan_bytes": session.plan.peak_bytes, "available_bytes": free,
    }  # fmt: skip
    session.result(document, _page(document))
    return 0


def _page(d: dict) -> str:
    waiting, working = d["interrupted"], d["running"]
    run = f"stopped after step {waiting['step']} of {waiting['steps']}: tune … --resume goes on" if waiting else "none"
    if working:
        run = f"{working['command']} since {working['since']} (process {working['pid']})"
        run += f", last checkpoint after step {waiting['step']} of {waiting['steps']}" if waiting and working["command"] == "tune" else ""
    free = "unknown" if d["available_bytes"] is None else f"{d['available_bytes'] / 2**20:,.0f} MB"
    rows = [
        ("model", f"{d['model']}, scenario {d['scenario']}, bundle {d['bundle'][:16]}…"), ("workspace", d["workspace"]),
        ("current", f"{d['current']} ({d['versions']} versions)"), ("running" if working else "interrupted run", run),
        ("training caches", ", ".join(d["caches"]) or "none"), ("threads", str(d["threads"])),
        ("memory", f"the plan needs {d['plan_bytes'] / 2**20:,.0f} MB, free: {free}"),
    ]  # fmt: skip
    return "\n".join(f"{name + ':':<17}{value}" for name, value in rows)
