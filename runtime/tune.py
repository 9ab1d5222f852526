"""The whole job on the phone: train on the cache, merge into a new version, measure it, promote it or not.

In:  a session that holds the workspace, the training cache, what the user asked for.
Out: TuneResult.
The old version stays current until the new file has been measured and was found better.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from . import ability, checkpoint
from .adapter import load_into, tensors_of
from .adapter_tensors import AdapterTensors
from .data.cache import TrainingCache
from .durable import require_space
from .errors import MftError, UserError
from .evaluation import load_cases
from .memory import available_bytes, choose_bucket, peak_bytes, peak_rss_bytes
from .merge_policies import Made, Policy, make_version, merge_ways, new_block, run_bytes
from .merge_trial import Attempt, MergeTrial
from .packing import Tokens
from .progress import StepLine
from .session import Session
from .train_settings import Course, TrainSettings
from .trainer import RunRecord, Trainer
from .verification import Judgement, Scores, Yardstick, judge, measure
from .versions import OpenedVersion, Version

RUN_FOLDER = "tune"
IMPORTED = "imported"
"""stands where a version has the fingerprint of its training data"""


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
class Trained:
    """What the training phase leaves."""

    record: RunRecord
    adapter: AdapterTensors
    plan_bytes: int


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
    record: RunRecord
    plan_bytes: int
    model_path: str

    def as_json(self) -> dict[str, Any]:
        r = self.record
        return {
            "version": self.version.id, "promoted": self.promoted, "verdict": self.judgement.verdict, "reasons": list(self.judgement.reasons),
            "steps": r.step, "loss_first": r.loss_first, "loss_last": r.loss_last, "seconds": round(r.seconds, 3),
            "tokens_per_second": round(r.tokens / max(r.seconds, 1e-9), 2), "peak_rss_bytes": peak_rss_bytes(), "plan_bytes": self.plan_bytes,
            "heldout_loss_mounted": self.mounted_loss, "merge_attempts": [attempt.as_json() for attempt in self.attempts],
            "before": self.judgement.before.as_json(), "after": self.judgement.after.as_json(),
            "model": self.model_path,
        }  # fmt: skip


def tune(session: Session, cache: TrainingCache, request: TuneRequest) -> TuneResult:
    """Train, merge, verify, promote. Paused when the user stops it; UserError before anything is changed."""
    yardstick = yardstick_of(session, cache.samples("heldout"))
    parent = session.open_version(request.parent)
    require_space(session.workspace.path, run_bytes(_policy(session), parent.model, session.plan.adapter))
    trained = _train(session, parent, cache, request)
    trial = MergeTrial(session, parent, trained.adapter, yardstick)
    made = _make_version(session, parent, cache, trained, trial)
    version = made.version
    judgement = _verify(session, parent, made, trial, yardstick)
    promoted = decide(session, version, judgement)
    checkpoint.discard(session.workspace.runs_dir / RUN_FOLDER)
    model_path = str(session.versions.model_path(version.id))
    return TuneResult(
        version, promoted, judgement, trial.mounted.heldout_loss, tuple(trial.attempts), trained.record, trained.plan_bytes, model_path
    )


def _policy(session: Session) -> Policy:
    return session.bundle.recipe["quantization"]["merge"]


def _make_version(session: Session, parent: OpenedVersion, cache: TrainingCache, trained: Trained, trial: MergeTrial) -> Made:
    """The version, merged in the smallest way that keeps what was learned; what was tried besides goes to the audit log."""
    policy = _policy(session)
    ways = merge_ways(policy, parent.model, trained.adapter, can_measure=trial.mounted.heldout_loss is not None)
    block = new_block(session.bundle, parent.id, cache.fingerprint, trained.record.step)
    made = make_version(session.versions, policy, ways, trial.keeps, parent, trained.adapter, block, dict(session.bundle.recipe))
    version = made.version
    for attempt in trial.attempts:
        if not attempt.kept:
            session.audit.append("merge_lost", version=version.id, **attempt.as_json())
    facts = {} if made.report is None else {"rounding_loss": made.report.rounding_loss}
    session.audit.append("mounted" if made.report is None else "merged", version=version.id, policy=policy, way=made.way,
                         bytes=version.model_bytes, adapter=version.adapter_digest, **facts)  # fmt: skip
    return made


def _train(session: Session, parent: OpenedVersion, cache: TrainingCache, request: TuneRequest) -> Trained:
    """The training phase; its activations are free again when it returns."""
    samples = cache.samples("train")
    settings = TrainSettings.from_recipe(session.bundle.recipe, request.epochs, request.seed)
    course = Course.of(settings, len(samples), request.steps)
    longest = max(len(sample.token_ids) for sample in samples)
    weights, free = parent.model, available_bytes()
    bucket = choose_bucket(session.plan, weights.size_bytes, session.threads, longest, free)
    plan_bytes = peak_bytes(session.plan, weights.size_bytes, session.threads, bucket)
    _say_plan(session, course, bucket, plan_bytes, free)
    with session.engine(weights) as engine:
        folder = session.workspace.runs_dir / RUN_FOLDER
        trainer = Trainer(engine, bucket, samples, course, folder, _identity(session, parent, cache, course))
        _begin(session, trainer, parent, request.resume)
        record = _run(session, trainer)
        return Trained(record, tensors_of(session.plan.adapter, trainer.parameters), plan_bytes)


def _say_plan(session: Session, course: Course, bucket: str, plan_bytes: int, free_bytes: int | None) -> None:
    free = "unknown" if free_bytes is None else f"{free_bytes / 2**20:,.0f} MB"
    session.say(
        f"training {course.samples} samples, {course.steps} steps of {course.settings.batch_samples}, bucket {bucket}, {session.threads} threads; "
        f"the plan needs {plan_bytes / 2**20:,.0f} MB, free: {free}"
    )


def _identity(session: Session, parent: OpenedVersion, cache: TrainingCache, course: Course) -> dict[str, Any]:
    """What a checkpoint must agree with to be gone on from."""
    return {
        "bundle": session.bundle.bundle_id, "parent": parent.id, "data": cache.fingerprint, "steps": course.steps,
        "settings": asdict(course.settings),
    }  # fmt: skip


def _begin(session: Session, trainer: Trainer, parent: OpenedVersion, resume: bool) -> None:
    """Start values are drawn, or those of the adapter that the parent has mounted: it is trained on."""
    if resume:
        session.notices(trainer.resume())
        session.say(f"going on after step {trainer.record.step}")
    else:
        trainer.begin()
        if parent.adapter is not None:
            load_into(session.plan.adapter, trainer.parameters, parent.adapter)
    session.audit.append("training", **trainer.identity, from_step=trainer.record.step)


def _run(session: Session, trainer: Trainer) -> RunRecord:
    """All steps, with Ctrl-C and SIGTERM as wishes to pause."""
    line = StepLine()
    with pause_wishes() as wishes:
        try:
            record = trainer.run(line.show, lambda: bool(wishes))
        except MftError as error:
            session.audit.append("stopped", step=trainer.record.step, reason=type(error).__name__)
            raise
    session.audit.append("trained", steps=record.step, loss_first=record.loss_first, loss_last=record.loss_last, tokens=record.tokens)
    return record


@contextlib.contextmanager
def pause_wishes() -> Iterator[list[int]]:
    """A list that a first SIGINT or SIGTERM adds to; a second one ends the process as usual."""
    wishes: list[int] = []

    def wish(number: int, _frame: object) -> None:
        if wishes:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        wishes.append(number)

    before = {number: signal.signal(number, wish) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield wishes
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def yardstick_of(session: Session, heldout: Sequence[Tokens]) -> Yardstick:
    """The held-out samples, the bundle's probes, and its test conversations as far as they leave room for an answer."""
    files = session.bundle.files
    cases = load_cases(session.bundle.path("eval.jsonl")) if "eval.jsonl" in files else ()
    probes = ability.load_probes(session.bundle.path("base_ability.jsonl")) if "base_ability.jsonl" in files else ()
    fitting = tuple(c for c in cases if len(session.prompt(c.messages)) < session.plan.model.context_tokens - 1)
    if len(fitting) < len(cases):
        session.notices([f"{len(cases) - len(fitting)} of {len(cases)} test conversations are longer than this bundle's context and are left out"])
    return Yardstick(heldout, fitting, probes)


def _verify(session: Session, parent: OpenedVersion, made: Made, trial: MergeTrial, yardstick: Yardstick) -> Judgement:
    """The new version against its parent; what the trial has measured of it is not measured again."""
    session.say(f"measuring {parent.id}")
    before: Scores = measure(session, parent, yardstick, session.say)
    session.say(f"measuring {made.version.id}")
    known = trial.mounted if made.report is None else trial.last
    rest = measure(session, made.opened, Yardstick((), () if known.answers else yardstick.cases, yardstick.probes), session.say)
    after = replace(rest, heldout_loss=known.heldout_loss, answers=known.answers or rest.answers)
    return judge(before, after, None if made.report is None else trial.mounted)


def decide(session: Session, version: Version, judgement: Judgement) -> bool:
    """Record the verdict and make the version current unless it says keep; whether it is current now."""
    scores: Mapping[str, float] = judgement.scores()
    session.versions.judge(version.id, judgement.verdict, judgement.reasons, scores)
    session.audit.append("verified", version=version.id, verdict=judgement.verdict, **scores)
    if judgement.verdict == "keep":
        return False
    session.versions.promote(version.id)
    session.audit.append("promoted", version=version.id)
    return True


def heldout_of(session: Session, fingerprint: str) -> Sequence[Tokens]:
    """What a version is measured on: the held-out samples of its own data; for an imported one the workspace's newest, if there are any."""
    if fingerprint != IMPORTED:
        return cache_of(session, fingerprint).samples("heldout")
    caches = sorted(session.workspace.cache_dir.glob("*.mftcache"), key=lambda path: path.stat().st_mtime_ns)
    return TrainingCache.load(caches[-1]).samples("heldout") if caches else ()


def cache_of(session: Session, fingerprint: str) -> TrainingCache:
    """The training cache in the workspace that holds this data; UserError when it was removed."""
    for path in sorted(session.workspace.cache_dir.glob(f"{fingerprint[:16]}*.mftcache")):
        return TrainingCache.load(path)
    raise UserError("data", f"the training cache {fingerprint[:16]}… is gone from {session.workspace.cache_dir}", remedy="ingest the data again")
