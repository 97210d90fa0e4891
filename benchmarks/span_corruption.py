"""How many span-corrupted examples one core makes from blocks of tokens.

    .venv/bin/python benchmarks/span_corruption.py [--blocks 32 128 512]

SeqIO makes 2,000 to 2,750 examples per CPU second (T5 512/114) and 2,100 (ByT5 1024/189), tokenization included.
"""

import argparse
import time
from dataclasses import dataclass

import numpy as np

from spanloom.settings.objectives import SpanCorruption
from spanloom.settings.vocabulary import Bytes
from spanloom.tasks.randomness import hash64
from spanloom.tasks.span_corruption import corrupt_block, lengths_of
from spanloom.vocabularies.build import build

OBJECTIVES = {
    "T5 512/114": SpanCorruption(512, 0.15, 3.0),
    "ByT5 1024/189": SpanCorruption(1024, 0.15, 20.0),
}


@dataclass(frozen=True)
class Rate:
    """What one objective reached with one size of blocks."""

    name: str
    block: int
    examples_per_cpu_second: float
    tokens_per_cpu_second: float


def measure(name: str, objective: SpanCorruption, block: int, cpu_seconds: float = 1.0) -> Rate:
    """Rate of `corrupt_block` on uint16 tokens, keys included, on this thread alone; the best of three runs."""
    vocabulary = build(Bytes())
    raw_length = lengths_of(objective, vocabulary).raw_length
    tokens = np.random.default_rng(0).integers(3, 259, (block, raw_length)).astype(np.uint16)
    best = 0.0
    for _ in range(3):
        made, start = 0, time.process_time()
        while time.process_time() - start < cpu_seconds / 3:
            corrupt_block(tokens, hash64(0, np.arange(made, made + block)), objective, vocabulary)
            made += block
        best = max(best, made / (time.process_time() - start))
    return Rate(name, block, best, best * raw_length)


def measure_all(blocks: list[int]) -> list[Rate]:
    """Both objectives of the published models with each size of blocks."""
    return [measure(name, objective, block) for name, objective in OBJECTIVES.items() for block in blocks]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, nargs="+", default=[32, 128, 512], help="examples made at a time")
    for rate in measure_all(parser.parse_args().blocks):
        print(
            f"{rate.name:14} blocks of {rate.block:4}: {rate.examples_per_cpu_second:9,.0f} examples and "
            f"{rate.tokens_per_cpu_second / 1e6:6.1f} million tokens per CPU second"
        )


if __name__ == "__main__":
    main()
