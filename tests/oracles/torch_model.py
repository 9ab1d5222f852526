"""The oracle: the same GGUF in transformers, the same adapter in PEFT, fp32 on the CPU.

In:  a GGUF of architecture llama and an adapter by our names.
Out: losses, gradients by our names, greedy tokens.
transformers undoes llama.cpp's reordering of the rows of attn_q and attn_k (pairs side by side -> half a head apart), so the
rows of these projections' B matrices are reordered on the way in and back on the way out.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import peft
import torch
import transformers

GROUP = 32
HF_NAMES = {
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}  # fmt: skip


def load_model(gguf: Path) -> transformers.LlamaForCausalLM:
    """The dequantized model in fp32."""
    model = transformers.AutoModelForCausalLM.from_pretrained(str(gguf.parent), gguf_file=gguf.name, dtype=torch.float32, attn_implementation="eager")
    return model.eval()


def to_hf_rows(b: np.ndarray, heads: int) -> np.ndarray:
    """Rows from GGUF's order (pair by pair) to transformers' (first halves, then second halves of each head)."""
    width = b.shape[0] // heads
    return b.reshape(heads, width // 2, 2, -1).swapaxes(1, 2).reshape(b.shape)


def to_gguf_rows(b: np.ndarray, heads: int) -> np.ndarray:
    """The inverse of to_hf_rows."""
    width = b.shape[0] // heads
    return b.reshape(heads, 2, width // 2, -1).swapaxes(1, 2).reshape(b.shape)


class PeftModel:
    """transformers + PEFT with an adapter given as {"blk.0.attn_q.weight": (A, B)} of kind grouped or lora."""

    def __init__(self, gguf: Path, kind: str, scale: float, pairs: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
        self.kind = kind
        rank = next(iter(pairs.values()))[0].shape[0]
        model = load_model(gguf)
        self.heads = {"attn_q": model.config.num_attention_heads, "attn_k": model.config.num_key_value_heads}
        targets = sorted({HF_NAMES[name.split(".")[2]].split(".")[1] for name in pairs})
        config = peft.LoraConfig(r=rank, lora_alpha=rank * scale, target_modules=targets, lora_dropout=0.0, bias="none")
        self.model = peft.get_peft_model(model, config)
        self.assign(pairs)

    def assign(self, pairs: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
        """Give the adapter these values."""
        self.pairs = pairs
        with torch.no_grad():
            for name, (a, b) in pairs.items():
                module = self._module(name)
                module.lora_A["default"].weight.copy_(torch.tensor(np.repeat(a, GROUP, axis=1) if self.kind == "grouped" else a))
                projection = name.split(".")[2]
                rows = to_hf_rows(b, self.heads[projection]) if projection in self.heads else b
                module.lora_B["default"].weight.copy_(torch.tensor(np.ascontiguousarray(rows)))

    def _module(self, name: str) -> torch.nn.Module:
        _, layer, projection, _ = name.split(".")
        return self.model.get_submodule(f"base_model.model.model.layers.{layer}.{HF_NAMES[projection]}")

    def loss(self, ids: np.ndarray, attention: np.ndarray, labels: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """(mean loss over labels, embeddings that carry a gradient); ids, attention, labels [B,T], label -100: none."""
        embeddings = self.model.get_input_embeddings()(torch.tensor(ids, dtype=torch.long)).detach().requires_grad_(True)
        output = self.model(
            inputs_embeds=embeddings, attention_mask=torch.tensor(attention, dtype=torch.long), labels=torch.tensor(labels, dtype=torch.long)
        )
        return output.loss, embeddings

    def gradients(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Gradients after backward(), in our layout: a grouped A collects the columns of its groups."""
        out = {}
        for name in self.pairs:
            module = self._module(name)
            a, b = module.lora_A["default"].weight.grad.numpy(), module.lora_B["default"].weight.grad.numpy()
            if self.kind == "grouped":
                a = a.reshape(a.shape[0], -1, GROUP).sum(-1)
            projection = name.split(".")[2]
            out[name] = a, to_gguf_rows(b, self.heads[projection]) if projection in self.heads else b
        return out
