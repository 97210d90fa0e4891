"""Data sets in a folder: each as `datasets` saved it, or as files by the names of its splits."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from spanloom.settings.row_sources import HuggingFaceDataset, RowFiles, RowSource, SeqioCaches
from spanloom.settings.serialize import SettingsError
from spanloom.tasks.split_slices import saved_split

_FILE = re.compile(r"([A-Za-z]+(?:_r\d)?)(?:[-_.].*)?\.(?:jsonl|json|ndjson|csv|tsv|parquet)(?:\.(?:gz|zst|bz2|xz))?")
_HELDOUT = ("validation", "dev", "valid", "val")
_SPLITS = ("train", *_HELDOUT, "test")


def data_set_in(
    folder: Path, name: tuple[str, str | None], round: str | None = None, *, judged: bool = False
) -> RowSource | None:
    """The rows of a data set: of folder/dataset/subset or folder/dataset_subset; None where it is not there.

    Raises SettingsError where what `datasets` saved is damaged.

    `round`: r1 where its splits are called train_r1, dev_r1 and so on.
    """
    for place in _places(folder, name):
        if place.is_dir() and (source := source_of(place, round, judged=judged)) is not None:
            return source
    return None


def source_of(place: Path, round: str | None = None, *, judged: bool = False) -> RowSource | None:
    """The rows of one folder: train to train on, and validation (dev) held out; None where there is no train.

    `judged`: nothing is learnt from them, so that another split may stand in for train; where there is but one, all of
    it is held out.
    """
    saved = _saved_splits(place)
    files = {} if saved else _split_files(place)
    names = _of_round(saved or list(files), round)
    if not names:
        return None
    heldout = next((names[split] for split in _HELDOUT if split in names), None)
    others = [found for split, found in names.items() if found != heldout]
    train = names.get("train") or next(iter(others), None)
    if "train" not in names and not judged:
        return None
    if train is None or (len(names) == 1 and "train" not in names):
        only = heldout or train
        return HuggingFaceDataset(str(place), split=f"{only}[:1]", heldout_split=only)
    if saved:
        return HuggingFaceDataset(str(place), split=train, heldout_split=heldout)
    return RowFiles(tuple(files[train]), tuple(files[heldout]) if heldout else ())


def cached_task_in(folder: Path, name: str) -> SeqioCaches | None:
    """A task of P3, or any that SeqIO cached: folder/name or folder/data/name; None where it is not there."""
    for place in (folder / name, folder / "data" / name):
        if (place / "COMPLETED").is_file():
            heldout = next((split for split in (*_HELDOUT, "test") if (place / f"info.{split}.json").is_file()), None)
            return SeqioCaches((str(place),), heldout_split=heldout)
    return None


def _places(folder: Path, name: tuple[str, str | None]) -> Iterator[Path]:
    dataset, subset = name
    if subset is None:
        yield folder / dataset
        yield folder / dataset.replace("/", "_")
        return
    yield folder / dataset / subset
    yield folder / f"{dataset.replace('/', '_')}_{subset}"


def _saved_splits(place: Path) -> list[str]:
    """Splits of what save_to_disk wrote; none where it did not. Raises SettingsError where that is damaged."""
    for file, key in (("dataset_dict.json", "splits"), ("state.json", "_split")):
        if (place / file).is_file():
            try:
                found = json.loads((place / file).read_text(encoding="utf-8"))[key]
            except (OSError, ValueError, LookupError, TypeError) as error:
                fix = "save the data set again"
                raise SettingsError(f"{place / file} is damaged ({type(error).__name__}: {error}): {fix}") from error
            return list(map(str, found)) if isinstance(found, list) else [saved_split(str(found or ""))]
    return []


def _split_files(place: Path) -> dict[str, list[str]]:
    """Files of each split, by names such as train.jsonl, validation-00000-of-00002.parquet and dev_r1.jsonl.gz."""
    found: dict[str, list[str]] = {}
    for path in sorted(place.iterdir()):
        match = _FILE.fullmatch(path.name)
        if match and match[1].partition("_r")[0] in _SPLITS:
            found.setdefault(match[1], []).append(str(path))
    return found


def _of_round(splits: list[str], round: str | None) -> dict[str, str]:
    """The splits of a round (or without one) by the name that they have without it."""
    ending = f"_{round}" if round else ""
    whole = {split.removesuffix(ending): split for split in splits if split.endswith(ending)}
    return {name: split for name, split in whole.items() if name in _SPLITS}
