"""How fast the data are: text to store, and store to finished batches, on one core.

    .venv/bin/python benchmarks/data.py [--quick] [--json FILE] [--text GLOB ...]

Two settings of span corruption: T5's 512/114 with its SentencePiece vocabulary and ByT5's 1024/189 with bytes. The text
is the ELTeC novels of the shared data (SPANLOOM_SHARED), or Python's own documentation where they are absent: as it
comes (JSON lines in gzip, a novel each), and as plain documents of 3 kB and single lines of 80 characters, with and
without a held-out part. CPU seconds are those of the whole process, all threads; they count what a busy machine does
not. The best of three builds counts, since other work disturbs.
"""

import argparse
import functools
import json
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from spanloom.pipeline.data import Data, open_data
from spanloom.pipeline.dataset import Dataset
from spanloom.settings.model import Model
from spanloom.settings.objectives import SpanCorruption
from spanloom.settings.run import Run
from spanloom.settings.task import PythonDocs, Source, Task, TextFiles
from spanloom.settings.vocabulary import Bytes, SentencePiece, Vocabulary
from spanloom.tasks.read_report import ReadReport
from spanloom.tasks.sources import read_examples

SHARED = Path(os.environ.get("SPANLOOM_SHARED", Path(__file__).parents[2] / "shared"))
TARGET = 25_000
"""Examples a CPU second that issue and README promise from a built store; SeqIO makes 2,000 to 2,750."""
BYTES_TARGET = 150
"""Megabytes a CPU second from text to a store of bytes, of documents of 3 kB and more."""
TOKENS_TARGET = 4e6
"""Tokens a CPU second from text to a store, with T5's SentencePiece vocabulary."""


@dataclass(frozen=True)
class Setting:
    """One pretraining set-up."""

    name: str
    vocabulary: Vocabulary
    objective: SpanCorruption


def settings() -> Iterator[Setting]:
    """The set-ups whose vocabularies are at hand."""
    model = SHARED / "data" / "tokenizers" / "t5" / "spiece.model"
    if model.exists():
        yield Setting("T5 512/114", SentencePiece(str(model)), SpanCorruption(512, 0.15, 3.0))
    yield Setting("ByT5 1024/189", Bytes(), SpanCorruption(1024, 0.15, 20.0))


def source_of(patterns: list[str], quick: bool) -> Source:
    """Text files as asked for, the shared novels (one language if quick), or Python's documentation."""
    if patterns:
        return TextFiles(files=tuple(patterns), heldout_share=0)
    novels = sorted((SHARED / "data" / "corpora" / "eltec").glob("*.jsonl.gz"))
    if novels:
        return TextFiles(files=tuple(map(str, novels[-1:] if quick else novels)), heldout_share=0)
    return PythonDocs(heldout_share=0)


@dataclass(frozen=True)
class Spent:
    """Time that something took."""

    wall: float
    cpu: float


def timed(function: Callable[[], Data]) -> tuple[Spent, Data]:
    """Wall and CPU seconds of one call, and what it returns."""
    wall, cpu = time.perf_counter(), time.process_time()
    data = function()
    return Spent(time.perf_counter() - wall, time.process_time() - cpu), data


def documents_of(texts: Iterable[str], characters: int, path: Path) -> TextFiles:
    """A plain file of documents of so many characters, one a line."""
    with path.open("w", encoding="utf-8") as file:
        for text in texts:
            words = " ".join(text.split())
            file.writelines(words[i : i + characters] + "\n" for i in range(0, len(words), characters))
    return TextFiles(files=(str(path),), heldout_share=0)


def forms(source: Source, folder: Path) -> Iterator[tuple[str, Source]]:
    """The same text as it comes, and as plain documents of two lengths, each of these with a held-out part, too."""
    yield "as it comes", source
    texts = [example["text"] for example in read_examples(source, "train", ReadReport())]
    for name, characters in (("documents of 3 kB", 3000), ("single lines", 80)):
        plain = documents_of(texts, characters, folder / f"{characters}.txt")
        yield name, plain
        yield f"{name}, 1 % held out", replace(plain, heldout_share=0.01)


def measure_build(setting: Setting, source: Source, directory: Path, times: int = 3) -> tuple[dict, Dataset]:
    """Builds the stores of a setting some times; the best counts."""
    run = Run("bench", Task("bench", source, setting.vocabulary, setting.objective), _model())
    opened: list[Data] = []
    best = Spent(math.inf, math.inf)
    for number in range(times):
        spent, data = timed(functools.partial(open_data, run, directory / str(number), warn=lambda _: None))
        opened.append(data)
        best = min(best, spent, key=lambda spent: spent.cpu)
    (task,) = opened[0].tasks
    stores = [part.store for part in (task.train, task.heldout) if part is not None]
    megabytes = sum(store.text_bytes for store in stores) / 1e6
    tokens = sum(store.num_tokens for store in stores)
    result = {
        "text_mb": megabytes,
        "tokens": tokens,
        "wall_s": best.wall,
        "cpu_s": best.cpu,
        "mb_per_cpu_s": megabytes / best.cpu,
        "tokens_per_cpu_s": tokens / best.cpu,
    }
    return result, task.train


def measure_batches(train: Dataset, setting: Setting, batch_size: int, seconds: float) -> dict:
    """Makes batches in training order until the time is up; the best of five parts, since other work disturbs."""
    train.batch(0, batch_size)
    position, parts = 0, []
    for _ in range(5):
        first, wall, cpu = position, time.perf_counter(), time.process_time()
        while time.perf_counter() - wall < seconds / 5:
            train.batch(position, batch_size)
            position += batch_size
        parts.append((position - first) / (time.process_time() - cpu))
    raw_length = len(train.raw(0))
    return {
        "batch_size": batch_size,
        "examples": position,
        "examples_per_cpu_s": max(parts),
        "examples_per_cpu_s_median": sorted(parts)[2],
        "tokens_per_cpu_s": max(parts) * raw_length,
    }


def _model() -> Model:
    return Model(32128, d_model=8, d_ff=8, num_heads=1, d_kv=8, num_encoder_layers=1, num_decoder_layers=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a sixth of the text, a second a measurement")
    parser.add_argument("--text", nargs="*", default=[], help="text files or globs")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--json", type=Path, help="also write the figures there")
    arguments = parser.parse_args()
    source = source_of(arguments.text, arguments.quick)
    results = {}
    for setting in settings():
        print(f"{setting.name}, text to store (aims: bytes {BYTES_TARGET} MB, T5 {TOKENS_TARGET:,.0f} tokens)")
        builds: dict[str, dict] = {}
        trains: list[Dataset] = []
        with tempfile.TemporaryDirectory() as directory:
            for name, form in forms(source, Path(directory)):
                built, opened = measure_build(setting, form, Path(directory) / name, 1 if arguments.quick else 3)
                trains.append(opened)
                builds[name] = built
                print(
                    f"  {name:<32}{built['text_mb']:6.1f} MB, {built['tokens']:>11,} tokens: {built['wall_s']:5.2f} s, "
                    f"{built['cpu_s']:5.2f} CPU s; {built['mb_per_cpu_s']:5.0f} MB and "
                    f"{built['tokens_per_cpu_s']:>11,.0f} tokens a CPU second"
                )
            made = measure_batches(trains[0], setting, arguments.batch_size, 1.0 if arguments.quick else 5.0)
        results[setting.name] = {"text_to_store": builds, "store_to_batch": made}
        print(
            f"  store to batch  {made['examples_per_cpu_s']:,.0f} examples (median "
            f"{made['examples_per_cpu_s_median']:,.0f}) and {made['tokens_per_cpu_s']:,.0f} tokens a CPU second, "
            f"in batches of {made['batch_size']} (aim: {TARGET:,})"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
