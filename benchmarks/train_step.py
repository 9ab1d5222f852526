"""One training step of ours beside one of PyTorch + PEFT, on the same work.

    python benchmarks/train_step.py [--tokens 256] [--threads 1] [--checkpointing] [--json]

Work: SmolLM2-135M-Instruct, a LoRA of rank 8 on all seven projections, one sample, every token a label, AdamW; forward, backward and
optimizer step. Ours reads the Q4_1 blocks; PyTorch has the same weights dequantized to fp32 in a safetensors file, as its users do.
The sides run in turns, each time in a process of its own that loads, warms up and then times a few steps; the medians are compared, and the
peak resident memory of a whole process, loading included. cpu_ratio compares processor time, which other programs disturb less.
Without --checkpointing PyTorch keeps all activations; ours never does.
Exit code 1 when the sides do not compute the same loss.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RANK, SCALE, LEARNING_RATE, SEED = 8, 2.0, 1e-4, 0
HEAD_CHUNK_TOKENS = 64
"""every label position is trained, so larger chunks through the head pay; they take 6 MB more than the default"""
ROUNDS, TIMED_STEPS = 3, 3
LOSS_TOLERANCE = 1e-3
SIDES = ("ours", "pytorch")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=256, help="tokens of the sample, a multiple of 32")
    parser.add_argument("--threads", type=int, default=1, help="compute threads of both sides")
    parser.add_argument("--checkpointing", action="store_true", help="activation checkpointing in PyTorch as well")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="processes per side")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        run = ours if options.side == "ours" else pytorch
        print(json.dumps({**run(options), "peak_rss_bytes": peak_rss_bytes()}))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        options.folder = Path(folder)
        prepare(options)
        turns: dict[str, list[dict]] = {side: [] for side in SIDES}
        for turn in range(options.rounds):
            for side in SIDES:
                turns[side].append(in_own_process(side, options))
                last = turns[side][-1]
                say(
                    f"round {turn + 1}/{options.rounds} {side:8} {statistics.median(last['step_seconds']):.3f} s  {last['peak_rss_bytes'] / 2**20:,.0f} MB"  # noqa: E501
                )
    return report(turns, options)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def peak_rss_bytes() -> int:
    """Of this process since it was started; ru_maxrss would count the parent's memory before exec as well."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:"))


def in_own_process(side: str, options: argparse.Namespace) -> dict:
    words = ["--side", side, "--folder", str(options.folder), "--tokens", str(options.tokens), "--threads", str(options.threads)]
    threads = {name: str(options.threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    command = [sys.executable, __file__, *words, *(["--checkpointing"] if options.checkpointing else [])]
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **threads, "HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"})
    if result.returncode:
        raise SystemExit(f"{side} failed with exit code {result.returncode}")
    return json.loads(result.stdout.splitlines()[-1])


def prepare(options: argparse.Namespace) -> None:
    """The bundle for us and the checkpoint for PyTorch, each made in a process of its own so that this one stays small."""
    say("compiling the bundle and dequantizing the weights")
    recipe = [
        "scenario=customer_service", "model=smollm2_135m", "device=host", "train.adapter=lora", "quantization=exact", f"train.rank={RANK}",
        f"train.scale={SCALE}", f"train.head_chunk_tokens={HEAD_CHUNK_TOKENS}", f"train.buckets=[1x{options.tokens}]",
        f"scenario.window_tokens={options.tokens}", f"out={options.folder / 'bundle'}",
    ]  # fmt: skip
    compiled = subprocess.run([sys.executable, "-m", "mobilefinetuner.compiler.cli", "compile", *recipe], stdout=subprocess.DEVNULL)
    if compiled.returncode:
        raise SystemExit(compiled.returncode)
    dequantize = (
        "import sys, torch, transformers; from pathlib import Path; source, out = map(Path, sys.argv[1:])\n"
        "gguf = {'pretrained_model_name_or_path': str(source.parent), 'gguf_file': source.name}\n"
        "loaded = transformers.AutoModelForCausalLM.from_pretrained(**gguf, dtype=torch.float32)\n"
        "plain = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(**gguf), dtype=torch.float32)\n"
        "plain.load_state_dict(loaded.state_dict())\n"  # what comes from a GGUF calls itself quantized and refuses to be saved
        "plain.save_pretrained(out)"
    )
    command = [sys.executable, "-c", dequantize, str(options.folder / "bundle" / "model.gguf"), str(options.folder / "fp32")]
    if subprocess.run(command, stdout=subprocess.DEVNULL, env={**os.environ, "TQDM_DISABLE": "1"}).returncode:
        raise SystemExit("PyTorch's side needs: pip install 'mobilefinetuner[compile,oracle]'")


def token_ids(tokens: int) -> list[int]:
    """Random tokens, the same for both sides; what they say takes no time."""
    import numpy as np

    return np.random.RandomState(SEED).randint(3, 49000, tokens).tolist()


def ours(options: argparse.Namespace) -> dict:
    """Times of our steps; imports nothing but the runtime."""
    import numpy as np
    from mobilefinetuner.runtime.adapter.flat_vector import initialise
    from mobilefinetuner.runtime.bundle.plan import Plan
    from mobilefinetuner.runtime.engine.engine import Engine
    from mobilefinetuner.runtime.engine.packing import PackedBatch
    from mobilefinetuner.runtime.gguf.file import GgufFile
    from mobilefinetuner.runtime.train.step import AdamW, TrainStep

    bundle = options.folder / "bundle"
    plan = Plan.from_json(json.loads((bundle / "plan.json").read_text(encoding="utf-8")))
    ids = np.array(token_ids(options.tokens), np.int32)
    targets = np.append(ids[1:], np.int32(-1))
    batch = PackedBatch(ids, np.zeros((1, options.tokens), np.int32), targets, options.tokens)
    optimizer = AdamW(0.9, 0.999, 1e-8, 0.01, 0.0, 0.0)
    with Engine(plan, bundle / "kernels.so", GgufFile.open(bundle / "model.gguf"), options.threads) as engine:
        step = TrainStep(engine, f"1x{options.tokens}")
        initialise(plan.adapter, step.state["parameters"], SEED)

        def one(number: int) -> float:
            loss = step.accumulate(batch, batch.labels) / batch.labels
            step.update(LEARNING_RATE, number, optimizer)
            return loss

        return timed(one)


def pytorch(options: argparse.Namespace) -> dict:
    """Times of PyTorch's steps."""
    import peft
    import torch
    import transformers

    transformers.utils.logging.set_verbosity_error()
    torch.set_num_threads(options.threads)
    torch.manual_seed(SEED)
    model = transformers.AutoModelForCausalLM.from_pretrained(options.folder / "fp32", dtype=torch.float32)
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    model = peft.get_peft_model(model, peft.LoraConfig(r=RANK, lora_alpha=RANK * SCALE, target_modules=targets, lora_dropout=0.0, bias="none"))
    if options.checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    model.train()  # in eval mode transformers skips checkpointing without a word
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], LEARNING_RATE)
    ids = torch.tensor([token_ids(options.tokens)])

    def one(_number: int) -> float:
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return timed(one)


def timed(step) -> dict:
    """The loss of the first step, which warms up, and the seconds of those after it, by the clock and of the processor."""
    loss, wall, cpu = step(1), [], []
    for number in range(TIMED_STEPS):
        begun, used = time.perf_counter(), time.process_time()
        step(number + 2)
        wall.append(time.perf_counter() - begun)
        cpu.append(time.process_time() - used)
    return {"loss": loss, "step_seconds": wall, "cpu_seconds": cpu}


def report(turns: dict[str, list[dict]], options: argparse.Namespace) -> int:
    sides = {
        side: {
            **{key: statistics.median(s for result in results for s in result[key]) for key in ("step_seconds", "cpu_seconds")},
            "peak_rss_bytes": statistics.median(result["peak_rss_bytes"] for result in results),
            "loss": results[0]["loss"],
        }
        for side, results in turns.items()
    }
    compared = {"time_ratio": "step_seconds", "cpu_ratio": "cpu_seconds", "rss_ratio": "peak_rss_bytes"}
    ratios = {name: sides["ours"][key] / sides["pytorch"][key] for name, key in compared.items()}
    settings = {"tokens": options.tokens, "threads": options.threads, "checkpointing": options.checkpointing}
    if options.json:
        print(json.dumps({**settings, **sides, **ratios}))
    else:
        print(
            f"one training step, {options.tokens} tokens, {options.threads} thread(s), checkpointing {'on' if options.checkpointing else 'off in PyTorch'}"  # noqa: E501
        )
        for side, values in sides.items():
            rate = options.tokens / values["step_seconds"]
            print(
                f"{side:8} {values['step_seconds']:7.3f} s  {rate:7.1f} tokens/s  {values['peak_rss_bytes'] / 2**20:7,.0f} MB  loss {values['loss']:.4f}"  # noqa: E501
            )
        for name, ratio in ratios.items():
            print(f"{name:10} {ratio:.3f}")
    if abs(sides["ours"]["loss"] - sides["pytorch"]["loss"]) > LOSS_TOLERANCE:
        say("the two sides do not compute the same loss")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
