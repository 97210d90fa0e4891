"""What a checkpoint says of itself: its checkpoint.json and the vocabulary beside it. Reads no arrays and no JAX."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spanloom.pipeline.eras import Resumption, from_data
from spanloom.settings import vocabulary as vocabulary_settings
from spanloom.settings.packing import Packed
from spanloom.settings.run import Run
from spanloom.settings.run_layout import CHECKPOINTS, FACTS, VOCABULARY
from spanloom.settings.serialize import SettingsError, from_json, to_json
from spanloom.training.checkpoint_paths import CheckpointError, damaged, heldout_loss
from spanloom.vocabularies.build import build as build_vocabulary
from spanloom.vocabularies.vocabulary import Vocabulary, VocabularyError

FORMAT = 1
_NEEDED = {"run": dict, "machine": dict, "step": int, "position": dict, "arrays": dict}
_LOSS = float | int | None
_OTHERS: dict[str, Any] = {
    "content": dict,
    "eras": list,
    "loss": _LOSS,
    "heldout_loss": _LOSS,
    "started_from": str | None,
    "streams": dict,
    "origin": dict,
    "patience": dict,
    "skipped": dict,
    "moved_rows": dict,
}


@dataclass(frozen=True)
class Facts:
    """Everything of a checkpoint but its arrays."""

    step: int
    """Updates done."""
    position: dict[str, int]
    """Where in the data the run stands: `examples`, how many were taken; of packed rows `window` and `row`."""
    run: Run
    """The run, resolved."""
    machine: dict[str, Any]
    """Versions, devices and CPU count that wrote it."""
    loss: float | None = None
    """Training loss of the last step; None if it was no number and the update was left out."""
    heldout_loss: float | None = None
    """Held-out cross-entropy per target token, if it was measured at this very step: the mean of the tasks learnt, or
    that of the run's checkpoint.best_task."""
    started_from: str | None = None
    """The checkpoint or folder whose weights the run began with."""
    eras: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    """How tasks were drawn, as JSON data of `spanloom.pipeline.eras`; empty: as the run has it."""
    content: dict[str, str] = dataclasses.field(default_factory=dict)
    """Hashes of what was learnt from, as `spanloom.pipeline.data.Data.content` has them; empty: not known."""
    streams: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Where streams stand from which the run goes on, by task, as `spanloom.pipeline.spool.needed.standings` has it."""
    origin: dict[str, int] = dataclasses.field(default_factory=dict)
    """What the run counts on from, as `spanloom.training.origin.Origin` has it; empty: from 0."""
    patience: dict[str, Any] = dataclasses.field(default_factory=dict)
    """What an early stop goes by, as `spanloom.training.patience.Patience` has it."""
    skipped: dict[str, int] = dataclasses.field(default_factory=dict)
    """Updates that were left out, as `spanloom.training.skipped.Skipped` has it."""
    moved_rows: dict[str, int] = dataclasses.field(default_factory=dict)
    """Where it began with another vocabulary than it has: how many rows were copied and made of others, as
    `spanloom.vocabularies.correspondence.Correspondence.counts` has it."""

    @property
    def resumption(self) -> Resumption:
        """Where in its data the run goes on."""
        return Resumption(from_data(self.eras), self.position, self.streams)


def read_facts(path: Path) -> Facts:
    """Step, position, run and so on of the checkpoint directory `path`, without its arrays.

    Raises CheckpointError, naming the intact checkpoint before it, if they are missing or not what was written.
    """
    return read_facts_and_arrays(path)[0]


def read_facts_and_arrays(path: Path) -> tuple[Facts, dict[str, Any]]:
    """Likewise, with shape and dtype of each array by name, under "params", "optimizer" and perhaps "averaged"."""
    if not (path / FACTS).is_file():  # a link to a device has no end
        raise damaged(path, f"{path / FACTS} is missing")
    try:
        whole = json.loads((path / FACTS).read_text())
    except OSError as error:
        raise damaged(path, f"{path / FACTS} cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError):
        raise damaged(path, f"{path / FACTS} is not valid JSON") from None
    if not isinstance(whole, dict) or "format" not in whole:
        raise damaged(path, f"{path / FACTS} is not what was written: it names no format")
    if whole["format"] != FORMAT:
        machine = whole["machine"] if isinstance(whole.get("machine"), dict) else {}
        raise CheckpointError(
            f"{path} is in checkpoint format {whole['format']}, and this version of Spanloom reads {FORMAT}: "
            f"use the version that wrote it ({machine.get('spanloom', 'unknown')})"
        )
    for name, kind in (_NEEDED | {name: kind for name, kind in _OTHERS.items() if name in whole}).items():
        if not isinstance(whole.get(name), kind):
            raise damaged(path, f"{path / FACTS} is not what was written: {name} is missing or of another kind")
    if path.parent.name == CHECKPOINTS and path.name.isdecimal() and path.name != str(whole["step"]):
        raise damaged(path, f"{path / FACTS} is that of step {whole['step']} (was the folder renamed?)")
    try:
        run = from_json(whole["run"])
    except SettingsError as error:
        raise CheckpointError(
            f"{path / FACTS}: the run in it was written by Spanloom {whole['machine'].get('spanloom')} and cannot be "
            f"read here: {error}"
        ) from error
    _check_place(path, whole, run)
    fields = {f.name: whole[f.name] for f in dataclasses.fields(Facts) if f.name != "run" and f.name in whole}
    if fields.get("heldout_loss") is None:
        fields["heldout_loss"] = heldout_loss(path)
    return Facts(run=run, **fields), whole["arrays"]


def _check_place(path: Path, whole: Mapping[str, Any], run: Run) -> None:
    """Raises CheckpointError for a position, or for eras, that nobody wrote."""
    wanted, position = ("window", "row") if isinstance(run.packing, Packed) else ("examples",), whole["position"]
    if {*position} != {*wanted} or not all(type(value) is int for value in position.values()):
        raise damaged(path, f"{path / FACTS} is not what was written: position has no {' and '.join(wanted)}")
    try:
        from_data(whole.get("eras", []))
    except (ValueError, TypeError, KeyError, AttributeError):
        raise damaged(path, f"{path / FACTS} is not what was written: eras are none") from None


def vocabulary_inside(path: Path, run: Run) -> vocabulary_settings.Vocabulary:
    """The vocabulary's settings, pointing at the files inside the checkpoint."""
    settings = run.vocabulary
    if isinstance(settings, vocabulary_settings.SentencePiece):
        files = sorted((path / VOCABULARY).iterdir()) if (path / VOCABULARY).is_dir() else []
        if len(files) != 1:
            raise damaged(path, f"{path / VOCABULARY} must hold one SentencePiece model, not {len(files)} files")
        return dataclasses.replace(settings, path=str(files[0]))
    return settings


def vocabulary_of(path: Path, facts: Facts) -> Vocabulary:
    """The vocabulary built from the files inside the checkpoint. Raises CheckpointError if they are damaged."""
    settings = vocabulary_inside(path, facts.run)
    if not isinstance(settings, vocabulary_settings.SentencePiece):
        return build_vocabulary(settings)
    try:
        vocabulary = build_vocabulary(settings)
    except VocabularyError as error:
        raise damaged(path, str(error)) from None
    if vocabulary.fingerprint() != facts.content.get("vocabulary", vocabulary.fingerprint()):
        raise damaged(path, f"{settings.path} is not the vocabulary that was written")
    return vocabulary


def to_data(facts: Facts, arrays: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The facts, and shape and dtype of the arrays (`item -> name -> array`), as JSON data."""
    whole = {f.name: getattr(facts, f.name) for f in dataclasses.fields(facts)}
    entries = {item: {name: array_entry(leaf) for name, leaf in flat.items()} for item, flat in arrays.items()}
    return {"format": FORMAT, **whole, "run": to_json(facts.run), "arrays": entries}


def array_entry(leaf: Any) -> dict[str, Any]:
    """Shape and dtype of an array as JSON data."""
    return {"shape": list(leaf.shape), "dtype": str(leaf.dtype)}
