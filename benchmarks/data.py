"""How fast the data are: text to store, and store to finished batches, on one core.

    .venv/bin/python benchmarks/data.py [--quick] [--json FILE] [--text GLOB ...]

Two settings of span corruption: T5's 512/114 with its SentencePiece vocabulary and ByT5's 1024/189 with bytes. The text
is the ELTeC novels of the shared data (SPANLOOM_SHARED), or Python's own documentation where they are absent. CPU
seconds are those of the whole process, all threads; they count what a busy machine does not.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from spanloom.pipeline.data import Dataset, open_data
from spanloom.pipeline.store import Store
from spanloom.settings.model import Model
from spanloom.settings.run import Run
from spanloom.settings.task import PythonDocs, Source, SpanCorruption, Task, TextFiles
from spanloom.settings.vocabulary import Bytes, SentencePiece, Vocabulary

SHARED = Path(os.environ.get("SPANLOOM_SHARED", Path(__file__).parents[2] / "shared"))
TARGET = 25_000
"""Examples a CPU second that issue and README promise from a built store; SeqIO makes 2,000 to 2,750."""


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


def timed(function: Callable[[], object]) -> Spent:
    """Wall and CPU seconds of one call."""
    wall, cpu = time.perf_counter(), time.process_time()
    function()
    return Spent(time.perf_counter() - wall, time.process_time() - cpu)


def measure_build(setting: Setting, source: Source, directory: Path) -> tuple[dict, Dataset]:
    """Builds the store of a setting."""
    run = Run("bench", Task("bench", source, setting.vocabulary, setting.objective), _model())
    opened = []
    spent = timed(lambda: opened.append(open_data(run, directory)))
    store: Store = opened[0].train.store
    megabytes = store.text_bytes / 1e6
    result = {
        "text_mb": megabytes,
        "tokens": store.num_tokens,
        "wall_s": spent.wall,
        "cpu_s": spent.cpu,
        "mb_per_cpu_s": megabytes / spent.cpu,
        "tokens_per_cpu_s": store.num_tokens / spent.cpu,
    }
    return result, opened[0].train


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
        with tempfile.TemporaryDirectory() as directory:
            built, train = measure_build(setting, source, Path(directory))
            made = measure_batches(train, setting, arguments.batch_size, 1.0 if arguments.quick else 5.0)
        results[setting.name] = {"text_to_store": built, "store_to_batch": made}
        print(setting.name)
        print(
            f"  text to store   {built['text_mb']:.1f} MB, {built['tokens']:,} tokens: {built['wall_s']:.2f} s, "
            f"{built['cpu_s']:.2f} CPU s; {built['mb_per_cpu_s']:.1f} MB and {built['tokens_per_cpu_s']:,.0f} tokens "
            "a CPU second"
        )
        print(
            f"  store to batch  {made['examples_per_cpu_s']:,.0f} examples (median "
            f"{made['examples_per_cpu_s_median']:,.0f}) and {made['tokens_per_cpu_s']:,.0f} tokens a CPU second, "
            f"in batches of {made['batch_size']} (aim: {TARGET:,})"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
