"""The whole job on the phone: train on the cache, merge into a new version, measure it, promote it or not.

In:  a session that holds the workspace, the training cache, what the user asked for.
Out: TuneResult.
The old version stays current until the new file has been measured and was found better.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .data.cache import TrainingCache
from .engine.memory import peak_rss_bytes
from .engine.packing import Tokens
from .session import Session
from .storage import checkpoint
from .storage.durable import require_space
from .train.replay import FILE_NAME as REPLAY_FILE
from .train.replay import load_conversations, replay_samples
from .train.run import TrainedAdapter, TrainingRun
from .train.schedule import TrainingSchedule, TrainSettings
from .train.trainer import TrainingData
from .verify.merge_trial import Attempt, MergeTrial
from .verify.verification import Examiner, Judgement, judge
from .verify.versions import decide, gather_tests
from .versions.merge import MergeReport
from .versions.merge_policies import Policy, forced_target, merge_or_mount, merge_targets, new_block, run_bytes
from .versions.record import OpenedVersion, Version


@dataclass(frozen=True)
class TuneRequest:
    """What the user may choose for one run."""

    steps: int | None
    epochs: int | None
    seed: int | None
    resume: bool
    parent: str
    """version whose weights are trained on, "base" for the bundle's own"""


@dataclass(frozen=True)
class NewVersion:
    """A version that was made and measured, not judged yet."""

    version: Version
    report: MergeReport | None
    """None when nothing was merged"""
    trial: MergeTrial


@dataclass(frozen=True)
class TuneResult:
    """What came out."""

    version: Version
    promoted: bool
    judgement: Judgement
    mounted_loss: float | None
    """held-out loss with the adapter beside the weights, in nats per token; None without held-out conversations"""
    attempts: tuple[Attempt, ...]
    """what was merged and measured, the taken one last unless none was kept"""
    trained: TrainedAdapter
    model_path: str

    def as_json(self) -> dict[str, Any]:
        r = self.trained.record
        return {
            "version": self.version.id, "promoted": self.promoted, "verdict": self.judgement.verdict, "reasons": list(self.judgement.reasons),
            "steps": r.step, "taken_step": r.taken_step, "loss_first": r.loss_first, "loss_last": r.loss_last,
            "heldout_losses": [list(measurement) for measurement in r.heldout], "seconds": round(r.seconds, 3),
            "tokens_per_second": round(r.tokens / max(r.seconds, 1e-9), 2), "peak_rss_bytes": peak_rss_bytes(),
            "plan_bytes": self.trained.plan_bytes,
            "heldout_loss_mounted": self.mounted_loss, "merge_attempts": [attempt.as_json() for attempt in self.attempts],
            "before": self.judgement.before.as_json(), "after": self.judgement.after.as_json(),
            "model": self.model_path,
        }  # fmt: skip


def tune(session: Session, cache: TrainingCache, request: TuneRequest) -> TuneResult:
    """Train, merge, verify, promote. Paused when the user stops it; UserError before anything is changed."""
    recipe = session.bundle.recipe
    tests, notices = gather_tests(session.bundle, session.dialogue, session.plan.model.context_tokens, cache.samples("heldout"))
    session.notices(notices)
    parent = session.open_version(request.parent)
    require_space(session.workspace.path, run_bytes(recipe["quantization"]["merge"], parent.model, session.plan.adapter))
    samples = cache.samples("train")
    settings = TrainSettings.from_recipe(recipe, request.epochs, request.seed)
    schedule = TrainingSchedule.of(settings, len(samples), request.steps)
    identity = {
        "bundle": session.bundle.bundle_id,
        "parent": parent.id,
        "data": cache.fingerprint,
        "steps": schedule.steps,
        "settings": asdict(settings),
    }
    data = TrainingData(samples, _replay(session, settings), cache.samples("heldout"))
    run = TrainingRun(session.engines, session.workspace.tune_dir, session.audit, session.say)
    trained = run.train(parent, data, schedule, identity, request.resume)
    examiner = Examiner(session.engines, session.dialogue, tests, session.say)
    made = _make_version(session, examiner, parent, trained, cache.fingerprint)
    before = examiner.scores(parent)
    judgement = judge(before, made.trial.scores(), None if made.report is None else made.trial.mounted)
    promoted = decide(session.versions, session.audit, made.version, judgement)
    checkpoint.discard(session.workspace.tune_dir)
    model_path = str(session.versions.model_path(made.version.id))
    return TuneResult(made.version, promoted, judgement, made.trial.mounted.heldout_loss, tuple(made.trial.attempts), trained, model_path)


def _replay(session: Session, settings: TrainSettings) -> Sequence[Tokens]:
    """The bundle's replay samples; none when the recipe has no replay."""
    if not settings.replay.rows:
        return ()
    conversations = load_conversations(session.bundle.path(REPLAY_FILE))
    return replay_samples(conversations, session.tokenizer, session.chat, session.scenario.system_prompt, settings.replay.loss)


def _make_version(session: Session, examiner: Examiner, parent: OpenedVersion, trained: TrainedAdapter, data_fingerprint: str) -> NewVersion:
    """The version, merged in the smallest way that keeps what was learned; what was tried besides goes to the audit log."""
    recipe: Mapping[str, Any] = session.bundle.recipe
    policy: Policy = recipe["quantization"]["merge"]
    targets = merge_targets(policy, parent.model, trained.adapter, can_measure=bool(examiner.tests.heldout))
    trial = MergeTrial(examiner, parent, trained.adapter, forced_target(policy, targets))
    block = new_block(session.bundle, parent.id, data_fingerprint, trained.record.taken_step)
    with session.versions.staged(block, trained.adapter, recipe) as new:
        report = merge_or_mount(new, parent, targets, trial.accepts)
        version = new.publish()
    for attempt in trial.attempts:
        if not attempt.kept:
            session.audit.append("merge_lost", version=version.id, **attempt.as_json())
    facts = {} if report is None else {"rounding_loss": report.rounding_loss}
    session.audit.append("mounted" if report is None else "merged", version=version.id, policy=policy,
                         way="mount" if report is None else trial.attempts[-1].target, bytes=version.model_bytes,
                         adapter=version.adapter_digest, **facts)  # fmt: skip
    return NewVersion(version, report, trial)
