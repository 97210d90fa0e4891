"""A checkpoint of a run as the source of a conversion: its weights are read layer by layer."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spanloom.conversion.stored import Stored
from spanloom.conversion.stored_model import Memory, Slot, StoredModel
from spanloom.conversion.stored_weights import stacked_weight
from spanloom.conversion.t5x_orbax import read_arrays
from spanloom.model.params import declare, flatten
from spanloom.optim.adafactor import SLOTS, factoring
from spanloom.settings.optimizer import Adafactor
from spanloom.settings.run import Run
from spanloom.settings.run_layout import ARRAYS
from spanloom.training.ancestry import lineage_of
from spanloom.training.checkpoint_paths import check_intact, damaged
from spanloom.training.checkpoints import AVERAGED, OPTIMIZER, PARAMS
from spanloom.training.facts import read_facts_and_arrays, vocabulary_inside

_COUNT = "count"


def stored_checkpoint(path: Path) -> StoredModel:
    """The model of the checkpoint directory `path`: its averaged weights, where the optimizer keeps any.

    Every file is read first, to see that it is what was written. Raises CheckpointError, naming the damaged one.
    """
    facts, arrays = read_facts_and_arrays(path)
    check_intact(path)
    item = AVERAGED if AVERAGED in arrays else PARAMS
    found = _arrays(path, item, arrays[item])
    weights = {name: stacked_weight(name, found[name]) for name in flatten(declare(facts.run.model))}
    return StoredModel(
        facts.run.model,
        weights,
        vocabulary_inside(path, facts.run),
        lineage_of(path, facts),
        path,
        _memory(path, facts.run, arrays[OPTIMIZER]) if item == PARAMS else None,
    )


def _arrays(path: Path, item: str, entries: Mapping[str, Any]) -> dict[str, Stored]:
    """Arrays of an item, each as the checkpoint says that it is."""
    found = {name: array for name, array in read_arrays(path / ARRAYS / item).items() if name in entries}
    for name, entry in entries.items():
        if name not in found or found[name].shape != tuple(entry["shape"]):
            raise damaged(path, f"{path / ARRAYS / item} has no {name} of shape {tuple(entry['shape'])}")
    return found


def _memory(path: Path, run: Run, entries: Mapping[str, Any]) -> Memory | None:
    """What Adafactor had in memory; None of another optimizer, and of weights that it rounds."""
    settings = run.optimizer
    if not isinstance(settings, Adafactor) or run.weights.dtype != "float32":
        return None
    found = _arrays(path, OPTIMIZER, entries)
    slots: dict[str, dict[str, Slot]] = {slot: {} for slot in SLOTS}
    for name, spec in flatten(declare(run.model)).items():
        how = factoring(settings, spec, name)
        averaged = {"v_row": how.columns, "v_col": how.rows}
        for slot in SLOTS:
            if (key := f"{slot}/{name}") in found:
                axes = tuple(axis for at, axis in enumerate(spec.axes) if at not in averaged.get(slot, ()))
                slots[slot][name] = Slot(axes, stacked_weight(name, found[key]))
    return Memory(int(found[_COUNT].read()), settings.factor_rules, slots)
