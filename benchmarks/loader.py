"""What a loader costs beside CPU time: memory of its own, time to go on at a far position, time that training waits.

    .venv/bin/python benchmarks/loader.py [--sizes 0.1 1 10] [--json FILE]

Memory: a process opens a store and makes batches from all over it; what counts is its anonymous memory (RssAnon) beyond
that of a process that imports the same and opens nothing. Pages of the store's files are the system's, which takes them
back at will. The larger stores have the shards of the smallest many times, as links: their bytes lie on disk once, and
are mapped and read as if they were many. Kinds: span corruption of one stream, each line by itself (merge=false), and
pairs, packed.

Far positions: CPU and wall seconds until the first batch at example 10 and at example 1,000,000,000.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from spanloom.pipeline.data import Data, data_of, open_data
from spanloom.pipeline.meta import read_meta, total_counts, write_meta
from spanloom.pipeline.store import open_store
from spanloom.settings.model import Model
from spanloom.settings.objectives import SpanCorruption, Supervised
from spanloom.settings.packing import Packed, Packing, Unpacked
from spanloom.settings.run import Run
from spanloom.settings.task import PairFiles, Source, Task, TextFiles
from spanloom.vocabularies.build import build

LIMIT = 150
"""MB of a loader's own memory that the project promises, at most."""
FAR = 10**9
BATCH = 128
MODEL = Model(384, d_model=8, d_ff=8, num_heads=1, d_kv=8, num_encoder_layers=1, num_decoder_layers=1)
KINDS = ("text", "lines", "packed pairs")


def run_of(kind: str, file: str) -> Run:
    """A run on the made-up file of its kind."""
    source: Source = TextFiles((file,), heldout_share=0)
    objective: SpanCorruption | Supervised = SpanCorruption(1024, merge=kind == "text", mean_span_length=20.0)
    packing: Packing = Unpacked()
    if kind == "packed pairs":
        source, objective, packing = PairFiles((file,), heldout_share=0), Supervised(), Packed(1024, 256)
    return Run("bench", Task(kind, source, objective=objective), MODEL, packing=packing, steps=1, batch_size=BATCH)


def write_file(kind: str, path: Path, megabytes: float) -> None:
    """Lines of 80 bytes, or pairs of 180 and 15."""
    with path.open("w") as file:
        if kind == "packed pairs":
            file.write("inputs\ttargets\n")
        line = f"{'in' * 90}\t{'target of 15 b.'}\n" if kind == "packed pairs" else "a line of text, " * 5 + "\n"
        for _ in range(int(megabytes * 1e6 / 2 / len(line))):  # two bytes an id
            file.write(line)


def multiplied(small: Path, large: Path, times: int) -> None:
    """A store with the shards of another so many times."""
    large.mkdir(parents=True)
    meta = read_meta(small)
    shards = []
    for copy in range(times):
        for shard in meta["shards"]:
            name = f"{copy}-{shard['file']}"
            os.link(small / shard["file"], large / name)
            shards.append({**shard, "file": name})
    write_meta(large, {**meta, "shards": shards, "counts": total_counts(shards, meta["fingerprint"]["columns"])})


def anonymous_mb() -> float:
    """This process's own memory, in MB."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon")) * 1024 / 1e6


def read(kind: str, file: str, store: str) -> None:
    """In a process of its own: reads from all over a store, and prints what that took as JSON."""
    bare = anonymous_mb()
    run = run_of(kind, file)
    data = data_of(run, {kind: {"train": open_store(Path(store))}}, build(run.vocabulary))
    peak = 0.0
    for part in range(40):
        take(data, part * data.train.num_examples // 40)
        peak = max(peak, anonymous_mb())
    print(json.dumps({"bare_mb": bare, "more_mb": peak - bare, "examples": data.train.num_examples}))


def take(data: Data, example: int) -> None:
    """The batch at about an example."""
    position = {"examples": example} if "examples" in data.train.start else {"window": example // 4096, "row": 0}
    data.train.take(position, BATCH)


def begin(kind: str, file: str, store: str, example: str) -> None:
    """In a process of its own: the time until the first batch at an example, after the imports."""
    run = run_of(kind, file)
    cpu, wall = time.process_time(), time.perf_counter()
    data = data_of(run, {kind: {"train": open_store(Path(store))}}, build(run.vocabulary))
    take(data, int(example))
    print(json.dumps({"cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall}))


def in_its_own(function: str, *words: str) -> dict[str, float]:
    """What a process of its own prints."""
    code = f"import sys, loader; loader.{function}(*sys.argv[1:])"
    place = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run(
        [sys.executable, "-c", code, *words], stdout=subprocess.PIPE, text=True, check=True, env=place
    )
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def measure(kind: str, sizes: list[float], folder: Path) -> dict[str, dict]:
    """Figures of one kind of data."""
    file, results = folder / (f"{kind}.tsv" if "pairs" in kind else f"{kind}.txt"), {}
    write_file(kind, file, sizes[0] * 1000)
    open_data(run_of(kind, str(file)), folder / "run", warn=lambda _: None)
    small = folder / "run" / "stores" / kind / "train"
    for size in sizes:
        store = folder / f"{kind} {size:g}"
        multiplied(small, store, round(size / sizes[0]))
        found = in_its_own("read", kind, str(file), str(store))
        results[f"{size:g} GB"] = found
        print(f"{kind}, {size:g} GB: {found['more_mb']:.0f} MB beyond {found['bare_mb']:.0f} MB of imports", flush=True)
    for example in (10, FAR):
        found = in_its_own("begin", kind, str(file), str(store), str(example))
        results[f"example {example}"] = found
        print(f"{kind}, first batch at example {example:,}: {found['cpu_s']:.2f} CPU s, {found['wall_s']:.2f} s")
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", type=float, default=[0.1, 1.0, 10.0], help="GB of store, the least first")
    parser.add_argument("--json", type=Path, help="also write the figures there")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = {kind: measure(kind, asked.sizes, Path(folder)) for kind in KINDS}
    most = max(row["more_mb"] for rows in results.values() for row in rows.values() if "more_mb" in row)
    print(f"at most {most:.0f} MB of a loader's own memory (promised: {LIMIT})")
    if asked.json:
        asked.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
