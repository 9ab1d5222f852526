"""What ingest says about the data: every record accounted for.

In:  counts, while the run continues.
Out: IngestReport; as_json() is what --json prints and what the cache keeps.
records == kept + the sum of dropped, always.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Any

HISTOGRAM_TOKENS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
"""upper bounds of the sample length histogram; the last class is open"""
EXAMPLES_MAX = 20
"""kept and dropped samples shown for each reason"""
_COUNTERS = ("dropped", "turns_removed", "turns_not_learned", "redacted", "lines_skipped", "speakers", "languages")


@dataclass
class FileReport:
    """One source."""

    name: str
    format: str = ""
    encoding: str = ""
    evidence: str = ""
    """what in the file shows the encoding and the format"""
    date_order: str = ""
    """chat logs whose dates do not say what is the day: the order of day, month and year that was used, and why"""
    records: int = 0
    kept: int = 0
    dropped: Counter = field(default_factory=Counter)
    unmapped_columns: list[str] = field(default_factory=list)
    """columns of the table that were not used"""
    skipped: str = ""
    """why the whole file was left out; empty: it was read"""


@dataclass
class IngestReport:
    """The account of one ingest run."""

    records: int = 0
    """conversations, rows and notes that were read"""
    kept: int = 0
    dropped: Counter = field(default_factory=Counter)
    """records by reason"""
    windows: int = 0
    """samples made of the kept records"""
    fingerprint: str = ""
    heldout: int = 0
    """records held out"""
    heldout_windows: int = 0
    tokens: int = 0
    labels: int = 0
    """tokens that are learned"""
    prompts_trimmed: int = 0
    """prompts too long for the window, of which the end was kept"""
    turns_removed: Counter = field(default_factory=Counter)
    """turns removed from kept conversations, by rule"""
    turns_not_learned: Counter = field(default_factory=Counter)
    """answers of kept conversations that stay as context only, by rule"""
    redacted: Counter = field(default_factory=Counter)
    """conversations in which something was replaced by a placeholder"""
    lines_skipped: Counter = field(default_factory=Counter)
    """chat-log lines that are not speech, by kind"""
    speakers: Counter = field(default_factory=Counter)
    """messages by speaker, of chat logs"""
    languages: Counter = field(default_factory=Counter)
    """letters read, by script"""
    histogram: list[int] = field(default_factory=lambda: [0] * (len(HISTOGRAM_TOKENS) + 1))
    """samples by length"""
    files: list[FileReport] = field(default_factory=list)
    examples: dict[str, list[dict]] = field(default_factory=dict)
    """reason, or "kept" -> the first few: file, line, detail, excerpt"""
    cache: str = ""
    """the training cache's file"""
    reused: bool = False
    """the cache was there already"""

    def show(self, reason: str, example: dict[str, Any]) -> None:
        """Keep an example, if there are few of its reason yet."""
        shown = self.examples.setdefault(reason, [])
        if len(shown) < EXAMPLES_MAX:
            shown.append(example)

    def shows(self, reason: str) -> bool:
        """Whether another example of it would be kept."""
        return len(self.examples.get(reason, ())) < EXAMPLES_MAX

    def count_sample(self, n_tokens: int, n_labels: int) -> None:
        self.windows += 1
        self.tokens += n_tokens
        self.labels += n_labels
        self.histogram[sum(n_tokens > bound for bound in HISTOGRAM_TOKENS)] += 1

    @property
    def dropped_share(self) -> float:
        return sum(self.dropped.values()) / self.records if self.records else 0.0

    def as_json(self) -> dict[str, Any]:
        """Plain JSON; from_json reads it back."""
        document = {field.name: getattr(self, field.name) for field in fields(self)}
        for name in _COUNTERS:
            document[name] = dict(document[name].most_common())
        document["files"] = [{**vars(entry), "dropped": dict(entry.dropped.most_common())} for entry in self.files]
        return {**document, "histogram_tokens": list(HISTOGRAM_TOKENS)}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> IngestReport:
        values = {key: value for key, value in document.items() if key != "histogram_tokens"}
        for name in _COUNTERS:
            values[name] = Counter(values[name])
        values["files"] = [FileReport(**{**entry, "dropped": Counter(entry["dropped"])}) for entry in values["files"]]
        return cls(**values)

    def as_text(self) -> str:
        """A few lines for people."""
        lines = [
            f"{self.kept:,} of {_count(self.records, 'record')} kept as {_count(self.windows, 'sample')} ({self.tokens:,} tokens, "
            f"{self.labels:,} learned); {self.heldout:,} held out"
        ]
        lines += [f"  {count} dropped: {reason.replace('_', ' ')}" for reason, count in self.dropped.most_common()]
        lines += [f"  {_count(count, 'turn')} removed: {rule.replace('_', ' ')}" for rule, count in self.turns_removed.most_common()]
        lines += [
            f"  {_count(count, 'answer')} read but not learned: {rule.replace('_', ' ')}" for rule, count in self.turns_not_learned.most_common()
        ]
        lines += [f"  {_count(count, 'line')} without speech: {kind}" for kind, count in self.lines_skipped.most_common()]
        lines += [f"  {entry.name}: left out, {_without_name(entry.skipped, entry.name)}" for entry in self.files if entry.skipped]
        lines += [
            f"  {example['file']}: not read to its end, {_without_name(example['detail'], example['file'])}"
            for example in self.examples.get("unreadable_file", ())
        ]
        lines += [f"  {entry.name}: columns not used: {', '.join(entry.unmapped_columns)}" for entry in self.files if entry.unmapped_columns]
        lines += [f"  {entry.name}: dates read as {entry.date_order}" for entry in self.files if entry.date_order]
        if self.prompts_trimmed:
            lines.append(f"  {_count(self.prompts_trimmed, 'prompt')} longer than half the window: only the end was kept")
        lines.append(f"  cache: {self.cache}" + (" (unchanged data: re-used)" if self.reused else ""))
        return "\n".join(lines)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _without_name(sentence: str, name: str) -> str:
    """An error's sentence begins with the file's name, which the line has already."""
    return sentence.removeprefix(f"{name}: ")
