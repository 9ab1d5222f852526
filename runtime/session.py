"""What every verb works with: the verified bundle, the workspace, and where its words go.

In:  the global options of the command line.
Out: Session.
With --json exactly one JSON object goes to stdout and everything else to stderr; without it the result is for people.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from .bundle.chat_format import ChatFormat
from .bundle.cpu_features import read_machine_cpu
from .bundle.folder import Bundle
from .bundle.plan import Plan
from .bundle.tokenizer import Tokenizer
from .data.scenario import Scenario
from .engine.dialogue import Dialogue
from .engine.engine import EngineSource
from .engine.kernel_library import usable_cores
from .errors import MftError
from .gguf.file import GgufFile
from .storage.audit import AuditLog
from .storage.workspace import Workspace
from .versions.record import OpenedVersion
from .versions.store import VersionStore


@dataclass(frozen=True)
class Session:
    """One run of one verb."""

    bundle: Bundle
    workspace: Workspace
    json: bool
    threads: int
    """compute threads"""

    @classmethod
    def open(cls, bundle: Path, workspace: Path | None, as_json: bool, threads: int | None, to_execute: bool = True) -> Session:
        """Verify the bundle and find the workspace; UserError when either is not usable. Nothing is written.

        to_execute: False for verbs that also serve a machine which the bundle's kernels are not made for.
        """
        opened = Bundle.open(bundle, to_execute=to_execute)
        place = Workspace(workspace or bundle.parent / f"{bundle.name}-workspace", bundle)
        wanted = threads or min(opened.recipe["device"]["threads"], usable_cores())
        return cls(opened, place, as_json, wanted)

    @contextlib.contextmanager
    def locked(self, command: str) -> Iterator[None]:
        """Hold the workspace; when the command fails before anything was made in a new workspace, it is gone again."""
        is_new = not self.workspace.path.exists()
        try:
            with self.workspace.locked(command):
                yield
        except MftError:
            if is_new and not any(any(place.iterdir()) for place in self._places() if place.is_dir()):
                shutil.rmtree(self.workspace.path, ignore_errors=True)  # the command's own error is the one to report
            raise

    def _places(self) -> tuple[Path, ...]:
        return self.workspace.versions_dir, self.workspace.runs_dir, self.workspace.cache_dir

    def say(self, text: str = "") -> None:
        """A line for people: progress or a remark."""
        print(text, file=sys.stderr, flush=True)

    def notices(self, lines: Iterable[str]) -> None:
        """Things that went differently than asked, such as falling back to an intact version."""
        for line in lines:
            self.say(f"note: {line}")

    def result(self, document: Mapping[str, Any], text: str) -> None:
        """The outcome: `document` with --json, else `text`."""
        print(json.dumps(document, ensure_ascii=False, sort_keys=True) if self.json else text, flush=True)

    @cached_property
    def plan(self) -> Plan:
        return Plan.from_json(json.loads(self.bundle.path("plan.json").read_text(encoding="utf-8")))

    @cached_property
    def scenario(self) -> Scenario:
        return Scenario.load(self.bundle.path("scenario.json"))

    @cached_property
    def chat(self) -> ChatFormat:
        return ChatFormat.from_dict(self.scenario.chat)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return Tokenizer.load(self.bundle.path("tokenizer.json"))

    @cached_property
    def base(self) -> GgufFile:
        return GgufFile.open(self.bundle.path("model.gguf"))

    @cached_property
    def versions(self) -> VersionStore:
        return VersionStore(self.workspace.versions_dir, self.bundle.path("model.gguf"))

    @cached_property
    def audit(self) -> AuditLog:
        return AuditLog(self.workspace.audit_path)

    def open_version(self, version_id: str | None) -> OpenedVersion:
        """The named version, or the current one; notices are printed."""
        opened = self.versions.open(version_id)
        self.notices(opened.notices)
        return opened

    @cached_property
    def engines(self) -> EngineSource:
        """Opens weights with this machine's kernels and the session's threads."""
        return EngineSource(self.plan, self.bundle.kernel_library(read_machine_cpu()), self.threads)

    @cached_property
    def dialogue(self) -> Dialogue:
        """Talks to any version in the scenario's way."""
        return Dialogue(self.tokenizer, self.chat, self.scenario.system_prompt, self.scenario.decode_tokens)
