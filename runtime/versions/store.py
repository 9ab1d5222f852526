"""The version store: every merged model, where it came from, and which one is current.

In:  a staged version (staged.py), verdicts.
Out: versions/<id>/ with model.gguf, adapter.bin, adapter.json and version.json; versions/current names the one in use.
"base" is always a valid current version: the bundle's own model. A version appears by one rename and `current` changes
by another, so a kill leaves the old state or the new one. Pruning removes weights and keeps the record, so a lineage
never breaks. Whoever changes the store holds the workspace's lock; readers need none.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ..adapter.tensors import DESCRIPTION_NAME, MATRIX_NAME, AdapterTensors
from ..errors import UserError
from ..gguf.file import GgufFile
from ..plain_data import bind
from ..storage.durable import TEMPORARY_SUFFIX, make_directory, read_sealed_json, remove, sha256_of_file, write_sealed_json
from .record import BASE, MODEL_NAME, RECORD_NAME, VERSION_ID, Listing, OpenedVersion, Switch, Verdict, Version, version_number
from .staged import StagedVersion
from .version_block import VersionBlock

CURRENT_NAME = "current"


class VersionStore:
    """The store in `directory`, on top of the bundle's model."""

    def __init__(self, directory: Path, base_model: Path) -> None:
        self.directory, self.base_model = Path(directory), Path(base_model)

    # --- reading ---------------------------------------------------------------------------------------------------

    def model_path(self, version_id: str) -> Path:
        """The file with the weights: its own, or those that it is mounted on."""
        if version_id == BASE:
            return self.base_model
        mounted_on = self._mounted_on(version_id)
        return self.model_path(mounted_on) if mounted_on else self.directory / version_id / MODEL_NAME

    def _mounted_on(self, version_id: str) -> str:
        """Empty for a version with weights of its own, and where the record cannot tell."""
        try:
            mounted_on = "" if version_id == BASE else self.record(version_id).mounted_on
        except UserError:
            return ""
        # Always an older one, so that no damaged record leads in a circle.
        return mounted_on if mounted_on == BASE or version_number(mounted_on) < version_number(version_id) else ""

    def ids(self) -> list[str]:
        """Every version ever made, oldest first, pruned and damaged ones included."""
        if not self.directory.is_dir():
            return []
        found = [path.name for path in self.directory.iterdir() if VERSION_ID.fullmatch(path.name) and path.is_dir()]
        return sorted(found, key=lambda name: int(name[1:]))

    def next_id(self) -> str:
        return f"v{max((int(name[1:]) for name in self.ids()), default=0) + 1:04d}"

    def record(self, version_id: str) -> Version:
        """UserError when there is no such version or its record is damaged."""
        self._require_known(version_id)
        path = self.directory / version_id / RECORD_NAME
        try:
            stored = read_sealed_json(path)
        except FileNotFoundError:
            raise UserError(str(path), "the version's record is missing") from None
        try:
            return bind(Version, stored, RECORD_NAME)
        except UserError as error:
            raise UserError(str(path), f"is not a version's record of this runtime ({error.where}: {error.found})") from None

    def listing(self) -> Listing:
        versions, notices = [], []
        for version_id in self.ids():
            try:
                versions.append(self.record(version_id))
            except UserError as error:
                notices.append(str(error))
        current, more = self._current()
        return Listing(current, tuple(versions), frozenset(v.id for v in versions if self.is_pruned(v.id)), (*notices, *more))

    def current_id(self) -> str:
        return self._current()[0]

    def is_pruned(self, version_id: str) -> bool:
        own = MATRIX_NAME if self._mounted_on(version_id) else MODEL_NAME
        return version_id != BASE and not (self.directory / version_id / own).exists()

    def _current(self) -> tuple[str, tuple[str, ...]]:
        """The current id; when the file that names it is damaged, the newest version that earned its place."""
        try:
            return str(read_sealed_json(self.directory / CURRENT_NAME)["current"]), ()
        except (FileNotFoundError, NotADirectoryError):
            return BASE, ()
        except (UserError, KeyError, TypeError):
            chosen = next(iter(self._promoted()), BASE)
            return chosen, (f"the file that names the current version is damaged, {chosen} is used",)

    def _promoted(self) -> list[str]:
        """Ids that may be fallen back to, newest first: promoted, weights there, record intact."""
        promoted = []
        for version_id in reversed(self.ids()):
            try:
                if self.record(version_id).verdict in ("promote", "warn") and not self.is_pruned(version_id):
                    promoted.append(version_id)
            except UserError:
                continue  # listing() names it
        return promoted

    def fault(self, version_id: str, thorough: bool = True) -> str:
        """Why a version cannot be used; empty when it can. Thorough: the whole file's checksum, else only its size and header."""
        path = self.model_path(version_id)
        try:
            record = None if version_id == BASE else self.record(version_id)
            if record is not None and self.is_pruned(version_id):
                return "its weights were pruned"
            GgufFile.open(path)
            if record is not None and record.mounted_on:
                return self._mount_fault(record, thorough)
            if record is not None and path.stat().st_size != record.model_bytes:
                return f"has {path.stat().st_size} of {record.model_bytes} bytes"
            if record is not None and thorough and sha256_of_file(path) != record.model_sha256:
                return "is damaged: its checksum does not match"
        except UserError as error:
            return str(error)
        except OSError as error:
            return f"cannot be read ({error.strerror})"
        return ""

    def _mount_fault(self, record: Version, thorough: bool) -> str:
        if AdapterTensors.load(self.directory / record.id).digest() != record.adapter_digest:
            return "its adapter is another one than was recorded"
        if thorough and sha256_of_file(self.model_path(record.id)) != record.model_sha256:
            return f"the weights of {record.mounted_on}, which it is mounted on, are other ones than at that time"
        return ""

    def _opened(self, version_id: str, notices: tuple[str, ...]) -> OpenedVersion:
        mounted_on = self._mounted_on(version_id)
        adapter = AdapterTensors.load(self.directory / version_id) if mounted_on else None
        return OpenedVersion(version_id, GgufFile.open(self.model_path(version_id)), notices, adapter, mounted_on)

    def _require_known(self, version_id: str) -> None:
        if version_id != BASE and version_id not in self.ids():
            raise UserError("version", f"there is no {version_id!r}", ", ".join([BASE, *self.ids()]))

    def open(self, version_id: str | None = None) -> OpenedVersion:
        """Verify and open a version; without a name the current one, or the newest intact one when that is damaged."""
        if version_id is not None:
            self._require_known(version_id)
            if fault := self.fault(version_id):
                raise UserError(f"version {version_id}", fault, remedy="choose another one, `versions` lists them")
            return self._opened(version_id, ())
        wanted, notices = self._current()
        reported = list(notices)
        for candidate in dict.fromkeys([wanted, *self._promoted(), BASE]):
            fault = self.fault(candidate)
            if not fault:
                if candidate != wanted:
                    reported.append(f"{candidate} is used instead")
                return self._opened(candidate, tuple(reported))
            reported.append(f"version {candidate} cannot be used: {fault}")
        raise UserError(str(self.directory), "; ".join(reported), remedy="bring the bundle back to its place")

    # --- changing: the caller holds the workspace's lock ---------------------------------------------------------------

    @contextlib.contextmanager
    def staged(self, block: VersionBlock, adapter: AdapterTensors, recipe: Mapping[str, Any]) -> Iterator[StagedVersion]:
        """A version to be filled and published; its id is set here, whatever the block says. Without publish() nothing is left behind."""
        block = replace(block, id=self.next_id())
        make_directory(self.directory)
        place = self.directory / f".{block.id}{TEMPORARY_SUFFIX}"
        remove(place)
        make_directory(place)
        new = StagedVersion(place, block, adapter, recipe)
        try:
            yield new
        finally:
            if not new.published:
                self._drop_staged(place)

    def _drop_staged(self, staged: Path) -> None:
        try:
            remove(staged)
        except UserError:
            return  # the first error is the one to report; the next command that takes the lock removes the rest

    def judge(self, version_id: str, verdict: Verdict, reasons: tuple[str, ...], scores: Mapping[str, float]) -> Version:
        """Record what verification found."""
        version = replace(self.record(version_id), verdict=verdict, reasons=reasons, scores=dict(scores))
        write_sealed_json(self.directory / version_id / RECORD_NAME, asdict(version))
        return version

    def promote(self, version_id: str) -> None:
        """Make a version current that verification let through."""
        verdict = self.record(version_id).verdict
        if verdict not in ("promote", "warn"):
            raise ValueError(f"{version_id} cannot be promoted, its verdict is {verdict!r}")
        self._point_to(version_id)

    def _point_to(self, version_id: str) -> None:
        make_directory(self.directory)
        write_sealed_json(self.directory / CURRENT_NAME, {"current": version_id})

    def rollback(self, target: str | None = None) -> Switch:
        """Switch to `target`, back or forward; without one to the nearest usable ancestor of the current version."""
        before, notices = self._current()
        if target is not None:
            self._require_known(target)
            if fault := self.fault(target, thorough=False):
                raise UserError(f"version {target}", fault, remedy="choose another one, `versions` lists them")
            self._point_to(target)
            return Switch(before, target, notices)
        if before == BASE:
            raise UserError(
                "rollback", "the base is current, there is nothing before it", remedy="name a version to switch to, `versions` lists them"
            )
        after, more = self._usable_ancestor(before)
        self._point_to(after)
        return Switch(before, after, (*notices, *more))

    def _usable_ancestor(self, version_id: str) -> tuple[str, tuple[str, ...]]:
        notices: list[str] = []
        seen = {version_id}
        while version_id != BASE:
            try:
                version_id = self.record(version_id).parent
            except UserError as error:
                return BASE, (*notices, f"{error}; its parent is unknown, the base is used")
            if version_id in seen:
                return BASE, (*notices, f"the lineage of {version_id} runs in a circle, the base is used")
            seen.add(version_id)
            fault = self.fault(version_id, thorough=False)
            if not fault:
                break
            notices.append(f"version {version_id} cannot be used: {fault}")
        return version_id, tuple(notices)

    def prune(self, keep: int) -> tuple[list[str], int]:
        """Remove the weights of all but the newest `keep` versions, the current one and those they are mounted on; the ids
        and the bytes freed.

        Needs no free space. Records stay, so that lineages can still be read and ids are never used again.
        """
        if keep < 0:
            raise UserError("--prune", f"{keep}", "0 or more versions to keep beside the current one")
        with_weights = [version_id for version_id in reversed(self.ids()) if not self.is_pruned(version_id)]
        kept = {*with_weights[:keep], self.current_id()}
        kept |= {self._mounted_on(version_id) for version_id in kept}
        doomed = [version_id for version_id in with_weights if version_id not in kept]
        freed_bytes = 0
        for version_id in self.ids():
            if version_id in doomed or self.is_pruned(version_id):
                # The weights go first: without them the version counts as pruned, wherever the rest of this stops.
                for path in (self.directory / version_id / name for name in (MODEL_NAME, MATRIX_NAME, DESCRIPTION_NAME)):
                    freed_bytes += path.stat().st_size if path.exists() else 0
                    remove(path)
        return sorted(doomed), freed_bytes
