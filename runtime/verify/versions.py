"""Measuring versions: what a workspace's versions are tested on, and what a verdict changes.

In:  a bundle's test conversations and questions, a workspace's held-out samples, a Judgement.
Out: TestSet; the recorded verdict and the version in use.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..bundle.folder import Bundle
from ..data.cache import TrainingCache
from ..data.old_caches import cache_of, caches_in
from ..engine.dialogue import Dialogue
from ..engine.packing import Tokens
from ..storage.audit import AuditLog
from ..versions.record import Version
from ..versions.store import VersionStore
from ..versions.version_block import IMPORTED
from . import ability
from .evaluation import load_cases
from .verification import Judgement, TestSet


def gather_tests(bundle: Bundle, dialogue: Dialogue, context_tokens: int, heldout: Sequence[Tokens]) -> tuple[TestSet, tuple[str, ...]]:
    """The held-out samples, the bundle's questions, and its test conversations as far as they leave room for an answer; and what to tell the user."""
    cases = load_cases(bundle.path("eval.jsonl")) if "eval.jsonl" in bundle.files else ()
    questions = ability.load_questions(bundle.path("base_ability.jsonl")) if "base_ability.jsonl" in bundle.files else ()
    fitting = tuple(case for case in cases if len(dialogue.prompt(case.messages)) < context_tokens - 1)
    left_out = len(cases) - len(fitting)
    notices = (f"{left_out} of {len(cases)} test conversations are longer than this bundle's context and are left out",) if left_out else ()
    return TestSet(heldout, fitting, questions), notices


def heldout_of(cache_dir: Path, fingerprint: str) -> Sequence[Tokens]:
    """What a version is measured on: the held-out samples of its own data; for an imported one the workspace's newest, if there are any."""
    if fingerprint != IMPORTED:
        return cache_of(cache_dir, fingerprint).samples("heldout")
    caches = caches_in(cache_dir)
    return TrainingCache.load(caches[-1]).samples("heldout") if caches else ()


def decide(store: VersionStore, audit: AuditLog, version: Version, judgement: Judgement) -> bool:
    """Record the verdict and make the version current unless it says keep; whether it is current now."""
    scores = judgement.scores()
    store.judge(version.id, judgement.verdict, judgement.reasons, scores)
    audit.append("verified", version=version.id, verdict=judgement.verdict, **scores)
    if judgement.verdict == "keep":
        return False
    store.promote(version.id)
    audit.append("promoted", version=version.id)
    return True
