"""Hugging Face folders: writing one from a model in memory, and reading one back.

`read_settings` needs no jax and reads no weights but a few rows of the embedding.
"""

import dataclasses
import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import spanloom
from spanloom.conversion import hf_config, hf_files, hf_names, hf_tie, hf_tokenizer, safetensors_file
from spanloom.conversion.errors import ConversionError
from spanloom.conversion.hf_files import WeightTensor
from spanloom.conversion.hf_vocabulary import MARK_NAME, read_vocabulary, resolve
from spanloom.model.sizes import published_name
from spanloom.settings.model import Model
from spanloom.settings.serialize import from_json, to_json
from spanloom.settings.vocabulary import SentencePiece, Vocabulary

if TYPE_CHECKING:  # parameters are jax pytrees
    from spanloom.conversion.trained_model import Lineage, TrainedModel
    from spanloom.model.params import T5

CONFIG_NAME = "config.json"


@dataclass(frozen=True)
class Settings:
    """What a Hugging Face folder says of its model."""

    model: Model
    """Architecture; the tie of the head is decided by the tensors."""
    vocabulary: Vocabulary
    """Vocabulary, its SentencePiece path inside the folder."""
    notes: tuple[str, ...]
    """What a user should know: decisions taken and why."""


@dataclass(frozen=True)
class Imported:
    """A model read from a Hugging Face folder."""

    model: Model
    """Architecture."""
    params: "T5"
    """Weights, NumPy float32."""
    vocabulary: Vocabulary
    """Vocabulary, its SentencePiece path inside the folder."""
    notes: tuple[str, ...]
    """What a user should know: decisions taken and why."""


def read_settings(folder: str | Path) -> Settings:
    """Architecture and vocabulary of a Hugging Face folder.

    Raises ConversionError, naming the file and the fix, where the folder is damaged or not a T5-family model.
    """
    return _read_settings(Path(folder))[0]


def import_hf(folder: str | Path) -> Imported:
    """The model of a Hugging Face folder: config.json, model.safetensors (or its shards) and the tokenizer.

    float16 and bfloat16 weights are widened to float32. Raises ConversionError, naming the file and the tensor, where
    anything is missing, cut short, left over, of another shape than config.json says, NaN or infinite.
    """
    from spanloom.conversion import hf_weights

    folder = Path(folder)
    settings, entries = _read_settings(folder)
    copies = {name for name in hf_names.EMBEDDING_COPIES if name in entries}
    ignored = copies | ({hf_names.HEAD} if settings.model.tie_embeddings else set())
    if not settings.model.tie_embeddings and hf_names.HEAD not in entries:
        entries = entries | {hf_names.HEAD: entries[hf_names.EMBEDDING]}  # decide_tie has said so in its note
    hf_weights.check_entries(entries, settings.model, folder, ignored)
    for name in sorted(copies):
        if not hf_tie.equal(entries[name], entries[hf_names.EMBEDDING]):
            raise ConversionError(
                entries[name].file,
                f"{name} differs from {hf_names.EMBEDDING}: encoder and decoder of a T5 share one embedding",
            )
    params = hf_weights.read_params(entries, settings.model)
    notes = list(settings.notes)
    if low := sorted({entry.dtype for entry in entries.values()} - {"F32", "F64"}):
        notes.append(f"weights stored as {', '.join(low)} were widened to float32")
    return Imported(settings.model, params, settings.vocabulary, tuple(notes))


def _read_settings(folder: Path) -> tuple[Settings, dict[str, WeightTensor]]:
    path = folder / CONFIG_NAME
    config = safetensors_file.read_json(path)
    mark = _mark(folder)
    model = hf_config.from_config(config, path, name=str(mark.get("model") or "custom"))
    entries = hf_files.open_weights(folder)
    if hf_names.EMBEDDING not in entries:
        entries = _embedding_by_other_name(entries, folder)
    hf_names.check_layers(entries, model, path)  # before anything is built: a damaged count may be a billion
    tied, tie_note = hf_tie.decide_tie(entries, model, config, path)
    model = dataclasses.replace(model, tie_embeddings=tied)
    model = dataclasses.replace(model, name=published_name(model))
    found = read_vocabulary(folder, config, entries)
    eos_id = hf_tokenizer.eos_id(found.vocabulary, _spiece_content(found.vocabulary))
    hf_config.check_id(config, path, "eos_token_id", eos_id)
    notes = tuple(note for note in (tie_note, found.note) if note)
    return Settings(model, found.vocabulary, notes), entries


def _embedding_by_other_name(entries: dict[str, WeightTensor], folder: Path) -> dict[str, WeightTensor]:
    for name in hf_names.EMBEDDING_COPIES:
        if name in entries:
            return entries | {hf_names.EMBEDDING: entries[name]}
    raise ConversionError(folder, f"lacks {hf_names.EMBEDDING}: the weights are not those of a T5-family model")


def _mark(folder: Path) -> dict[str, Any]:
    path = folder / MARK_NAME
    return safetensors_file.read_json(path) if path.is_file() else {}


def read_lineage(folder: str | Path) -> "Lineage":
    """Where the model of a folder comes from: what an export of ours says, else only the folder itself."""
    from spanloom.conversion.trained_model import Lineage

    mark = _mark(Path(folder))
    try:
        return Lineage(
            origin=str(mark["origin"]),
            run=None if mark["run"] is None else from_json(mark["run"]),
            step=mark["step"],
            checkpoint=mark.get("checkpoint"),
            losses={name: float(value) for name, value in mark["losses"].items()},
            started_from=mark["started_from"],
            versions={str(name): str(version) for name, version in mark["versions"].items()},
        )
    except (LookupError, TypeError, AttributeError, ValueError):
        return Lineage(origin=str(Path(folder).resolve()))  # no export of ours, or one of another version


def write_folder(folder: Path, source: "TrainedModel", *, name: str, max_shard_bytes: int | None = None) -> None:
    """Write every file of a Hugging Face model into the empty `folder`; `name` is what it will be called."""
    from spanloom.conversion import hf_weights
    from spanloom.conversion.model_card import model_card
    from spanloom.model.params import num_params

    model, vocabulary = source.model, source.vocabulary
    spiece_model = _spiece_content(vocabulary)
    if isinstance(vocabulary, SentencePiece):
        vocabulary = resolve(vocabulary)
    eos_id = hf_tokenizer.eos_id(vocabulary, spiece_model)
    config = hf_config.to_config(model, hf_tokenizer.tokenizer_class(vocabulary), eos_id)
    card = model_card(
        model,
        vocabulary,
        source.lineage,
        folder=name,
        model_type=config["model_type"],
        num_params=num_params(source.params),
    )
    files: dict[str, bytes] = {
        CONFIG_NAME: hf_tokenizer.to_json(config),
        "generation_config.json": hf_tokenizer.to_json(hf_config.generation_config(eos_id)),
        **hf_tokenizer.tokenizer_files(vocabulary, spiece_model, model_type=config["model_type"]),
        "README.md": card.encode("utf-8"),
    }
    for file, content in files.items():
        (folder / file).write_bytes(content)
    hf_weights.write_weights(folder, model, source.params, max_shard_bytes or hf_weights.MAX_SHARD_BYTES)
    written = sorted(path.name for path in folder.iterdir())
    (folder / MARK_NAME).write_bytes(hf_tokenizer.to_json(_describe(source, vocabulary, spiece_model, written)))


def _describe(
    source: "TrainedModel", vocabulary: Vocabulary, spiece_model: bytes | None, files: list[str]
) -> Mapping[str, Any]:
    """What an export says about itself: the sentinel convention and where it comes from."""
    lineage = source.lineage
    if isinstance(vocabulary, SentencePiece):
        vocabulary = dataclasses.replace(vocabulary, path=hf_tokenizer.SPIECE_NAME)
    return {
        "format": 1,
        "spanloom": spanloom.__version__,
        "model": source.model.name,
        "vocabulary": to_json(vocabulary),
        "spiece_sha256": None if spiece_model is None else hashlib.sha256(spiece_model).hexdigest(),
        "origin": lineage.origin,
        "step": lineage.step,
        "checkpoint": lineage.checkpoint,
        # JSON has no NaN
        "losses": {name: value if math.isfinite(value) else str(value) for name, value in lineage.losses.items()},
        "started_from": lineage.started_from,
        "run": None if lineage.run is None else to_json(lineage.run),
        "versions": lineage.versions,
        "files": files,
    }


def _spiece_content(vocabulary: Vocabulary) -> bytes | None:
    if not isinstance(vocabulary, SentencePiece):
        return None
    try:
        return Path(vocabulary.path).read_bytes()
    except OSError as error:
        raise ConversionError(vocabulary.path, f"the SentencePiece model cannot be read ({error.strerror})") from error
