"""Make tests/cases/engine/: what PyTorch, transformers and PEFT compute on SmolLM2's dequantized weights.

    python -m tests.oracles.engine_golden MODEL.gguf

inputs.json   token ids of the batch, the course and the prompts
KIND.npz      loss, gradients and the 30 losses of a training course, for both kinds of adapter
greedy.json   tokens that transformers decodes greedily from the merged model; an answer ends where two tokens are so close
              that rounding could decide
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from mobilefinetuner.runtime.bundle.plan import PROJECTIONS
from mobilefinetuner.runtime.gguf.file import GgufFile

from tests.oracles.engine_case import (
    BETAS,
    CASES,
    EPSILON,
    INPUTS,
    LEARNING_RATES,
    MAX_GRAD_NORM,
    NEW_TOKENS,
    SCALE,
    STEPS,
    TOKENS,
    WEIGHT_DECAY,
    Pairs,
    Sample,
    adapter_pairs,
    course_batch,
    fingerprint,
    load_inputs,
    merged_model,
    padded,
    samples,
)  # fmt: skip
from tests.oracles.torch_model import PeftModel, load_model

SAMPLE = Path(__file__).parent.parent.parent / "templates" / "customer_service" / "sample.jsonl"
PROMPTS = 20
MARGIN = 1e-2
"""difference of the two largest logits below which an answer ends"""
BATCH_LABELS = ((20, 64, 30, 36), (12, 50, 50, 50))
"""of each row of the batch: labels from, its length, and a gap without labels from, to"""


def projections(model: GgufFile) -> dict[str, tuple[int, int]]:
    """[N, K] of every projection of the model."""
    return {name: info.shape for name, info in model.tensors.items() if name.split(".")[-2] in PROJECTIONS}


def make_inputs(gguf: Path) -> dict:
    """Token ids of real conversations."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
    dialogues = [json.loads(line)["messages"] for line in SAMPLE.read_text(encoding="utf-8").splitlines()]
    rendered = [tokenizer.apply_chat_template(d, tokenize=False).removesuffix("\n") for d in dialogues]
    ids = [tokenizer(text)["input_ids"] for text in rendered]
    asked = [tokenizer(tokenizer.apply_chat_template(d[:-1], tokenize=False, add_generation_prompt=True))["input_ids"] for d in dialogues]
    batch = []
    for row, (first, length, gap, end) in enumerate(BATCH_LABELS):
        words = (ids[2 * row] + ids[2 * row + 1])[:length]
        batch.append({"ids": words, "labels": [int(first <= i and not gap <= i < end) for i in range(len(words))]})
    course = [
        {"ids": whole, "labels": [int(i >= len(question)) for i in range(len(whole))]} for whole, question in zip(ids, asked) if len(whole) <= TOKENS
    ][:8]
    prompts = [*asked[8 : 6 + PROMPTS], ids[0] + asked[1], ids[2] + ids[3] + asked[5]]
    return {"batch": batch, "course": course, "prompts": prompts}


def gradients(gguf: Path, kind: str, pairs: Pairs, batch: list[Sample]) -> tuple[float, dict[str, np.ndarray]]:
    """Loss, and the fingerprint of every gradient by name."""
    model = PeftModel(gguf, kind, SCALE, pairs)
    ids, attention, labels = padded(batch)
    loss, embeddings = model.loss(ids, attention, labels)
    loss.backward()
    out = {"input": fingerprint(embeddings.grad.numpy()[attention.astype(bool)], "input")}
    for name, (a, b) in model.gradients().items():
        out[f"{name}:A"], out[f"{name}:B"] = fingerprint(a, f"{name}:A"), fingerprint(b, f"{name}:B")
    return loss.item(), out


def train(gguf: Path, kind: str, pairs: Pairs, course: list[Sample]) -> tuple[list[float], Pairs]:
    """The losses of STEPS steps of torch.optim.AdamW, and the adapter after them."""
    model = PeftModel(gguf, kind, SCALE, pairs)
    leaves = {name: tuple(torch.nn.Parameter(torch.tensor(matrix)) for matrix in pair) for name, pair in pairs.items()}
    parameters = [matrix for pair in leaves.values() for matrix in pair]
    optimizer = torch.optim.AdamW(parameters, LEARNING_RATES[kind], BETAS, EPSILON, WEIGHT_DECAY)
    losses = []
    for step in range(STEPS):
        model.model.zero_grad()
        loss, _ = model.loss(*padded(course_batch(course, step)))
        loss.backward()
        for name, found in model.gradients().items():
            for matrix, gradient in zip(leaves[name], found):
                matrix.grad = torch.tensor(np.ascontiguousarray(gradient))
        torch.nn.utils.clip_grad_norm_(parameters, MAX_GRAD_NORM)
        optimizer.step()
        model.assign({name: tuple(matrix.detach().numpy() for matrix in pair) for name, pair in leaves.items()})
        losses.append(loss.item())
    return losses, model.pairs


def greedy(gguf: Path, prompts: list[list[int]]) -> list[list[int]]:
    """Up to NEW_TOKENS tokens for each prompt, as long as no two tokens are about equally likely."""
    model = load_model(gguf)
    answers = []
    for prompt in prompts:
        answer: list[int] = []
        given, cache = torch.tensor([prompt]), None
        with torch.no_grad():
            while len(answer) < NEW_TOKENS:
                output = model(given, past_key_values=cache, use_cache=True)
                best = output.logits[0, -1].topk(2)
                if best.values[0] - best.values[1] < MARGIN:
                    break
                answer.append(int(best.indices[0]))
                given, cache = best.indices[:1][None], output.past_key_values
        answers.append(answer)
    return answers


def main(gguf: Path) -> None:
    CASES.mkdir(parents=True, exist_ok=True)
    INPUTS.write_text(json.dumps(make_inputs(gguf)) + "\n", encoding="utf-8")
    inputs, shapes = load_inputs(), projections(GgufFile.open(gguf))
    answers = {}
    for kind in LEARNING_RATES:
        loss, found = gradients(gguf, kind, adapter_pairs(kind, shapes, started=True), samples(inputs["batch"]))
        losses, _ = train(gguf, kind, adapter_pairs(kind, shapes, started=False), samples(inputs["course"]))
        fingerprints = np.stack(list(found.values())).astype(np.float32)
        np.savez_compressed(CASES / f"{kind}.npz", names=np.array(list(found)), fingerprints=fingerprints, loss=loss, course=losses)
        with tempfile.TemporaryDirectory() as folder:
            answers[kind] = greedy(
                merged_model(gguf, kind, adapter_pairs(kind, shapes, started=True), Path(folder) / "merged.gguf"), inputs["prompts"]
            )
        print(kind, loss, losses[0], losses[-1], [len(a) for a in answers[kind]], flush=True)
    (CASES / "greedy.json").write_text(json.dumps(answers) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
