"""What each way of keeping a trained adapter keeps: file size, held-out loss and entity recall on the shop's conversations.

    python benchmarks/merge_policies.py --work DIR [--json]

In:  nothing; both kinds of adapter are trained on the shipped sample, which takes some ten minutes. What is in DIR already is used again.
Out: the table of docs/merging.md. The rounding trial and the column of llama.cpp appear where PyTorch and llama-cpp-python are installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from compact_rounding import input_moments, write_compact
from mobilefinetuner.runtime.adapter.tensors import AdapterTensors
from mobilefinetuner.runtime.cli import main as phone
from mobilefinetuner.runtime.data.cache import TrainingCache
from mobilefinetuner.runtime.data.old_caches import cache_of
from mobilefinetuner.runtime.gguf.file import GgufFile
from mobilefinetuner.runtime.session import Session
from mobilefinetuner.runtime.verify.evaluation import answer_cases, entity_recall
from mobilefinetuner.runtime.verify.verification import Examiner
from mobilefinetuner.runtime.verify.versions import gather_tests
from mobilefinetuner.runtime.versions.merge import merge_version
from mobilefinetuner.runtime.versions.merge_policies import merge_targets, new_block
from mobilefinetuner.runtime.versions.record import BASE, OpenedVersion

SAMPLE = Path(__file__).parent.parent / "templates" / "customer_service" / "sample.jsonl"
KINDS = {"grouped": (), "lora": ("train.adapter=lora", "train.learning_rate=1e-3")}


@dataclass(frozen=True)
class Row:
    """One way of keeping what was learned."""

    adapter: str
    policy: str
    version_bytes: int
    """what the version adds to the storage"""
    heldout_loss: float
    entity_recall: float
    answers_unchanged: str
    """of those of the mounted adapter"""
    llama_cpp_recall: float | None
    """of the file in llama.cpp; None where there is no file or no llama.cpp"""


class Trial:
    """One trained adapter and what its rows are measured on."""

    def __init__(self, kind: str, work: Path) -> None:
        folder = work / kind
        self.kind, self.folder = kind, folder
        bundle, workspace = folder / "bundle", folder / "work"
        if not bundle.exists():
            _compile(kind, bundle)
        if not (workspace / "versions" / "v0001").exists():
            phone(["tune", str(SAMPLE), "--bundle", str(bundle), "--workspace", str(workspace)])
        self.session = Session.open(bundle, workspace, False, None)
        record = self.session.versions.record("v0001")
        self.adapter = AdapterTensors.load(self.session.versions.directory / "v0001")
        self.cache: TrainingCache = cache_of(self.session.workspace.cache_dir, record.data_fingerprint)
        context_tokens = self.session.plan.model.context_tokens
        tests, _ = gather_tests(self.session.bundle, self.session.dialogue, context_tokens, self.cache.samples("heldout"))
        self.examiner = Examiner(self.session.engines, self.session.dialogue, replace(tests, questions=()), lambda _text: None)
        self.base = self.session.versions.open(BASE)
        self.mounted = self.examiner.scores(replace(self.base, adapter=self.adapter))

    def row(self, policy: str, model: OpenedVersion) -> Row:
        scores = self.mounted if model.adapter is not None else self.examiner.scores(model)
        same = sum(a.text == b.text for a, b in zip(scores.answers, self.mounted.answers))
        n_bytes = 0 if model.id == BASE and model.adapter is None else self.adapter.n_bytes if model.adapter is not None else model.model.size_bytes
        in_llama = None if model.adapter is not None else _llama_cpp_recall(model.model.path, self)
        return Row(self.kind, policy, n_bytes, scores.heldout_loss, scores.entity_recall, f"{same} of {len(scores.answers)}", in_llama)

    def rows(self) -> Iterator[Row]:
        if self.kind == "grouped":
            yield replace(self.row("the base", self.base), adapter="none")
        yield self.row("mount", replace(self.base, adapter=self.adapter))
        for target in merge_targets("auto", self.base.model, self.adapter, can_measure=True):
            path = self.folder / f"{target.policy}-{target.requantize_to}.gguf"
            if not path.exists():
                merge_version(self.base.model, self.adapter, new_block(self.session.bundle, BASE, "", 0), path, target.requantize_to)
            yield self.row(str(target), OpenedVersion(str(target), GgufFile.open(path), ()))
        if self.kind == "lora" and importlib.util.find_spec("peft"):
            yield self._compact()

    def _compact(self) -> Row:
        path = self.folder / "compact.gguf"
        if not path.exists():
            samples = (sample.token_ids for sample in self.cache.samples("train"))
            write_compact(self.base.model, self.adapter, input_moments(self.base.model.path, self.adapter, samples), path)
        return self.row("compact, a trial (Q4_1)", OpenedVersion("compact", GgufFile.open(path), ()))


def _compile(kind: str, out: Path) -> None:
    from mobilefinetuner.compiler.pipeline import compile_bundle
    from mobilefinetuner.compiler.recipe.load import load_recipe

    words = ["scenario=customer_service", "model=smollm2_135m", "device=host", *KINDS[kind], f'out="{out}"']
    compile_bundle(load_recipe(words), lambda text: print(text, file=sys.stderr))


def _llama_cpp_recall(path: Path, trial: Trial) -> float | None:
    """Greedy answers of llama.cpp to the same questions, through its own template and kernels."""
    if not importlib.util.find_spec("llama_cpp"):
        return None
    import llama_cpp

    model = llama_cpp.Llama(str(path), n_ctx=512, verbose=False)
    system = trial.session.scenario.system_prompt

    def say(messages) -> str:
        turns = [{"role": "system", "content": system}, *({"role": m.role, "content": m.text} for m in messages)]
        reply = model.create_chat_completion(turns, max_tokens=trial.session.scenario.decode_tokens, temperature=0)
        return reply["choices"][0]["message"]["content"]

    return entity_recall(answer_cases(trial.examiner.tests.cases, say))


def _table(rows: list[Row]) -> str:
    lines = [
        "| adapter | policy | the version takes | held-out loss | entity recall | answers as mounted | recall in llama.cpp |",
        "|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        size = f"{r.version_bytes / 1e6:.1f} MB" if r.version_bytes else "—"
        in_llama = "—" if r.llama_cpp_recall is None else f"{r.llama_cpp_recall:.2f}"
        lines.append(f"| {r.adapter} | {r.policy} | {size} | {r.heldout_loss:.3f} | {r.entity_recall:.2f} | {r.answers_unchanged} | {in_llama} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True, metavar="DIR", help="where bundles, workspaces and files go")
    parser.add_argument("--json", action="store_true", help="one JSON list instead of the table")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    rows = [row for kind in KINDS for row in Trial(kind, options.work.absolute()).rows()]
    print(json.dumps([asdict(row) for row in rows]) if options.json else _table(rows))


if __name__ == "__main__":
    main()
