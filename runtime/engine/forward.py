"""Forward passes without gradients: reading a prompt into the cache and scoring text, on any version's weights.

In:  an Engine; token ids in the shape of a bucket.
Out: hidden states; keys and values per layer for whoever wants them; summed losses.
These passes read the weights, and the adapter that the engine has mounted, if any.
"""

# Shapes: T tokens of the bucket · D model width · KV·d key-value width

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..bundle.plan import Bucket, scoring_buckets
from ..errors import UserError
from .engine import Engine
from .head import score_rows
from .packing import PackedBatch, Tokens, label_count, pack, rows_first_fit
from .tensors import TensorMemory, scoring_tensors

KeepCache = Callable[[int, np.ndarray, np.ndarray], None]


class Forward:
    """block_prefill through all layers for one bucket."""

    def __init__(self, engine: Engine, bucket: str) -> None:
        plan = engine.plan
        self.tokens = Bucket.parse(bucket).tokens
        self.memory = TensorMemory(scoring_tensors(plan, bucket))
        scratch = self.memory.address("scratch")
        shared = {name: self.memory.address(name) for name in ("start", "keys", "values")}
        hidden = [self.memory["hidden"][i].ctypes.data for i in (0, 1)]
        operands = [{**shared, "x": hidden[layer % 2], "y": hidden[(layer + 1) % 2]} for layer in range(plan.model.layers)]
        self._blocks = engine.inference_programs("block_prefill", bucket, operands, scratch)
        self._embed = engine.program(plan.entry("embed", bucket), {"ids": self.memory.address("ids"), "y": hidden[0]}, scratch)
        head = {name: self.memory.address(name) for name in ("targets", "scale", "loss")}
        self._score = engine.program(plan.entry("head_score"), {**head, "x": self.memory.address("head_x")}, scratch)

    def run(self, ids: np.ndarray, start: np.ndarray, keep: KeepCache | None = None) -> np.ndarray:
        """Hidden states after the last block; keep(layer, keys, values) sees each layer's cache rows.

        ids [T] i32 · start [1,T] i32  →  [T,D] f32, a view that the next run overwrites
        """
        self.memory["ids"][:] = ids
        self.memory["start"][:] = start
        self._embed.run()
        for layer, program in enumerate(self._blocks):
            program.run()
            if keep is not None:
                keep(layer, self.memory["keys"], self.memory["values"])
        return self.memory["hidden"][len(self._blocks) % 2]

    def score(self, batch: PackedBatch) -> np.ndarray:
        """Loss in nats of every labelled position, in order of position."""
        hidden = self.run(batch.ids, batch.start)
        return score_rows(self._score, self.memory, hidden, batch.targets)


class ForwardSet:
    """A Forward for each bucket length, bound when it is first needed."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.lengths = [Bucket.parse(name).tokens for name in scoring_buckets(engine.plan.buckets)]
        self._forwards: dict[int, Forward] = {}

    def fitting(self, tokens: int) -> Forward:
        """The smallest that holds `tokens`, or the largest there is."""
        length = next((n for n in self.lengths if n >= tokens), self.lengths[-1])
        if length not in self._forwards:
            self._forwards[length] = Forward(self.engine, str(Bucket(1, length)))
        return self._forwards[length]

    def losses(self, samples: Sequence[Tokens]) -> list[np.ndarray]:
        """Loss in nats of each sample's label tokens. UserError for a sample longer than the longest bucket."""
        self._refuse_too_long(samples)
        return [self.fitting(len(s.token_ids)).score(pack([s], 1, self.fitting(len(s.token_ids)).tokens)[0]) for s in samples]

    def packed_losses(self, samples: Sequence[Tokens]) -> list[np.ndarray]:
        """As `losses`, with as many samples to a pass as the longest bucket holds: many short ones cost a fraction of the time."""
        self._refuse_too_long(samples)
        forward = self.fitting(self.lengths[-1])
        losses = [np.empty(0, np.float32)] * len(samples)
        for row in rows_first_fit([len(s.token_ids) for s in samples], forward.tokens):
            batch = pack([samples[i] for i in row], 1, forward.tokens)[0]  # keeps the row's order: longest first
            ends = np.cumsum([label_count(samples[i]) for i in row])
            for index, part in zip(row, np.split(forward.score(batch), ends[:-1])):
                losses[index] = part
        return losses

    def _refuse_too_long(self, samples: Sequence[Tokens]) -> None:
        longest = max((len(s.token_ids) for s in samples), default=0)
        if longest > self.lengths[-1]:
            raise UserError("sample", f"has {longest} tokens", f"at most {self.lengths[-1]}, the longest bucket", "a shorter window_tokens")
