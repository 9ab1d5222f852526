"""How fast and in how much memory ingest reads, before tokenization.

    python benchmarks/ingest.py [--mb 1024] [--rows short|long|mixed] [--json]

In:  a generated JSON Lines file of that size (seeded; rows are varied words, one in fifty repeats an earlier row).
Out: MB/s on one core (CPU time) before tokenization, and of a whole run whose tokenizer costs nothing; peak resident memory, and how
     much of it came on top of the imports. The whole run includes splitting, the cache file, its checksums and all temporary files.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import ClassVar

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

ROW_WORDS = {"short": (6, 14), "mixed": (6, 220), "long": (200, 900)}


class CountingTokenizer:
    """Stands in for the tokenizer: one token for a text, whatever it is."""

    vocab_size = 2
    special_tokens: ClassVar = {"<|im_start|>": 0, "<|im_end|>": 1}

    def encode(self, text: str) -> list[int]:
        return [0]

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        return [0, 1], [(0, 0), (0, len(text))]


class CountingChat:
    """Stands in for the chat format: two tokens, the second learned."""

    supports_system = True

    def __init__(self) -> None:
        import numpy as np
        from mobilefinetuner.runtime.bundle.chat_format import EncodedConversation

        roles = ("system", "user", "assistant", "tool")
        self.between = {role: dict.fromkeys(roles, "") for role in ("start", *roles)}
        self._encoded = EncodedConversation(np.array([0, 1], np.int32), np.array([0, 1], np.uint8))

    def encode(self, *_: object, **__: object):
        return self._encoded


def write_rows(path: Path, n_bytes: int, words_range: tuple[int, int]) -> int:
    """Rows of random words, English with some Chinese; returns how many."""
    rng = random.Random(7)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _ in range(20_000)]
    han = [chr(rng.randint(0x4E00, 0x9FA5)) for _ in range(3000)]
    written = rows = 0
    recent: list[bytes] = []
    with open(path, "wb") as stream:
        while written < n_bytes:
            if recent and rng.random() < 0.02:
                line = rng.choice(recent)
            else:
                length = rng.randint(*words_range)
                texts = [" ".join(rng.choices(words, k=max(3, length // 3))) + "?", " ".join(rng.choices(words, k=length)) + "."]
                if rng.random() < 0.1:
                    texts = ["".join(rng.choices(han, k=len(text) // 3)) + "。" for text in texts]
                turns = [{"role": role, "content": text} for role, text in zip(("user", "assistant"), texts)]
                line = (json.dumps({"messages": turns}, ensure_ascii=False) + "\n").encode()
                if len(recent) < 1000:
                    recent.append(line)
            stream.write(line)
            written += len(line)
            rows += 1
    return rows


def measure(n_mb: int, kind: str, scenario_name: str = "customer_service") -> dict[str, float]:
    """One run of each kind in this process: reading and judging alone, then all of ingest but the tokenizer."""
    from mobilefinetuner.runtime.data import IngestOptions, ingest
    from mobilefinetuner.runtime.data.scenario import Scenario, scenario_document

    templates = Path(__file__).parent.parent / "templates" / scenario_name
    scenario = Scenario.from_json(scenario_document(templates, {"name": scenario_name, "window_tokens": 256}, {}))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.jsonl")
        rows = write_rows(path, n_mb << 20, ROW_WORDS[kind])
        size_mb = path.stat().st_size / 1e6
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        judging = judge_only(path, scenario, Path(folder))
        start = time.process_time()
        report = ingest([path], scenario, CountingTokenizer(), CountingChat(), Path(folder, "cache"), IngestOptions(max_drop_share=1))
        whole = time.process_time() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "rows": rows,
        "kept": report.kept,
        "megabytes": size_mb,
        "judging_mb_per_second": size_mb / judging,
        "whole_mb_per_second": size_mb / whole,
        "peak_rss_mb": peak / 1024,
        "peak_above_start_mb": (peak - before) / 1024,
    }


def judge_only(path: Path, scenario, spool_dir: Path) -> float:
    """CPU seconds of all that happens before tokenization: reading, decoding, parsing, every rule, duplicates."""
    from mobilefinetuner.runtime.data.ingest import batches, without_cycle_search
    from mobilefinetuner.runtime.data.readers.format import ReadOptions
    from mobilefinetuner.runtime.data.reading import Reading, sources_under
    from mobilefinetuner.runtime.data.report import IngestReport
    from mobilefinetuner.runtime.data.rules.rules import RuleEngine
    from mobilefinetuner.runtime.message import Conversation

    start = time.process_time()
    rules = RuleEngine(scenario, CountingTokenizer.special_tokens, spool_dir)
    record = 0
    with without_cycle_search():
        for batch in batches(Reading(sources_under([path]), scenario, ReadOptions(), IngestReport()).items()):
            conversations = [item for item in batch if isinstance(item, Conversation)]
            rules.apply(conversations, range(record, record + len(conversations)))
            record += len(conversations)
    rules.close()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mb", type=int, default=1024, help="size of the generated file")
    parser.add_argument("--rows", choices=ROW_WORDS, default="mixed", help="length of the rows: about 170, 1,000 or 4,800 bytes")
    parser.add_argument("--scenario", default="customer_service", help="whose rules are applied")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    result = measure(arguments.mb, arguments.rows, arguments.scenario)
    if arguments.json:
        print(json.dumps(result))
    else:
        print(
            f"{result['megabytes']:.0f} MB, {result['rows']:,} rows ({result['kept']:,} kept): {result['judging_mb_per_second']:.1f} MB/s before "
            f"tokenization, {result['whole_mb_per_second']:.1f} MB/s with everything but the tokenizer; peak {result['peak_rss_mb']:.0f} MB, "
            f"{result['peak_above_start_mb']:.0f} MB above the start",
            file=sys.stdout,
        )


if __name__ == "__main__":
    main()
