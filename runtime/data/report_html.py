"""The ingest report as one page for a browser.

In:  IngestReport.
Out: a self-contained HTML file: no script, no font, no address outside it, so it can be read on the phone and nothing leaves it.
Excerpts of the person's own texts are in it: it is written only where the user asked for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from ..storage.durable import write_bytes
from .report import HISTOGRAM_TOKENS, IngestReport

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --bar: #3b7dd8; --drop: #c0562f; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
table { border-collapse: collapse; width: 100%; } 
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.bar { background: var(--bar); height: .8rem; border-radius: 2px; min-width: 1px; } .bar.drop { background: var(--drop); }
.wide { width: 45%; } .quiet { opacity: .7; } .excerpt { overflow-wrap: anywhere; } details { margin: .6rem 0; } summary { cursor: pointer; }
.lead { font-size: 1.15rem; }
"""


def write_html(report: IngestReport, path: str | Path) -> None:
    """Write the page. UserError when the place cannot be written to."""
    write_bytes(Path(path), html_of(report).encode("utf-8", "backslashreplace"))


def html_of(report: IngestReport) -> str:
    """The page as text."""
    parts = [
        _head(report),
        _files(report),
        _reasons(report),
        _histogram(report),
        _bars("Speakers", "messages", report.speakers),
        _bars("Scripts", "letters", report.languages),
        _examples(report),
    ]
    body = "\n".join(part for part in parts if part)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>What was read</title><style>{_STYLE}</style></head><body>\n{body}\n</body></html>\n"
    )


def _head(report: IngestReport) -> str:
    dropped = sum(report.dropped.values())
    facts = [
        ("records", report.records),
        ("kept", report.kept),
        ("dropped", dropped),
        ("held out", report.heldout),
        ("samples", report.windows),
        ("tokens", report.tokens),
        ("learned", report.labels),
    ]
    cells = "".join(f'<td class="n">{value:,}</td>' for _, value in facts)
    heads = "".join(f'<th class="n">{name}</th>' for name, _ in facts)
    trimmed = f"<p>{report.prompts_trimmed:,} prompts were longer than half the window; their end was kept.</p>" if report.prompts_trimmed else ""
    return (
        f'<h1>What was read</h1><p class="lead">{report.kept:,} of {report.records:,} records were kept.</p>'
        f"<table><tr>{heads}</tr><tr>{cells}</tr></table>{trimmed}"
        f'<p class="quiet">fingerprint {escape(report.fingerprint)}</p>'
    )


def _files(report: IngestReport) -> str:
    rows = []
    for entry in report.files:
        reasons = ", ".join(f"{_words(reason)} {count:,}" for reason, count in Counter(entry.dropped).most_common())
        notes = [f"left out: {entry.skipped}"] if entry.skipped else []
        notes += [f"dates read as {entry.date_order}"] if entry.date_order else []
        notes += [f"columns not used: {', '.join(entry.unmapped_columns)}"] if entry.unmapped_columns else []
        how = " · ".join(filter(None, (entry.format, entry.encoding)))
        rows.append(
            f'<tr><td class="excerpt">{escape(entry.name)}<div class="quiet">{escape(how)}<br>{escape(entry.evidence)}'
            f'<br>{escape("; ".join(notes))}</div></td><td class="n">{entry.records:,}</td><td class="n">{entry.kept:,}</td>'
            f"<td>{escape(reasons)}</td></tr>"
        )
    return '<h2>Files</h2><table><tr><th>file</th><th class="n">records</th><th class="n">kept</th><th>dropped</th></tr>' + "".join(rows) + "</table>"


def _reasons(report: IngestReport) -> str:
    tables = [
        ("Dropped, by reason", "records", report.dropped, "drop"),
        ("Turns removed from kept records", "turns", report.turns_removed, "drop"),
        ("Answers read but not learned", "turns", report.turns_not_learned, "drop"),
        ("Lines that are not speech", "lines", report.lines_skipped, "drop"),
        ("Replaced by placeholders", "records", report.redacted, ""),
    ]
    return "".join(_bars(title, unit, counts, kind) for title, unit, counts, kind in tables)


def _bars(title: str, unit: str, counts: Counter[str], kind: str = "") -> str:
    """A table with a bar for each count, nothing for none."""
    return _bar_table(title, unit, [(_words(name), count) for name, count in counts.most_common(40)], kind)


def _bar_table(title: str, unit: str, rows: Sequence[tuple[str, int]], kind: str = "") -> str:
    if not rows:
        return ""
    most = max(count for _, count in rows) or 1
    lines = "".join(
        f'<tr><td>{escape(name)}</td><td class="n">{count:,}</td><td class="wide"><div class="bar {kind}" '
        f'style="width:{100 * count / most:.1f}%"></div></td></tr>'
        for name, count in rows
    )
    return f'<h2>{escape(title)}</h2><table><tr><th></th><th class="n">{escape(unit)}</th><th class="wide"></th></tr>{lines}</table>'


def _histogram(report: IngestReport) -> str:
    """Samples by length."""
    lows = [1, *(bound + 1 for bound in HISTOGRAM_TOKENS)]
    names = [f"{low:,} to {high:,}" for low, high in zip(lows, HISTOGRAM_TOKENS)] + [f"more than {HISTOGRAM_TOKENS[-1]:,}"]
    used = [place for place, count in enumerate(report.histogram) if count]
    if not used:
        return ""
    return _bar_table("Lengths in tokens", "samples", list(zip(names, report.histogram))[used[0] : used[-1] + 1])


def _examples(report: IngestReport) -> str:
    """A few of everything, each kind under a title that opens it."""
    kept = report.examples.get("kept", [])
    others = {reason: entries for reason, entries in report.examples.items() if reason != "kept"}
    parts = [_fold(f"Kept (the first {len(kept)})", kept)] if kept else []
    parts += [_fold(f"{_words(reason)} (the first {len(entries)})", entries) for reason, entries in others.items()]
    return "<h2>Examples</h2>" + "".join(parts) if parts else ""


def _fold(title: str, entries: Iterable[dict]) -> str:
    rows = "".join(
        f'<tr><td class="quiet">{escape(str(entry.get("file", "")))}, {entry.get("line", "")}</td>'
        f'<td class="excerpt">{escape(str(entry.get("title", "") or ""))} {escape(str(entry.get("excerpt", "")))}'
        f'<div class="quiet">{escape(str(entry.get("detail", "")))}</div></td></tr>'
        for entry in entries
    )
    return f"<details><summary>{escape(title)}</summary><table>{rows}</table></details>"


def _words(name: str) -> str:
    return name.replace("_", " ")
