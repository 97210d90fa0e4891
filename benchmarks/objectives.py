"""How many examples one core makes from blocks of tokens, under each objective on text.

    .venv/bin/python benchmarks/objectives.py [--blocks 32 128 512] [--only "prefix LM"]

SeqIO makes 2,000 to 2,750 examples per CPU second of span corruption (T5 512/114) and 2,100 (ByT5 1024/189),
tokenization included.
"""

import argparse
import time
from dataclasses import dataclass

import numpy as np

from spanloom.settings.objectives import UL2, FullLM, IidDenoising, PrefixLM, SpanCorruption, TextInfilling, TokenStream
from spanloom.settings.vocabulary import Bytes
from spanloom.tasks.objectives.build import denoiser_of
from spanloom.tasks.randomness import hash64
from spanloom.vocabularies.build import build

OBJECTIVES: dict[str, TokenStream] = {
    "T5 512/114": SpanCorruption(512, 0.15, 3.0),
    "ByT5 1024/189": SpanCorruption(1024, 0.15, 20.0),
    "rolled": SpanCorruption(512, 0.15, 3.0, random_roll=True),
    "i.i.d. denoising": IidDenoising(512),
    "prefix LM": PrefixLM(512),
    "full LM": FullLM(targets_length=512),
    "text infilling": TextInfilling(512),
    "UL2": UL2(512),
}


@dataclass(frozen=True)
class Rate:
    """What one objective reached with one size of blocks."""

    name: str
    block: int
    examples_per_cpu_second: float
    tokens_per_cpu_second: float


def measure(name: str, objective: TokenStream, block: int, cpu_seconds: float = 1.0) -> Rate:
    """Rate of a denoiser on uint16 tokens, keys included, on this thread alone; the best of three runs."""
    denoiser = denoiser_of(objective, build(Bytes()))
    tokens = np.random.default_rng(0).integers(3, 259, (block, denoiser.raw_length)).astype(np.uint16)
    best = 0.0
    for _ in range(3):
        made, start = 0, time.process_time()
        while time.process_time() - start < cpu_seconds / 3:
            denoiser.make(tokens, hash64(0, np.arange(made, made + block)))
            made += block
        best = max(best, made / (time.process_time() - start))
    return Rate(name, block, best, best * denoiser.raw_length)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, nargs="+", default=[32, 128, 512], help="examples made at a time")
    parser.add_argument("--only", nargs="+", choices=list(OBJECTIVES), default=list(OBJECTIVES), help="objectives")
    chosen = parser.parse_args()
    for name in chosen.only:
        for block in chosen.blocks:
            rate = measure(name, OBJECTIVES[name], block)
            print(
                f"{rate.name:16} blocks of {rate.block:4}: {rate.examples_per_cpu_second:9,.0f} examples and "
                f"{rate.tokens_per_cpu_second / 1e6:6.1f} million tokens per CPU second"
            )


if __name__ == "__main__":
    main()
