"""Grouped adapters that also scale their blocks, and other ranks: what each remembers of the shop's conversations.

    python benchmarks/grouped_variants.py --work DIR [--variants 16+0 8+8 …] [--seeds 1 2] [--json]

In:  nothing; SmolLM2-135M is trained in PyTorch on the shipped sample with the recipe's settings. A variant M+S has an update of rank M for the
     blocks' minima and one of rank S for their scales: W = d·q + m becomes (d + ΔD)·q + (m + ΔM − c·ΔD), both constant inside a block.
Out: a table of held-out loss and entity recall after folding (fp16 scales and minima), per variant and seed.
The scales' update meets q − c, which is centred and of unit size, so that one learning rate suits both.
"""

# Shapes: N rows · K row elements · G = K/32 blocks a row · R rank · B batch · T tokens
from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent.parent))
from mobilefinetuner.runtime.cli import main as phone
from mobilefinetuner.runtime.data.cache import TrainingCache
from mobilefinetuner.runtime.gguf.file import GgufFile
from mobilefinetuner.runtime.session import Session
from mobilefinetuner.runtime.train.schedule import TrainingSchedule, TrainSettings
from mobilefinetuner.runtime.verify.evaluation import answer_cases, entity_recall
from mobilefinetuner.runtime.verify.versions import gather_tests

from tests.oracles.torch_model import HF_NAMES, load_model, to_hf_rows

SAMPLE = Path(__file__).parent.parent / "templates" / "customer_service" / "sample.jsonl"
GROUP = 32
CENTRE, SPREAD = 7.5, 4.6
"""mean and standard deviation of a nibble"""
IGNORED = -100


class GroupedLinear(torch.nn.Module):
    """A frozen Q4_1 projection with an update of its blocks' minima and, when scale_rank is not 0, of their scales."""

    def __init__(self, blocks: np.ndarray, min_rank: int, scale_rank: int, scale: float, rng: np.random.Generator) -> None:
        """blocks [N, G, 20] u8"""
        super().__init__()
        halves = np.ascontiguousarray(blocks[..., :4]).view(np.float16).astype(np.float32)
        nibbles = np.concatenate([blocks[..., 4:] & 15, blocks[..., 4:] >> 4], axis=-1).astype(np.float32)
        self.d, self.m, self.q = (torch.tensor(v) for v in (halves[..., 0], halves[..., 1], nibbles))
        self.scale = scale
        n, g = self.d.shape
        self.weight = self._dense(self.d, self.m)
        self.min_a, self.min_b = self._pair(min_rank, n, g, rng)
        self.scale_a, self.scale_b = self._pair(scale_rank, n, g, rng)

    def _pair(self, rank: int, n: int, g: int, rng: np.random.Generator) -> tuple[torch.nn.Parameter | None, torch.nn.Parameter | None]:
        if not rank:
            return None, None
        bound = 1 / math.sqrt(g)
        a = rng.uniform(-bound, bound, (rank, g)).astype(np.float32)
        return torch.nn.Parameter(torch.tensor(a)), torch.nn.Parameter(torch.zeros(n, rank))

    def _dense(self, d: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
        return (d[..., None] * self.q + m[..., None]).flatten(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [B,T,K]  →  [B,T,N]"""
        weight = self.weight
        if self.scale_a is not None:
            of_scales = (self.scale / SPREAD) * (self.scale_b @ self.scale_a)  # [N,G]
            weight = weight + (of_scales[..., None] * (self.q - CENTRE)).flatten(1)
        y = torch.nn.functional.linear(x, weight)
        if self.min_a is None:
            return y
        sums = x.unflatten(-1, (-1, GROUP)).sum(-1)  # [B,T,G]
        return y + self.scale * (sums @ self.min_a.T) @ self.min_b.T

    @torch.no_grad()
    def fold(self) -> None:
        """Put both updates into fp16 scales and minima, as a merge would."""
        d, m = self.d, self.m
        if self.min_a is not None:
            m = m + self.scale * (self.min_b @ self.min_a)
        if self.scale_a is not None:
            of_scales = (self.scale / SPREAD) * (self.scale_b @ self.scale_a)
            d, m = d + of_scales, m - CENTRE * of_scales
        self.weight = self._dense(d.half().float(), m.half().float())
        self.min_a = self.min_b = self.scale_a = self.scale_b = None


@dataclass(frozen=True)
class Row:
    """One trained variant."""

    min_rank: int
    scale_rank: int
    seed: int
    parameters: int
    loss_mounted: float
    """held-out, nats per label token"""
    loss_folded: float
    entity_recall: float
    """after folding"""


def adapted(gguf: Path, min_rank: int, scale_rank: int, scale: float, seed: int) -> torch.nn.Module:
    """The model with every projection of every layer replaced."""
    model, file, rng = load_model(gguf), GgufFile.open(gguf), np.random.default_rng(seed)
    heads = {"attn_q": model.config.num_attention_heads, "attn_k": model.config.num_key_value_heads}
    model.requires_grad_(False)
    for layer in range(model.config.num_hidden_layers):
        for name, path in HF_NAMES.items():
            info = file.tensors[f"blk.{layer}.{name}.weight"]
            raw = np.array(file.data(f"blk.{layer}.{name}.weight")).reshape(info.shape[0], -1)
            raw = to_hf_rows(raw, heads[name]) if name in heads else raw
            module = GroupedLinear(raw.reshape(len(raw), -1, 20), min_rank, scale_rank, scale, rng)
            model.model.layers[layer].set_submodule(path, module)
    return model


def padded(samples) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(ids, attention, labels), each [B,T]"""
    width = max(len(s.token_ids) for s in samples)
    ids, attention, labels = (np.full((len(samples), width), fill, np.int64) for fill in (0, 0, IGNORED))
    for row, sample in enumerate(samples):
        n = len(sample.token_ids)
        ids[row, :n], attention[row, :n] = sample.token_ids, 1
        labels[row, :n] = np.where(sample.label_mask, sample.token_ids, IGNORED)
    return torch.tensor(ids), torch.tensor(attention), torch.tensor(labels)


def label_loss(model: torch.nn.Module, ids: torch.Tensor, attention: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean loss over the labels; ids, attention, labels [B,T]. Only positions that predict a label go through the head."""
    hidden = model.model(input_ids=ids, attention_mask=attention).last_hidden_state[:, :-1]  # [B,T-1,D]
    wanted = labels[:, 1:]
    kept = wanted != IGNORED
    return torch.nn.functional.cross_entropy(model.lm_head(hidden[kept]), wanted[kept])


def train(model: torch.nn.Module, samples, schedule: TrainingSchedule) -> None:
    """The recipe's schedule: AdamW, gradients clipped by their global norm, each update clipped."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    o = schedule.settings.optimizer
    optimizer = torch.optim.AdamW(parameters, 1.0, (o.beta1, o.beta2), o.epsilon, o.weight_decay)
    for step in range(1, schedule.steps + 1):
        optimizer.param_groups[0]["lr"] = schedule.learning_rate(step)
        ids, attention, labels = padded([samples[i] for i in schedule.batch(step)])
        loss = label_loss(model, ids, attention, labels)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, o.max_grad_norm)
        optimizer.step()
        print(f"\rstep {step} of {schedule.steps}: loss {loss.item():.3f}", end="", file=sys.stderr)
    print(file=sys.stderr)


@torch.no_grad()
def heldout_loss(model: torch.nn.Module, samples) -> float:
    total = count = 0.0
    for sample in samples:
        ids, attention, labels = padded([sample])
        labelled = int((labels[:, 1:] != IGNORED).sum())
        total, count = total + float(label_loss(model, ids, attention, labels)) * labelled, count + labelled
    return total / count


@torch.no_grad()
def recall(model: torch.nn.Module, session: Session, cases) -> float:
    def say(messages) -> str:
        prompt = torch.tensor([list(session.dialogue.prompt(messages))])
        stops = list(session.chat.stop_token_ids)
        out = model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=session.scenario.decode_tokens,
            do_sample=False,
            eos_token_id=stops,
            pad_token_id=stops[0],
        )
        return session.tokenizer.decode([t for t in out[0, prompt.shape[1] :].tolist() if t not in stops])

    return entity_recall(answer_cases(cases, say))


def run(work: Path, variant: tuple[int, int], seed: int) -> Row:
    bundle, workspace = work / "bundle", work / "work"
    if not bundle.exists():
        from mobilefinetuner.compiler.pipeline import compile_bundle
        from mobilefinetuner.compiler.recipe.load import load_recipe

        compile_bundle(load_recipe(["scenario=customer_service", "model=smollm2_135m", "device=host", f'out="{bundle}"']), print)
    phone(["ingest", str(SAMPLE), "--bundle", str(bundle), "--workspace", str(workspace)])
    session = Session.open(bundle, workspace, False, None)
    cache = TrainingCache.load(next(session.workspace.cache_dir.glob("*.mftcache")))
    samples, heldout = cache.samples("train"), cache.samples("heldout")
    schedule = TrainingSchedule.of(TrainSettings.from_recipe(session.bundle.recipe, None, seed), len(samples), None)
    torch.manual_seed(seed)
    model = adapted(session.bundle.path("model.gguf"), *variant, session.plan.adapter.scale, seed)
    parameters = sum(p.numel() for p in model.parameters() if p.requires_grad)
    train(model, samples, schedule)
    mounted = heldout_loss(model, heldout)
    for module in model.modules():
        if isinstance(module, GroupedLinear):
            module.fold()
    tests, _ = gather_tests(session.bundle, session.dialogue, session.plan.model.context_tokens, heldout)
    found = recall(model, session, tests.cases)
    return Row(*variant, seed, parameters, mounted, heldout_loss(model, heldout), found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True, metavar="DIR", help="where the bundle and the training cache go")
    parser.add_argument("--variants", nargs="+", default=["16+0", "8+8", "16+16", "8+0"], metavar="M+S", help="ranks for minima and scales")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--json", action="store_true", help="one JSON line per run instead of the table")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    if not options.json:
        print("| minima + scales | seed | parameters | loss mounted | loss folded | entity recall folded |\n|---|---|---|---|---|---|")
    for seed in options.seeds:
        for text in options.variants:
            row = run(options.work.absolute(), tuple(map(int, text.split("+"))), seed)
            cells = (
                f"{row.min_rank}+{row.scale_rank}",
                seed,
                f"{row.parameters:,}",
                f"{row.loss_mounted:.3f}",
                f"{row.loss_folded:.3f}",
                f"{row.entity_recall:.2f}",
            )
            print(json.dumps(asdict(row)) if options.json else "| " + " | ".join(map(str, cells)) + " |", flush=True)


if __name__ == "__main__":
    main()
