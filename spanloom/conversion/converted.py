"""A model that came from elsewhere, as Spanloom keeps it: weights, optimizer's memory and vocabulary in one directory.

    DST/model.json          architecture, arrays, and what the optimizer was
    DST/spanloom.json       vocabulary, sentinels and lineage, as every export has it
    DST/arrays/params/      the weights, as in a run's checkpoint
    DST/arrays/optimizer/   Adafactor's memory, where the source had any
    DST/spiece.model        the vocabulary, unless it is bytes

It is no checkpoint of a run, which nobody made: it has no data, no position and no settings of training.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import spanloom
from spanloom.conversion import orbax_write, t5x_orbax
from spanloom.conversion.convert import Output
from spanloom.conversion.errors import ConversionError
from spanloom.conversion.hf_tokenizer import SPIECE_NAME
from spanloom.conversion.hf_vocabulary import MARK_NAME, resolve
from spanloom.conversion.huggingface import read_lineage, spiece_content, write_mark
from spanloom.conversion.safetensors_file import read_json
from spanloom.conversion.stored import Stored
from spanloom.conversion.stored_model import Memory, Slot, StoredModel
from spanloom.conversion.stored_weights import stacked_weight
from spanloom.conversion.t5x_places import Layout
from spanloom.conversion.t5x_vocabulary import recorded
from spanloom.model.params import declare, flatten
from spanloom.optim.adafactor import SLOTS
from spanloom.settings.model import Model
from spanloom.settings.run_layout import ARRAYS, CONVERTED
from spanloom.settings.serialize import SettingsError, from_json, to_json
from spanloom.settings.vocabulary import SentencePiece

FORMAT = 1
PARAMS, OPTIMIZER = "params", "optimizer"
_RULES = ("heuristic", "logical", "mixed")


def write_converted(folder: Path, source: StoredModel, output: Output, manifest: str) -> tuple[str, ...]:
    """Write the model into the empty `folder`, all but `manifest`, the list of its files. Gives what the user should
    know."""
    vocabulary, memory = source.vocabulary, source.memory
    if isinstance(vocabulary, SentencePiece):
        vocabulary = resolve(vocabulary)
        (folder / SPIECE_NAME).write_bytes(spiece_content(vocabulary) or b"")
    orbax_write.write_arrays(folder / ARRAYS / PARAMS, source.weights, output.dtype, output.done)
    if memory is not None:
        orbax_write.write_arrays(folder / ARRAYS / OPTIMIZER, memory.weights, "float32", lambda count: None)
    axes = {} if memory is None else {slot: {n: s.axes for n, s in own.items()} for slot, own in memory.slots.items()}
    whole = {
        "format": FORMAT,
        "spanloom": spanloom.__version__,
        "model": to_json(source.model),
        "step": memory.count if memory else source.lineage.step or 0,
        "optimizer": None if memory is None else {"rules": memory.rules, "axes": axes},
        "t5x_layout": None if source.layout is None else asdict(source.layout),
    }
    (folder / CONVERTED).write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    write_mark(folder, source, vocabulary, [manifest])
    return ()


def open_converted(folder: Path) -> StoredModel:
    """What `write_converted` wrote, its weights unread.

    Raises ConversionError, naming the file, where one is missing, damaged or of another version.
    """
    path = folder / CONVERTED
    whole: dict[str, Any] = read_json(path)
    if whole.get("format") != FORMAT:
        raise ConversionError(path, f"is in format {whole.get('format')}; this version of Spanloom reads {FORMAT}")
    try:
        model: Model = from_json(whole.get("model"), Model)
        specs = flatten(declare(model))
        layout = whole["t5x_layout"] and Layout(**_table(whole["t5x_layout"]))
        optimizer = whole["optimizer"] and _table(whole["optimizer"])
        step = whole["step"]
        if type(step) is not int or not 0 <= step < 2**31 or (optimizer and optimizer["rules"] not in _RULES):
            raise ValueError("step or rules")
    except (SettingsError, ValueError, LookupError, TypeError) as error:
        raise ConversionError(path, f"is not what was written ({error}): copy the folder again") from error
    arrays = t5x_orbax.read_arrays(folder / ARRAYS / PARAMS)
    shapes = {name: spec.shape for name, spec in specs.items()}
    _refuse_others(folder / ARRAYS / PARAMS, arrays, shapes)
    weights = {name: stacked_weight(name, arrays[name]) for name in specs}
    vocabulary = recorded(folder / MARK_NAME, model.vocab_size)
    memory = None if not optimizer else _memory(folder, model, optimizer, step)
    return StoredModel(model, weights, vocabulary, read_lineage(folder), folder, memory, layout or None)


def _memory(folder: Path, model: Model, optimizer: Mapping[str, Any], step: int) -> Memory:
    place, specs = folder / ARRAYS / OPTIMIZER, flatten(declare(model))
    try:
        axes = {
            (slot, name): tuple(map(str, optimizer["axes"][slot][name]))
            for slot in SLOTS
            for name in optimizer["axes"][slot]
        }
        shapes = {
            f"{slot}/{name}": tuple(dict(zip(specs[name].axes, specs[name].shape, strict=True))[axis] for axis in own)
            for (slot, name), own in axes.items()
        }
    except (LookupError, TypeError) as error:
        raise ConversionError(folder / CONVERTED, f"names slots that no parameter has ({error})") from error
    arrays = t5x_orbax.read_arrays(place)
    _refuse_others(place, arrays, shapes)
    slots: dict[str, dict[str, Slot]] = {slot: {} for slot in SLOTS}
    for (slot, name), own in axes.items():
        slots[slot][name] = Slot(own, stacked_weight(name, arrays[f"{slot}/{name}"]))
    return Memory(step, optimizer["rules"], slots)


def _refuse_others(place: Path, arrays: Mapping[str, Stored], shapes: Mapping[str, tuple[int, ...]]) -> None:
    found = {name: array.shape for name, array in arrays.items()}
    if found != shapes:
        wrong = min(name for name in found.keys() | shapes.keys() if found.get(name) != shapes.get(name))
        there, wanted = found.get(wrong, "absent"), shapes.get(wrong, "none")
        raise ConversionError(place, f"{wrong} is {there}, and {CONVERTED} calls for {wanted}: copy the folder again")


def _table(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{str(value)[:40]} in place of a table")
    return value
