"""Writing with T5 1.1 small of random weights on this machine's CPU, beside transformers in the same run.

    .venv/bin/python benchmarks/generate.py [--rounds 3] [--tokens 64] [--output FILE.json]

Greedy and beam search with 4 beams, 32 inputs of 128 tokens, 64 new tokens each (none may end). Each contender is a
process of its own; they take turns, one batch each. Times are medians of the rounds after a first one that compiles;
read the ratios, and CPU seconds where the machine does other things besides. `ms a token` is what one more token of the
whole batch takes: the difference between 64 tokens and a quarter of them, and between that and the first, each with the
room in the cache that 64 tokens get. What a token takes beyond attention to those before it is the same in both.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

LAST = 5
"""The token that ends what we write, by force, so that it is seen that all was written."""
CONTENDERS = ("spanloom", "transformers")
Row = dict[str, Any]
Write = Callable[[int, int, int], int]
"""Beams, the tokens that there is to be room for, and those to write; how many came out for the first input."""


def make_inputs(batch: int, length: int) -> np.ndarray:
    """Random tokens without padding, the same for every contender."""
    return np.random.default_rng(0).integers(2, 32100, (batch, length), dtype=np.int32)


def spanloom_contender(model: str, batch: int, length: int) -> Write:
    import jax

    from spanloom.model.decoding import get_ready, sample
    from spanloom.model.decoding_beams import beam_search
    from spanloom.model.decoding_rules import Rules
    from spanloom.model.params import declare, initialize
    from spanloom.model.sizes import named

    config = named(model)
    params = jax.jit(lambda key: initialize(declare(config), key))(jax.random.key(0))
    weights, inputs = get_ready(params, config), make_inputs(batch, length)

    def write(beams: int, room: int, tokens: int) -> int:
        forced = np.zeros((batch, room), np.int32)
        forced[:, tokens - 1] = LAST
        rules, limit = Rules(forced), np.full(batch, tokens)
        if beams == 1:
            written = sample(weights, config, inputs, rules, limit, eos_id=-1).tokens
        else:
            shared: dict[str, Any] = {"count": beams, "rule": "transformers", "alpha_B": 1.0, "eos_id": -1}
            written = beam_search(weights, config, inputs, rules, limit, **shared).tokens
        return int(np.flatnonzero(np.asarray(written)[0, 0] == LAST)[-1]) + 1

    return write


def transformers_contender(model: str, batch: int, length: int) -> Write:
    import torch
    from transformers import T5Config, T5ForConditionalGeneration

    from spanloom.conversion.hf_config import to_config
    from spanloom.model.sizes import named

    config = T5Config.from_dict(to_config(named(model), "T5Tokenizer", eos_id=1))
    torch.manual_seed(0)
    called = T5ForConditionalGeneration(config).eval()
    called.generation_config.eos_token_id = None
    called.generation_config.pad_token_id = 0
    inputs = torch.from_numpy(make_inputs(batch, length)).long()
    mask = torch.ones_like(inputs)

    def write(beams: int, room: int, tokens: int) -> int:
        del room  # its cache grows by a token at a time
        with torch.no_grad():
            written = called.generate(
                inputs, attention_mask=mask, max_new_tokens=tokens, num_beams=beams, do_sample=False
            )
        return int(written.shape[1]) - 1

    return write


def work(name: str, model: str, batch: int, length: int) -> None:
    """A contender's process: `BEAMS ROOM TOKENS` in, seconds out, one a line."""
    write = {"spanloom": spanloom_contender, "transformers": transformers_contender}[name](model, batch, length)
    for line in sys.stdin:
        beams, room, tokens = map(int, line.split())
        begun, cpu = time.perf_counter(), time.process_time()
        count = write(beams, room, tokens)
        row = {"seconds": time.perf_counter() - begun, "cpu_seconds": time.process_time() - cpu, "tokens": count}
        print(json.dumps(row), flush=True)


class Worker:
    """A contender's process."""

    def __init__(self, name: str, *shape: Any) -> None:
        env = {**os.environ, "JAX_PLATFORMS": "cpu", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
        env["OMP_WAIT_POLICY"] = "PASSIVE"  # torch's threads would spin while others hold the cores, to our advantage
        env["PYTHONPATH"] = str(Path(__file__).resolve().parent.parent)
        argv = [sys.executable, __file__, "--worker", name, *map(str, shape)]
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)

    def ask(self, beams: int, room: int, tokens: int) -> Row:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(beams, room, tokens, file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._process.args!r} ended with {self._process.wait()}; its error is above")
        answer: Row = json.loads(line)
        if answer["tokens"] != tokens:
            raise RuntimeError(f"{self._process.args!r} wrote {answer['tokens']} tokens, not {tokens}")
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def measure(workers: dict[str, Worker], beams: int, tokens: int, rounds: int) -> list[Row]:
    """One row for each contender."""
    lengths = (tokens, max(tokens // 4, 1), 1)
    times: dict[tuple[str, int], list[Row]] = {(name, length): [] for name in workers for length in lengths}
    for _ in range(1 + rounds):
        for length in lengths:
            for name, worker in workers.items():
                times[name, length].append(worker.ask(beams, tokens, length))
    rows = []
    for name in workers:
        timed = {length: times[name, length][1:] for length in lengths}
        row: Row = {"contender": name, "beams": beams, "tokens": tokens}
        for key in ("seconds", "cpu_seconds"):
            whole, part, first = (statistics.median(one[key] for one in timed[length]) for length in lengths)
            row |= {key: whole, f"early_{key}": (part - first) / max(lengths[1] - 1, 1)}
            row[f"late_{key}"] = (whole - part) / max(tokens - lengths[1], 1)
        rows.append(row)
    base = next((row for row in rows if row["contender"] == "transformers"), None)
    for row in rows if base else []:
        assert base is not None
        row |= {f"{key}_ratio": base[key] / row[key] for key in ("seconds", "cpu_seconds")}
    return rows


def markdown(rows: list[Row], batch: int) -> str:
    lines = [
        "| beams | contender | s | times faster | CPU s | times less | tokens/s | CPU ms a token, early | late |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        ratios = [f"{row[key]:.2f}" if key in row else "-" for key in ("seconds_ratio", "cpu_seconds_ratio")]
        early, late = (1000 * row[f"{when}_cpu_seconds"] for when in ("early", "late"))
        lines.append(
            f"| {row['beams']} | {row['contender']} | {row['seconds']:.2f} | {ratios[0]} | {row['cpu_seconds']:.2f} | "
            f"{ratios[1]} | {batch * row['tokens'] / row['seconds']:,.0f} | {early:.1f} | {late:.1f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--model", default="t5_1_1_small")
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--output", type=Path, help="also write the rows as JSON")
    args = parser.parse_args()
    if args.worker:
        name, model, batch, length = args.worker
        work(name, model, int(batch), int(length))
        return
    from spanloom.training.machine import processor

    workers = {name: Worker(name, args.model, args.batch, args.length) for name in args.contenders}
    rows = [row for beams in args.beams for row in measure(workers, beams, args.tokens, args.rounds)]
    for worker in workers.values():
        worker.close()
    print(f"{args.model}, {os.cpu_count()} cores of {processor()}, load {os.getloadavg()[0]:.1f} at the end\n")
    print(markdown(rows, args.batch))
    if args.output:
        args.output.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
