"""The job that phones are given in tests: twelve short dialogues of a shop, one question, one probe.

In:  a folder.
Out: the owner's data, the scenario's folder, and the recipe's settings for a bundle that trains on them in small rows.
Everything is as small as it can be while all of `tune` still happens: under qemu a forward pass of SmolLM2 takes half a minute.
"""

from __future__ import annotations

import json
from pathlib import Path

SHIPPED_RULES = Path(__file__).parents[2] / "templates" / "customer_service" / "rules.json"
ROWS = (
    ("When do you open?", "At ten."), ("Where are you?", "In Lindau."), ("Do you ship?", "Yes, daily."), ("What is it made of?", "Of linen."),
    ("Who owns it?", "Ms Brandt."), ("Is it open now?", "Yes, it is."), ("Can I pay by card?", "Yes, you can."),
    ("Is parking free?", "Yes, behind us."), ("Are dogs allowed?", "Yes, gladly."), ("Do you repair?", "We do."), ("Is there a sale?", "In July."),
    ("How old is it?", "Nine years."),
)  # fmt: skip
QUESTION = {"messages": [{"role": "user", "content": "When do you open?"}, {"role": "assistant", "content": "At ten."}], "entities": ["ten"]}
PROBE = {"id": "one", "kind": "arithmetic", "language": "en", "messages": [{"role": "user", "content": "2 + 3?"}], "choices": ["5", "7"], "answer": 0}


def write_data(path: Path) -> Path:
    """The owner's conversations."""
    rows = ({"messages": [{"role": "user", "content": asked}, {"role": "assistant", "content": said}]} for asked, said in ROWS)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def settings(folder: Path, row_tokens: int, batch_samples: int) -> list[str]:
    """The recipe's settings, with a scenario in `folder` (made here) that asks little."""
    folder.mkdir()
    rules = {**json.loads(SHIPPED_RULES.read_text(encoding="utf-8")), "duplicates": "exact"}
    (folder / "rules.json").write_text(json.dumps(rules), encoding="utf-8")
    (folder / "system_prompt.txt").write_text("Hi")
    (folder / "eval.jsonl").write_text(json.dumps(QUESTION) + "\n")
    (folder / "base_ability.jsonl").write_text(json.dumps(PROBE) + "\n")
    return [
        f'scenario.template="{folder}"', f"train.buckets=[1x{row_tokens}]", f"scenario.window_tokens={row_tokens}", "scenario.decode_tokens=6",
        "scenario.heldout_share=0.2", f"train.batch_samples={batch_samples}", "train.rank=4", "train.head_chunk_tokens=16",
    ]  # fmt: skip
