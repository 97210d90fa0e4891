"""Hugging Face folders: writing one from a model in memory, and reading one back.

`read_settings` needs no jax and reads no weights but a few rows of the embedding.
"""

import dataclasses
import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

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
    from spanloom.conversion.stored_model import StoredModel
    from spanloom.conversion.trained_model import Lineage
    from spanloom.conversion.weights import Dtype, Weights
    from spanloom.model.params import T5

CONFIG_NAME = "config.json"
Value = TypeVar("Value")


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
class Opened:
    """A Hugging Face folder whose every tensor is accounted for."""

    settings: Settings
    """Architecture and vocabulary."""
    weights: "Weights"
    """Its weights, unread."""
    types: frozenset[str]
    """The types they are stored in, by safetensors' names."""


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


def read_settings(folder: str | Path, vocabulary: str | None = None) -> Settings:
    """Architecture and vocabulary of a Hugging Face folder; `vocabulary` is named for one that holds none.

    Raises ConversionError, naming the file and the fix, where the folder is damaged or not a T5-family model.
    """
    return _read_settings(Path(folder), vocabulary)[0]


def import_hf(folder: str | Path) -> Imported:
    """The model of a Hugging Face folder: config.json, model.safetensors (or its shards) and the tokenizer.

    float16 and bfloat16 weights are widened to float32. Raises ConversionError, naming the file and the tensor, where
    anything is missing, cut short, left over, of another shape than config.json says, NaN or infinite.
    """
    from spanloom.conversion.weights import read_all

    opened = open_hf(folder)
    low = sorted({name for name in opened.types if name not in ("F32", "F64")})
    widened = (f"weights stored as {', '.join(low)} were widened to float32",) if low else ()
    settings = opened.settings
    params = read_all(settings.model, opened.weights)
    return Imported(settings.model, params, settings.vocabulary, (*settings.notes, *widened))


def open_hf(folder: str | Path, vocabulary: str | None = None) -> Opened:
    """Likewise, of whose weights few rows have been read, so that none is known to be NaN or infinite; `vocabulary` is
    named for a folder that holds none."""
    from spanloom.conversion import hf_weights

    folder = Path(folder)
    settings, entries = _read_settings(folder, vocabulary)
    copies = {name for name in hf_names.EMBEDDING_COPIES if name in entries}
    ignored = copies | {hf_names.NEVER_USED} | ({hf_names.HEAD} if settings.model.tie_embeddings else set())
    hf_weights.check_entries(entries, settings.model, folder, ignored)
    for name in sorted(copies):
        if not hf_tie.equal(entries[name], entries[hf_names.EMBEDDING]):
            raise ConversionError(
                entries[name].file,
                f"{name} differs from {hf_names.EMBEDDING}: encoder and decoder of a T5 share one embedding",
            )
    types = frozenset(entry.dtype for entry in entries.values())
    return Opened(settings, hf_weights.weights_of(entries, settings.model), types)


def _read_settings(folder: Path, vocabulary: str | None) -> tuple[Settings, dict[str, WeightTensor]]:
    path = folder / CONFIG_NAME
    config = safetensors_file.read_json(path)
    mark = _mark(folder)
    model = hf_config.from_config(config, path, name=str(mark.get("model") or "custom"))
    entries = hf_files.open_weights(folder)
    if hf_names.EMBEDDING not in entries:
        entries = _embedding_by_other_name(entries, folder)
    hf_names.check_layers(entries, model, path)  # before anything is built: a damaged count may be a billion
    tie = hf_tie.decide_tie(entries, model, config, path)
    model = dataclasses.replace(model, tie_embeddings=tie.tied)
    model = dataclasses.replace(model, name=published_name(model))
    found = read_vocabulary(folder, config, entries, vocabulary)
    eos_id = hf_tokenizer.eos_id(found.vocabulary, spiece_content(found.vocabulary))
    hf_config.check_id(config, path, "eos_token_id", eos_id)
    notes = tuple(note for note in (tie.note, found.note) if note)
    return Settings(model, found.vocabulary, notes), hf_tie.with_head(entries, tie, model)


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
        before = tuple(_lineage_in(one) for one in mark.get("before", []))
        return dataclasses.replace(_lineage_in(mark), before=before)
    except (LookupError, TypeError, AttributeError, ValueError):
        return Lineage(origin=str(Path(folder).resolve()))  # no export of ours, or one of another version


def _lineage_in(data: Mapping[str, Any]) -> "Lineage":
    from spanloom.conversion.trained_model import Lineage

    return Lineage(
        origin=str(data["origin"]),
        run=None if data["run"] is None else from_json(data["run"]),
        step=_of_type(int, data["step"]),
        checkpoint=_of_type(str, data.get("checkpoint")),
        losses={name: float(value) for name, value in data["losses"].items()},
        started_from=_of_type(str, data["started_from"]),
        versions={str(name): str(version) for name, version in data["versions"].items()},
        moved_rows={name: int(count) for name, count in data.get("moved_rows", {}).items()},
    )


def _of_type(kind: type[Value], value: object) -> Value | None:
    if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value


def write_folder(
    folder: Path,
    source: "StoredModel",
    *,
    name: str,
    max_shard_bytes: int | None = None,
    dtype: "Dtype" = "float32",
    done: Callable[[int], None] = lambda count: None,
) -> None:
    """Write every file of a Hugging Face model into the empty `folder`; `name` is what it will be called.

    `done` is told how many numbers of the weights were written.
    """
    from spanloom.conversion import hf_weights
    from spanloom.conversion.model_card import CARD_NAME, model_card
    from spanloom.conversion.weights import written_type

    model, vocabulary = source.model, source.vocabulary
    spiece_model = spiece_content(vocabulary)
    if isinstance(vocabulary, SentencePiece):
        vocabulary = resolve(vocabulary)
    eos_id = hf_tokenizer.eos_id(vocabulary, spiece_model)
    kinds = {written_type(weight.dtype, dtype) for weight in source.weights.values()}
    config = hf_config.to_config(model, hf_tokenizer.tokenizer_class(vocabulary), eos_id)
    config |= {"torch_dtype": min(kinds) if len(kinds) == 1 else "float32"}
    card = model_card(
        model,
        vocabulary,
        source.lineage,
        folder=name,
        model_type=config["model_type"],
        num_params=source.num_params,
        dtype=" and ".join(sorted(kinds)),
    )
    files: dict[str, bytes] = {
        CONFIG_NAME: hf_tokenizer.to_json(config),
        "generation_config.json": hf_tokenizer.to_json(hf_config.generation_config(eos_id)),
        **hf_tokenizer.tokenizer_files(vocabulary, spiece_model, model_type=config["model_type"]),
        CARD_NAME: card.encode("utf-8"),
    }
    for file, content in files.items():
        (folder / file).write_bytes(content)
    limit = max_shard_bytes or hf_weights.MAX_SHARD_BYTES
    hf_weights.write_weights(folder, model, source.weights, limit, dtype, done)
    write_mark(folder, source, vocabulary)


def write_mark(folder: Path, source: "StoredModel", vocabulary: Vocabulary, later: Iterable[str] = ()) -> None:
    """Write what an export says about itself beside what is in its folder: vocabulary, where it comes from, and its
    files, which go when it is replaced; `later` names those still to be written."""
    written = sorted({*(path.name for path in folder.iterdir()), *later})
    content = spiece_content(source.vocabulary)
    (folder / MARK_NAME).write_bytes(hf_tokenizer.to_json(_describe(source, vocabulary, content, written)))


def _describe(
    source: "StoredModel", vocabulary: Vocabulary, spiece_model: bytes | None, files: list[str]
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
        **_lineage_data(lineage),
        "before": [_lineage_data(one) for one in lineage.before],
        "files": files,
    }


def _lineage_data(lineage: "Lineage") -> dict[str, Any]:
    return {
        "origin": lineage.origin,
        "step": lineage.step,
        "checkpoint": lineage.checkpoint,
        # JSON has no NaN
        "losses": {name: value if math.isfinite(value) else str(value) for name, value in lineage.losses.items()},
        "started_from": lineage.started_from,
        "run": None if lineage.run is None else to_json(lineage.run),
        "versions": lineage.versions,
        "moved_rows": lineage.moved_rows,
    }


def spiece_content(vocabulary: Vocabulary) -> bytes | None:
    """The SentencePiece model of a vocabulary; None for bytes. ConversionError where it cannot be read."""
    if not isinstance(vocabulary, SentencePiece):
        return None
    try:
        return Path(vocabulary.path).read_bytes()
    except OSError as error:
        raise ConversionError(vocabulary.path, f"the SentencePiece model cannot be read ({error.strerror})") from error
