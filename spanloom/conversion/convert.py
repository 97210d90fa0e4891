"""Conversion as one safe act: check, write beside the destination, read back, compare, and only then put in place."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import numpy as np

from spanloom.conversion import huggingface, parity, streamed
from spanloom.conversion.errors import ConversionError
from spanloom.conversion.hf_vocabulary import MARK_NAME
from spanloom.conversion.huggingface import open_hf, read_lineage
from spanloom.conversion.staging import check_destination, followed, staged
from spanloom.conversion.stored_model import StoredModel, as_stored
from spanloom.conversion.trained_model import Lineage, TrainedModel
from spanloom.conversion.weights import Dtype, Weights, written_type
from spanloom.model.params import declare, flatten
from spanloom.vocabularies.build import build

FEW_PARAMS = 100_000_000
"""Up to so many all of the fixed sentences are read to a model, above the first alone: a CPU takes minutes for it."""
WHOLE_BYTES = 1 << 31
"""Up to so many bytes a model is run whose layers cannot be read one by one."""

Watch = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
"""Shows how far something is: called with what is counted and how many there are, it gives what counts them."""


class ParityError(RuntimeError):
    """What was written does not say what the source says; nothing was put in place."""


@contextlib.contextmanager
def unwatched(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Shows nothing."""
    yield lambda count: None


@dataclass(frozen=True)
class Output:
    """How a model is to be written."""

    name: str
    """What the destination is called."""
    dtype: Dtype = "float32"
    """In what its weights are."""
    max_shard_bytes: int | None = None
    """Largest file of weights, where the format has several; None: as is usual for it."""
    done: Callable[[int], None] = field(default=lambda count: None)
    """Told how many numbers were written."""


@dataclass(frozen=True)
class Format:
    """A format that models are written in."""

    name: str
    """What it is called."""
    write: Callable[[Path, StoredModel, Output], tuple[str, ...]]
    """Write a model into a folder that is empty but for what the caller put there; its mark lists that, too. Gives what
    the user should know of it. ValueError for one that the format cannot express, before anything is written."""
    read: Callable[[Path], StoredModel]
    """Open what was written."""


@dataclass(frozen=True)
class Report:
    """What a conversion did."""

    dst: Path
    """The folder written."""
    files: dict[str, int]
    """Its files, with their sizes in bytes."""
    num_params: int
    """Numbers in the model."""
    num_tokens: int
    """Target tokens of the fixed sentences; 0 where they were not read to the models."""
    largest_difference: float
    """Largest difference of their log-probabilities, source against what was written."""
    notes: tuple[str, ...]
    """What the user should know."""
    rounded: bool = False
    """Whether the source has more bits than were written: then it is its rounded weights that were compared."""
    num_slots: int = 0
    """Numbers of the optimizer's memory, which were written and compared, too."""

    def describe(self) -> str:
        """The report as lines for a terminal."""
        size = sum(self.files.values()) / 2**20
        ours = " to those of the source rounded to bfloat16" if self.rounded else ""
        memory = f"; so is the optimizer's memory ({self.num_slots:,} numbers)" if self.num_slots else ""
        said = (
            f"log-probabilities of {self.num_tokens} tokens differ by at most {self.largest_difference:.1e} "
            f"(allowed {parity.TOLERANCE:.0e})"
            if self.num_tokens
            else "log-probabilities were not computed: the source keeps all layers in one piece, too large to be read "
            "again for every layer"
        )
        lines = [
            f"wrote {self.dst}: {self.num_params:,} parameters, {len(self.files)} files, {size:,.1f} MiB",
            f"parity: weights equal{ours} to the last bit{memory}; {said}",
        ]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def convert_to_hf(
    source: TrainedModel | StoredModel,
    dst: str | Path,
    *,
    overwrite: bool = False,
    max_shard_bytes: int | None = None,
    dtype: Dtype = "float32",
    beside: Mapping[str, bytes] = MappingProxyType({}),
    progress: Callable[[str], None] = lambda line: None,
    watch: Watch = unwatched,
) -> Report:
    """Write a Hugging Face folder, as `convert` does."""
    return convert(
        source,
        dst,
        HUGGING_FACE,
        overwrite=overwrite,
        max_shard_bytes=max_shard_bytes,
        dtype=dtype,
        beside=beside,
        progress=progress,
        watch=watch,
    )


def convert(
    source: TrainedModel | StoredModel,
    dst: str | Path,
    form: Format,
    *,
    overwrite: bool = False,
    max_shard_bytes: int | None = None,
    dtype: Dtype = "float32",
    name: str | None = None,
    beside: Mapping[str, bytes] = MappingProxyType({}),
    progress: Callable[[str], None] = lambda line: None,
    watch: Watch = unwatched,
) -> Report:
    """Write a model in another format and check it before it is put in place; a layer of each is in memory at a time.

    What was written is read back: weights (and the optimizer's memory, where it is written) must be equal to the last
    bit, the sentinels the same, and log-probabilities of fixed sentences within 1e-4, computed layer by layer. In
    bfloat16 it is the source's rounded weights that are compared. `name` is what the model will be called where it is
    told how to use it; unset: the folder's. `beside` are further files of the folder. An earlier export in `dst` is
    replaced, one of another run only with `overwrite`. Raises ConversionError for a destination that must not be
    written and ValueError for a model that the format cannot express, both before anything is written;
    ConversionError, too, for weights that are damaged, NaN or infinite; ParityError if the check fails; then, and after
    any other error or kill, `dst` is as it was.
    """
    dst = Path(dst)
    source = source if isinstance(source, StoredModel) else as_stored(source)
    _check(source)
    slots = sum(weight.size for weight in source.memory.weights.values()) if source.memory else 0
    with staged(dst, lambda: check_place(dst, source.lineage, source.folder, overwrite)) as folder:
        progress(f"writing {dst}, {form.name}")
        with watch("numbers written", source.num_params) as done:
            for file, content in beside.items():  # before all else, so that the mark lists them, too
                (folder / file).write_bytes(content)
            notes = form.write(folder, source, Output(name or dst.name, dtype, max_shard_bytes, done))
        progress("reading it back and comparing every weight and log-probabilities")
        written = form.read(folder)
        with watch("numbers compared", source.num_params) as done:
            difference, num_tokens = _compare(source, written, dtype, done)
        files = {path.relative_to(folder).as_posix(): path.stat().st_size for path in _files(folder)}
    rounded = any(weight.dtype != written_type(weight.dtype, dtype) == "bfloat16" for weight in source.weights.values())
    notes = (*source.notes, *notes, *written.notes, *_widened(source.weights, dtype))
    return Report(
        dst,
        files,
        source.num_params,
        num_tokens,
        difference,
        tuple(dict.fromkeys(notes)),
        rounded,
        slots if written.memory else 0,
    )


def model_from_hf(folder: str | Path) -> TrainedModel:
    """A Hugging Face folder as a model in memory."""
    return stored_hf(folder).load()


def stored_hf(folder: str | Path, vocabulary: str | None = None) -> StoredModel:
    """A Hugging Face folder as the source of a conversion; `vocabulary` is named for one that holds none."""
    opened = open_hf(folder, vocabulary)
    found = opened.settings
    lineage = read_lineage(folder)
    return StoredModel(found.model, opened.weights, found.vocabulary, lineage, Path(folder), notes=found.notes)


def _write_hf(folder: Path, source: StoredModel, output: Output) -> tuple[str, ...]:
    huggingface.write_folder(
        folder,
        source,
        name=output.name,
        max_shard_bytes=output.max_shard_bytes,
        dtype=output.dtype,
        done=output.done,
    )
    return ()


HUGGING_FACE = Format("a Hugging Face folder", _write_hf, stored_hf)


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def check_place(dst: Path, lineage: Lineage, folder: Path | None, overwrite: bool) -> None:
    """Raise ConversionError if a model of `lineage`, read from `folder`, must not be written to `dst`."""
    if folder is not None and followed(folder).is_relative_to(followed(dst)):
        raise ConversionError(dst, "is the source itself; name another folder")
    check_destination(dst)
    if not overwrite:
        _refuse_other_model(dst, lineage)


def _refuse_other_model(dst: Path, lineage: Lineage) -> None:
    if not (dst / MARK_NAME).is_file():
        return
    there, here = read_lineage(dst).home, lineage.home
    if there != here:
        raise ConversionError(
            dst, f"holds a model exported from {there}, not from {here}: name another folder, or give --overwrite"
        )


def _check(source: StoredModel) -> None:
    for name, spec in flatten(declare(source.model)).items():
        shape = source.weights[name].shape
        if shape != spec.shape:
            raise ValueError(f"{name} has shape {shape}, but the model's settings call for {spec.shape}")
    size = build(source.vocabulary).size
    if size > source.model.vocab_size:
        raise ValueError(
            f"the vocabulary has {size} ids, but the embedding only {source.model.vocab_size} rows: it is not the "
            "vocabulary this model was trained with"
        )


def _widened(weights: Weights, dtype: Dtype) -> tuple[str, ...]:
    """What to say of weights of fewer or more bits that are written as float32."""
    types = [one.dtype for one in weights.values() if written_type(one.dtype, dtype) == "float32"]
    notes = []
    if wide := types.count("float64"):
        notes.append(f"{wide} of {len(weights)} weights were stored as float64 and rounded to float32")
    if low := sorted({"float16", "bfloat16"}.intersection(types)):
        keep = "; --dtype keep leaves bfloat16 as it is" if "bfloat16" in low else ""
        notes.append(
            f"weights stored as {' and '.join(low)} were widened to float32, which holds them to the bit{keep}"
        )
    return tuple(notes)


def _compare(source: StoredModel, written: StoredModel, dtype: Dtype, done: Callable[[int], None]) -> tuple[float, int]:
    """Largest difference of log-probabilities, and of how many tokens."""
    batch = _sentences(source, written)
    weights = parity.Comparison(source.weights, written.weights, dtype, done)
    difference, tokens = 0.0, 0
    if not weights.different and _can_run(source.weights) and _can_run(written.weights):
        expected, found = streamed.in_lockstep(
            streamed.log_probabilities_by_layer(source.model, weights.source, batch, dtype),
            streamed.log_probabilities_by_layer(written.model, weights.weights, batch),
        )
        difference, tokens = parity.largest_difference(expected, found), len(expected)
    wrong = weights.finish()
    if source.memory and written.memory:
        if source.memory.count != written.memory.count:
            wrong.append("the optimizer's count of steps")
        wrong += parity.Comparison(source.memory.weights, written.memory.weights).finish()
    if wrong:
        raise ParityError(f"weights read back differ from the source's: {', '.join(wrong[:3])} ({len(wrong)} in all)")
    if not difference <= parity.TOLERANCE:
        raise ParityError(
            f"log-probabilities of the fixed sentences differ by {difference:.2e} from the source's, more than "
            f"{parity.TOLERANCE:.0e}; {huggingface.CONFIG_NAME} and {MARK_NAME} do not describe this model. Please "
            "report it"
        )
    return difference, tokens


def _sentences(source: StoredModel, written: StoredModel) -> Mapping[str, np.ndarray]:
    """The batch that is said to both. Raises ParityError where their vocabularies read it differently."""
    before, after = build(source.vocabulary), build(written.vocabulary)
    if before.sentinels != after.sentinels:
        raise ParityError(f"sentinels read back are {after.sentinels[:3]}..., the source's {before.sentinels[:3]}...")
    count = len(parity.SENTENCES) if source.num_params <= FEW_PARAMS else 1
    batch = parity.examples(after, count)
    if any((parity.examples(before, count)[name] != batch[name]).any() for name in batch):
        raise ParityError("the vocabulary read back gives other ids than the source's")
    return batch


def _can_run(weights: Weights) -> bool:
    whole = sum(4 * weight.size for weight in weights.values() if not weight.read_alone)
    return whole <= WHOLE_BYTES
