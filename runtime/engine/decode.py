"""Answer a prompt: read it in one pass, then one token at a time over the key-value cache.

In:  an Engine, prompt token ids.
Out: token ids, greedy or sampled; the same seed gives the same ids.
A prompt longer than the longest bucket is read on token by token after its first part.
"""

# Shapes: X context rows · KV·d key-value width · V vocabulary

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ..bundle.plan import DECODE_BUCKET
from ..errors import UserError
from .engine import Engine
from .forward import ForwardSet
from .tensors import TensorMemory, decoding_tensors

Pick = Callable[[np.ndarray], int]


def greedy(logits: np.ndarray) -> int:
    """The most likely token; the lowest id of equals."""
    return int(logits.argmax())


def sampler(temperature: float, seed: int) -> Pick:
    """Draws from softmax(logits / temperature) with a generator of its own."""
    generator = np.random.default_rng(seed)

    def pick(logits: np.ndarray) -> int:
        scaled = logits.astype(np.float64) / temperature
        weights = np.exp(scaled - scaled.max())
        return int(generator.choice(len(weights), p=weights / weights.sum()))

    return pick


class Decoder:
    """The cache and the programs of one conversation at a time."""

    def __init__(self, engine: Engine, forwards: ForwardSet | None = None) -> None:
        """forwards: what reads prompts; given when somebody else uses the same engine's already."""
        plan, model = engine.plan, engine.plan.model
        self._engine, self._forwards = engine, forwards or ForwardSet(engine)
        self.context_tokens = model.context_tokens
        self.memory = TensorMemory(decoding_tensors(plan))
        self.position = 0
        scratch = self.memory.address("scratch")
        at = {name: self.memory.address(name) for name in ("cos", "sin", "q", "key", "value", "position")}
        x = [self.memory["x"][i].ctypes.data for i in (0, 1)]
        layers = range(model.layers)
        first = [{**at, "x": x[layer % 2]} for layer in layers]
        cache = [[self.memory["cache"][layer, part].ctypes.data for part in (0, 1)] for layer in layers]
        second = [{**at, "x": x[i % 2], "y": x[(i + 1) % 2], "keys": cache[i][0], "values": cache[i][1]} for i in layers]
        self._qkv = engine.inference_programs("block_decode_qkv", "", first, scratch)
        self._rest = engine.inference_programs("block_decode", "", second, scratch)
        self._embed = engine.program(plan.entry("embed", DECODE_BUCKET), {"ids": self.memory.address("id"), "y": x[0]}, scratch)
        last = x[model.layers % 2]
        self._logits = engine.program(plan.entry("logits"), {"x": last, "logits": self.memory.address("logits")}, scratch)

    def start(self, ids: Sequence[int]) -> np.ndarray:
        """Forget everything, read a prompt; returns the logits after it. UserError when it leaves no room for an answer.

        →  [V] f32, a view that the next token overwrites
        """
        if not len(ids):
            raise ValueError("a prompt has at least one token")
        if len(ids) >= self.context_tokens:
            raise UserError(
                "prompt", f"has {len(ids)} tokens", f"fewer than {self.context_tokens}", "a shorter text, or a bundle with longer buckets"
            )
        forward = self._forwards.fitting(len(ids))
        n = min(len(ids), forward.tokens)
        padded = np.zeros(forward.tokens, np.int32)
        padded[:n] = ids[:n]
        cache = self.memory["cache"]

        def keep(layer: int, keys: np.ndarray, values: np.ndarray) -> None:
            cache[layer, 0, :n] = keys[:n]
            cache[layer, 1, :n] = values[:n]

        hidden = forward.run(padded, np.zeros((1, forward.tokens), np.int32), keep)
        self.memory["x"][len(self._rest) % 2] = hidden[n - 1]
        self.position = n
        for token in ids[n:]:
            self._advance(token)
        self._logits.run()
        return self.memory["logits"]

    def next(self, token: int) -> np.ndarray:
        """Append one token; returns the logits after it  →  [V] f32, a view"""
        self._advance(token)
        self._logits.run()
        return self.memory["logits"]

    def _advance(self, token: int) -> None:
        if self.position >= self.context_tokens:
            raise UserError("conversation", f"is longer than {self.context_tokens} tokens", remedy="start a new one")
        position = self.position
        self.memory["id"][0] = token
        self.memory["position"][0] = position
        self.memory["cos"][0] = self._engine.cos[position]
        self.memory["sin"][0] = self._engine.sin[position]
        cache, key, value = self.memory["cache"], self.memory["key"], self.memory["value"]
        self._embed.run()
        for layer, (qkv, rest) in enumerate(zip(self._qkv, self._rest)):
            qkv.run()
            cache[layer, 0, position] = key
            cache[layer, 1, position] = value
            rest.run()
        self.position += 1

    def generate(self, ids: Sequence[int], max_new: int, stop_ids: Sequence[int], pick: Pick = greedy) -> Iterator[int]:
        """The answer's token ids; ends before a stop token, after max_new tokens, or when the context is full."""
        logits = self.start(ids)
        for _ in range(max_new):
            token = pick(logits)
            if token in stop_ids:
                return
            yield token
            if self.position >= self.context_tokens:
                return
            logits = self.next(token)
