"""Files to a training cache, in one streaming pass.

In:  paths, the Scenario, tokenizer and chat format of the bundle, and the workspace's cache folder.
Out: IngestReport; the cache file is written at the very end, so a run that stops leaves nothing behind.
Order: list the sources, fingerprint, re-use; else read, judge, split and store batch by batch; accept or stop; write.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .. import __version__
from ..bundle.chat_format import ChatFormat
from ..bundle.tokenizer import Tokenizer
from ..errors import UserError
from ..message import Conversation
from ..storage.durable import canonical_json, storage_errors
from .cache import CacheWriter, TrainingCache
from .files.sources import Source, total_bytes
from .readers.format import ReadOptions
from .reading import EMPTY, Reading, check_options, sources_under
from .records import Quarantined, excerpt
from .report import IngestReport
from .report_html import write_html
from .rules.rules import Outcome, RuleEngine
from .scenario import Scenario
from .text.redact import redact
from .windows import Encoded, Splitter

DATA_VERSION = 2
"""Increased whenever the same input would give other samples."""
BATCH_CHARS = 400_000
BATCH_RECORDS = 4_000
HELDOUT_FEWEST = 10
"""With fewer conversations than this none is held out."""
_TOKENIZER_SAMPLE = "The quick brown fox, 12345.67! 你好，世界。\n\tdef f(x): return x**2  # ünïcødé — ½ 🙂👩‍👩‍👧 Привет العربية ไทย 한국어"


@dataclass(frozen=True)
class IngestOptions:
    """What the user may set for one run."""

    read: ReadOptions = field(default_factory=ReadOptions)
    """format, encoding, columns, me"""
    max_drop_share: float | None = None
    """overrides the scenario's; 1 accepts any loss"""
    model: Mapping[str, Any] = field(default_factory=dict)
    """the model's structure and the bundle's id, kept in the cache; "tokenizer_sha256" goes into the fingerprint"""
    train: Mapping[str, Any] = field(default_factory=dict)
    """the recipe's train settings, kept in the cache"""
    progress: Callable[[int, int, int], None] | None = None
    """called now and then with (records, bytes read, bytes in all)"""
    report: Path | None = None
    """an HTML page to write, also when the run is then refused"""


def ingest(
    paths: Sequence[str | Path],
    scenario: Scenario,
    tokenizer: Tokenizer,
    chat: ChatFormat,
    cache_dir: str | Path,
    options: IngestOptions | None = None,
) -> IngestReport:
    """Read the paths into a training cache under cache_dir. UserError, with nothing written, when that cannot be done."""
    options = options or IngestOptions()
    check_options(options.read)
    sources = sources_under(paths)
    fingerprint = fingerprint_of(sources, scenario, tokenizer, options)
    path = Path(cache_dir) / f"{fingerprint[:16]}.mftcache"
    limit = scenario.max_drop_share if options.max_drop_share is None else options.max_drop_share
    report = _reusable(path, fingerprint, options)
    if report is None:
        run = _Run(scenario, tokenizer, chat, _existing_parent(path), options)
        try:
            run.read(sources)
            report = run.finished(fingerprint, path)
            _show(report, options)
            _accept(report, limit)
            run.write(path, sources)
        finally:
            run.close()
    else:
        _show(report, options)
        _accept(report, limit)
    return report


def _show(report: IngestReport, options: IngestOptions) -> None:
    """Written before the data may be refused: a person looks at the page to see why."""
    if options.report is not None:
        write_html(report, options.report)


def fingerprint_of(sources: Sequence[Source], scenario: Scenario, tokenizer: Tokenizer, options: IngestOptions) -> str:
    """Hash over whatever decides the samples: contents, rules and settings, tokenizer, chat format, versions."""
    decides = {
        "data_version": DATA_VERSION,
        "tool": __version__,
        "sources": [[Path(source.member or source.path).name, _content_of(source)] for source in sources],
        "scenario": {**scenario.to_json(), "max_drop_share": None, "decode_tokens": None, "epochs": None},
        "read": options.read.as_json(),
        "tokenizer": [tokenizer.vocab_size, tokenizer.special_tokens, tokenizer.encode(_TOKENIZER_SAMPLE), options.model.get("tokenizer_sha256")],
    }
    return hashlib.sha256(canonical_json(decides)).hexdigest()


def _content_of(source: Source) -> str:
    """A digest of the content; for a stray file that cannot be read, the reason."""
    try:
        return source.fault or source.sha256()
    except UserError as error:
        if source.named:
            raise
        return str(error)


def _reusable(path: Path, fingerprint: str, options: IngestOptions) -> IngestReport | None:
    """The report of an intact cache of the same fingerprint and settings; None: build it."""
    if not path.exists():
        return None
    try:
        cache = TrainingCache.load(path)
    except UserError:
        return None  # damaged or of another version: it is written anew
    if (cache.fingerprint, cache.header["model"], cache.header["train"]) != (fingerprint, dict(options.model), dict(options.train)):
        return None
    return replace(IngestReport.from_json(cache.report), reused=True, cache=str(path))


def _existing_parent(path: Path) -> Path:
    """The nearest folder that exists: temporary files go to the volume that will be written to."""
    return next(parent for parent in path.absolute().parents if parent.is_dir())


def _accept(report: IngestReport, max_drop_share: float) -> None:
    """Stop when nothing is left, or when most was dropped and the user has not accepted that."""
    reasons = ", ".join(f"{count:,} {reason.replace('_', ' ')}" for reason, count in report.dropped.most_common())
    if not report.records and any(entry.skipped and entry.skipped != EMPTY for entry in report.files):
        first = next(entry.skipped for entry in report.files if entry.skipped and entry.skipped != EMPTY)
        raise UserError(_names(report), f"nothing in it can be read, for instance {first}")
    if not report.records:
        raise UserError(_names(report), "is empty: no conversation, row or note is in it", remedy="name files with text in them")
    answers = report.records - report.dropped["no_assistant_turn"]
    if not answers:
        raise UserError(
            _names(report),
            "has no assistant turn: nobody answers in it, so there is nothing to learn",
            remedy="give the answers the role assistant, or name the speaker to learn with --me",
        )
    if report.dropped_share > max_drop_share:
        others = f" (in all: {reasons})" if len(report.dropped) > 1 else ""
        raise UserError(
            _names(report),
            f"{_stop_words(report)}{others}",
            f"at most {max_drop_share:.0%} of the records dropped",
            "look at --report FILE.html, then correct the data, or accept the loss with --max-drop-share 1",
        )
    if not report.windows:
        raise UserError(_names(report), f"nothing is left to learn ({reasons} of {report.records:,})", remedy="look at the rules of the scenario")


def _stop_words(report: IngestReport) -> str:
    reason, count = report.dropped.most_common(1)[0]
    words = {"duplicate": "are duplicates", "near_duplicate": "are near duplicates"}.get(reason, f"were dropped as {reason.replace('_', ' ')}")
    example = next(iter(report.examples.get(reason, ())), None)
    broken = (
        f", for instance line {example['line']}: {example['detail']}" if example and reason.startswith(("bad_", "unknown_", "undecodable")) else ""
    )
    return f"{count:,} of its {report.records:,} dialogues {words}{broken}"


def _names(report: IngestReport) -> str:
    names = [entry.name for entry in report.files]
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more" if names else "the data"


class _Run:
    """One pass over the sources."""

    def __init__(self, scenario: Scenario, tokenizer: Tokenizer, chat: ChatFormat, spool_dir: Path, options: IngestOptions) -> None:
        self.report = IngestReport()
        self._scenario, self._options = scenario, options
        self._splitter = Splitter(scenario, tokenizer, chat)
        with storage_errors(spool_dir):
            self._rules = RuleEngine(scenario, tokenizer.special_tokens, spool_dir)
            self._writer = CacheWriter(spool_dir)
        self._spool_dir = spool_dir
        self._source_numbers: dict[str, int] = {}
        self._heldout_records = 0
        self._smallest_key: tuple[int, int] = (1 << 64, -1)

    def read(self, sources: Sequence[Source]) -> None:
        """Everything up to the decision whether to write."""
        self._source_numbers = {source.name: number for number, source in enumerate(sources)}
        reading = Reading(sources, self._scenario, self._options.read, self.report)
        in_all = total_bytes(sources)
        with storage_errors(self._spool_dir), without_cycle_search():
            for batch in batches(reading.items()):
                self._take(batch)
                if self._options.progress:
                    self._options.progress(self.report.records, reading.bytes_read, in_all)
        self.report.languages = self._rules.letters
        self.report.prompts_trimmed = self._splitter.prompts_trimmed

    def _take(self, batch: list[Conversation | Quarantined]) -> None:
        conversations = [item for item in batch if isinstance(item, Conversation)]
        first = self.report.records
        numbers = [first + place for place, item in enumerate(batch) if isinstance(item, Conversation)]
        outcomes = iter(self._rules.apply(conversations, numbers) if conversations else ())
        for item in batch:
            self._record(item.source if isinstance(item, Quarantined) else item.metadata["source"])
            if isinstance(item, Quarantined):
                self._drop(item.source, item.line, item.reason, item.detail, item.excerpt)
            else:
                self._settle(next(outcomes), item)

    def _record(self, source: str) -> None:
        self.report.records += 1
        self._file(source).records += 1

    def _file(self, source: str):
        return self.report.files[self._source_numbers[source]]

    def _drop(self, source: str, line: int, reason: str, detail: str, text: str) -> None:
        self.report.dropped[reason] += 1
        self._file(source).dropped[reason] += 1
        self._decide(source, line, reason, "dropped", detail, text)

    def _decide(self, source: str, line: int, rule: str, action: str, detail: str, text: str) -> None:
        if self._scenario.rules.redact:
            text = redact(text, self._scenario.rules.redact)[0]
        decision = {"record": self.report.records, "file": source, "line": line, "rule": rule, "action": action, "detail": detail, "excerpt": text}
        self._writer.add_line("decisions", decision)
        self.report.show(rule, decision)

    def _settle(self, outcome: Outcome, original: Conversation) -> None:
        """Store a kept conversation's samples, or say why there are none."""
        source, line = original.metadata["source"], original.metadata["line"]
        samples: list[Encoded] = []
        if outcome.conversation is not None:
            try:
                samples = self._splitter.samples(outcome.conversation)
                if not samples:
                    outcome.drop("no_label", "no token of it is to be learned", original.messages[0].text)
            except UserError as error:
                outcome.drop("chat_template", str(error), original.messages[0].text)
        for decision in outcome.decisions:
            if decision.action == "dropped":
                self._drop(source, line, decision.rule, decision.detail, decision.excerpt)
            elif outcome.conversation is not None:
                self._counter(decision.action)[decision.rule] += 1
                self._decide(source, line, decision.rule, decision.action, decision.detail, decision.excerpt)
        if outcome.conversation is not None:
            self._keep(outcome.conversation, outcome.key, samples, source, line)

    def _counter(self, action: str) -> Counter[str]:
        """Where the report counts decisions on parts of kept conversations."""
        return {"turn_removed": self.report.turns_removed, "turn_not_learned": self.report.turns_not_learned, "redacted": self.report.redacted}[
            action
        ]

    def _keep(self, conversation: Conversation, key: int, samples: list[Encoded], source: str, line: int) -> None:
        record = self.report.kept
        heldout = key < self._scenario.heldout_share * 2**64
        self._heldout_records += heldout
        self._smallest_key = min(self._smallest_key, (key, record))
        self.report.kept += 1
        self._file(source).kept += 1
        for sample in samples:
            self._writer.add(sample.token_ids, sample.label_mask, record, self._source_numbers[source], line, heldout)
            self.report.count_sample(len(sample.token_ids), int(sample.label_mask.sum()))
            self.report.heldout_windows += heldout
        extras = {key: conversation.metadata[key] for key in ("title", "author", "pair") if conversation.metadata.get(key)}
        if extras:
            self._writer.add_line("extras", {"record": record, **extras})
        if self.report.shows("kept"):
            text = " | ".join(f"{message.role}: {excerpt(message.text)}" for message in conversation.messages[:6])
            extras.pop("pair", None)
            self.report.show("kept", {"file": source, "line": line, "excerpt": text, "heldout": heldout, **extras})

    def _heldout_override(self) -> set[int] | None:
        """Correct the hash's choice at its edges: none of fewer than ten, at least one of more, never all."""
        kept, heldout = self.report.kept, self._heldout_records
        if kept < HELDOUT_FEWEST or self._scenario.heldout_share == 0:
            return set() if heldout else None
        if heldout == 0 or heldout == kept:
            return {self._smallest_key[1]}
        return None

    def finished(self, fingerprint: str, path: Path) -> IngestReport:
        """The report with everything in it."""
        override = self._heldout_override()
        self.report.heldout = len(override) if override is not None else self._heldout_records
        if override is not None:
            self.report.heldout_windows = self._writer.windows_of(override)
        self.report.fingerprint, self.report.cache = fingerprint, str(path)
        return self.report

    def write(self, path: Path, sources: Sequence[Source]) -> None:
        """The one moment at which the workspace changes."""
        header = {
            "fingerprint": self.report.fingerprint,
            "tool": __version__,
            "data_version": DATA_VERSION,
            "report": self.report.as_json(),
            "scenario": self._scenario.to_json(),
            "model": dict(self._options.model),
            "train": dict(self._options.train),
            "sources": [{"name": source.name, "bytes": source.n_bytes} for source in sources],
        }
        self._writer.finish(path, header, self._heldout_override())

    def close(self) -> None:
        self._rules.close()
        self._writer.close()


@contextlib.contextmanager
def without_cycle_search() -> Iterator[None]:
    """Millions of small objects come and go without a cycle among them: looking for cycles would cost a tenth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def batches(items: Iterator[Conversation | Quarantined]) -> Iterator[list[Conversation | Quarantined]]:
    """Items in order, grouped so that the rules' arrays stay small."""
    batch: list[Conversation | Quarantined] = []
    chars = 0
    for item in items:
        batch.append(item)
        if type(item) is Conversation:
            for message in item.messages:
                chars += len(message.text)
        if chars >= BATCH_CHARS or len(batch) >= BATCH_RECORDS:
            yield batch
            batch, chars = [], 0
    if batch:
        yield batch
