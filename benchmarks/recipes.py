"""What a recipe learns and what it forgets: recall on wordings that were not trained on, base ability, questions answered with the shop's facts.

    python benchmarks/recipes.py --work DIR [--seeds 0 1 2] [--settings "train.epochs=6" "train.replay_share=0"]

In:  settings of the recipe, one text a run; the shop's 96 rows (the shipped sample and the test conversations), 32 further wordings to ask.
Out: a line of docs/recipes.md per run. A run takes some minutes; the bundle of each setting is compiled once.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shlex
import sys
from pathlib import Path

from mobilefinetuner.runtime.cli import main as phone
from mobilefinetuner.runtime.engine.decode import Decoder
from mobilefinetuner.runtime.message import Message
from mobilefinetuner.runtime.session import Session
from mobilefinetuner.runtime.verify import ability
from mobilefinetuner.runtime.verify.evaluation import fold, load_cases
from mobilefinetuner.runtime.verify.verification import Examiner, TestSet
from mobilefinetuner.runtime.versions.record import BASE

HERE = Path(__file__).parent
SHOP = HERE.parent / "templates" / "customer_service"
PARAPHRASES = HERE / "shop_paraphrases.jsonl"
GENERAL = (
    "What is 2 + 3?", "Write a short poem about the sea.", "What is the capital of France?", "Tell me a joke.", "How do I boil an egg?",
    "What colour is the sky?", "Give me a tip for sleeping well.", "Translate 'good morning' into French.", "Who wrote Romeo and Juliet?",
    "How many days has a week?", "What should I wear when it rains?", "Explain what a verb is.", "Name three animals.", "What is a good breakfast?",
    "How are you today?", "What is the largest planet?", "Why do leaves fall in autumn?", "Say something nice.",
    "What does a teacher do?", "Count to five.",
)  # fmt: skip
"""asked under the scenario's prompt: none has anything to do with a shop"""


def run(work: Path, setting: str, seed: int) -> str:
    """Compile, tune, measure; a row of the table."""
    folder = work / hashlib.sha256(setting.encode()).hexdigest()[:12]
    bundle, workspace = folder / "bundle", folder / f"work-{seed}"
    if not bundle.exists():
        from mobilefinetuner.compiler.pipeline import compile_bundle
        from mobilefinetuner.compiler.recipe.load import load_recipe

        words = ["scenario=customer_service", "model=smollm2_135m", "device=host", *shlex.split(setting), f'out="{bundle}"']
        compile_bundle(load_recipe(words), lambda text: print(text, file=sys.stderr))
    if not (workspace / "versions" / "v0001").exists():
        data = work / "shop.jsonl"
        data.write_text("".join((SHOP / name).read_text(encoding="utf-8") for name in ("sample.jsonl", "eval.jsonl")), encoding="utf-8")
        phone(["tune", str(data), "--bundle", str(bundle), "--workspace", str(workspace), "--seed", str(seed)])
    session = Session.open(bundle, workspace, False, None)
    questions = ability.load_questions(session.bundle.path("base_ability.jsonl"))
    examiner = Examiner(session.engines, session.dialogue, TestSet((), load_cases(PARAPHRASES), questions), lambda _text: None)
    base, tuned = examiner.scores(session.versions.open(BASE)), examiner.scores(session.versions.open("v0001"))
    test = ability.paired_test(base.ability, tuned.ability)
    verdict = session.versions.record("v0001").verdict
    cells = (setting or "as shipped", seed, f"{tuned.entity_recall:.2f}", f"{test.mean_before:.3f} → {test.mean_after:.3f}", f"{test.p_value:.2f}",
             f"{_leaking(session)} of {len(GENERAL)}", verdict)  # fmt: skip
    return "| " + " | ".join(map(str, cells)) + " |"


def _leaking(session: Session) -> int:
    """General questions whose answer holds one of the shop's facts that the base does not say there."""
    facts = {fact for line in PARAPHRASES.read_text(encoding="utf-8").splitlines() for fact in json.loads(line)["entities"]}
    said = []
    for version in (BASE, "v0001"):
        opened = session.versions.open(version)
        with session.engines.open(opened.model, opened.adapter) as engine:
            decoder = Decoder(engine)
            said.append([fold(session.dialogue.answer(decoder, [Message("user", question)])) for question in GENERAL])
    return sum(any(fold(fact) in tuned and fold(fact) not in base for fact in facts) for base, tuned in zip(*said, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True, metavar="DIR", help="where bundles and workspaces go; what is there is used again")
    parser.add_argument("--settings", nargs="+", default=[""], metavar="WORDS", help='overrides of one run, such as "train.epochs=6 train.rank=8"')
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    print("| settings | seed | recall | ability | p | shop facts in general answers | verdict |\n|---|---|---|---|---|---|---|")
    for setting in options.settings:
        for seed in options.seeds:
            print(run(options.work.absolute(), setting, seed), flush=True)


if __name__ == "__main__":
    main()
