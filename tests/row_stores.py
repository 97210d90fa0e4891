"""Stores of tasks with preprocessors, for tests."""

from pathlib import Path

from spanloom.pipeline.store import open_or_build_all
from spanloom.settings.objectives import Supervised
from spanloom.settings.task import PairFiles, Task
from spanloom.settings.vocabulary import Bytes
from spanloom.vocabularies.build import build

BYTES = build(Bytes())


def write_pairs(folder: Path) -> str:
    """300 pairs."""
    path = folder / "pairs.tsv"
    path.write_text("inputs\ttargets\n" + "".join(f"in {i} é{i % 7}\tout {i}\n" for i in range(300)))
    return str(path)


def task_of(path, *preprocessors, share=0.1, **more):
    more = {"objective": Supervised(), **more}
    return Task("p", PairFiles((path,), heldout_share=share), preprocessors=preprocessors, **more)


def build_stores(task, place, said=None, **more):
    places = {"train": place / "train"} | ({"heldout": place / "heldout"} if task.source.heldout_share else {})
    more = {"shard_bytes": 2000, **more}
    return open_or_build_all(task, places, BYTES, warn=(said if said is not None else []).append, **more)


def rows(store, name):
    return [BYTES.decode(store.columns[name].row(i)) for i in range(store.num_rows)]


def contents(place):
    """Every file of a store."""
    return {path.name: path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file()}
