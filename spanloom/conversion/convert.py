"""Conversion as one safe act: check, write beside the destination, read back, compare, and only then put in place."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from spanloom.conversion import huggingface, parity
from spanloom.conversion.errors import ConversionError
from spanloom.conversion.hf_vocabulary import MARK_NAME
from spanloom.conversion.huggingface import CONFIG_NAME, Imported, import_hf, read_lineage
from spanloom.conversion.staging import check_destination, staged
from spanloom.conversion.trained_model import TrainedModel
from spanloom.model.params import declare, flatten, num_params
from spanloom.vocabularies.build import build


class ParityError(RuntimeError):
    """What was written does not say what the source says; nothing was put in place."""


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
    """Target tokens of the fixed sentences."""
    largest_difference: float
    """Largest difference of their log-probabilities, source against what was written."""
    notes: tuple[str, ...]
    """What the user should know."""

    def describe(self) -> str:
        """The report as lines for a terminal."""
        size = sum(self.files.values()) / 2**20
        lines = [
            f"wrote {self.dst}: {self.num_params:,} parameters, {len(self.files)} files, {size:,.1f} MiB",
            f"parity: weights equal to the last bit; log-probabilities of {self.num_tokens} tokens differ by at most "
            f"{self.largest_difference:.1e} (allowed {parity.TOLERANCE:.0e})",
        ]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def convert_to_hf(
    source: TrainedModel,
    dst: str | Path,
    *,
    overwrite: bool = False,
    max_shard_bytes: int | None = None,
    beside: Mapping[str, bytes] = MappingProxyType({}),
    progress: Callable[[str], None] = lambda line: None,
) -> Report:
    """Write a Hugging Face folder and check it before it is put in place.

    What was written is read back: weights must be equal to the last bit, the sentinels the same, and log-probabilities
    of fixed sentences within 1e-4. An earlier export in `dst` is replaced, one of another run only with `overwrite`.
    `beside` are further files of the folder.
    Raises ConversionError for a destination that must not be written and ValueError for a model that Hugging Face
    cannot express, both before anything is written; ParityError if the check fails; then, and after any other error or
    kill, `dst` is as it was.
    """
    dst = Path(dst)
    _check(source)
    if source.folder is not None and source.folder.resolve() == dst.resolve():
        raise ConversionError(dst, "is the source itself; name another folder")
    check_destination(dst)
    if not overwrite:
        _refuse_other_model(dst, source)
    with staged(dst) as folder:
        progress(f"writing {dst}")
        huggingface.write_folder(folder, source, name=dst.name, max_shard_bytes=max_shard_bytes)
        for name, content in beside.items():
            (folder / name).write_bytes(content)
        progress("reading it back and comparing log-probabilities")
        written = import_hf(folder)
        difference, num_tokens = _compare(source, written)
        files = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    return Report(dst, files, num_params(source.params), num_tokens, difference, written.notes)


def model_from_hf(folder: str | Path) -> TrainedModel:
    """A Hugging Face folder as the source of a conversion."""
    read = import_hf(folder)
    return TrainedModel(read.model, read.params, read.vocabulary, read_lineage(folder), folder=Path(folder))


def _refuse_other_model(dst: Path, source: TrainedModel) -> None:
    if not (dst / MARK_NAME).is_file():
        return
    there, here = read_lineage(dst).home, source.lineage.home
    if there != here:
        raise ConversionError(
            dst, f"holds a model exported from {there}, not from {here}: name another folder, or give --overwrite"
        )


def _check(source: TrainedModel) -> None:
    weights = flatten(source.params)
    for name, spec in flatten(declare(source.model)).items():
        shape = tuple(weights[name].shape)
        if shape != spec.shape:
            raise ValueError(f"{name} has shape {shape}, but the model's settings call for {spec.shape}")
    size = build(source.vocabulary).size
    if size > source.model.vocab_size:
        raise ValueError(
            f"the vocabulary has {size} ids, but the embedding only {source.model.vocab_size} rows: it is not the "
            "vocabulary this model was trained with"
        )


def _compare(source: TrainedModel, written: Imported) -> tuple[float, int]:
    if wrong := parity.different_weights(source.params, written.params):
        raise ParityError(f"weights read back differ from the source's: {', '.join(wrong[:3])} ({len(wrong)} in all)")
    before, after = build(source.vocabulary), build(written.vocabulary)
    if before.sentinels != after.sentinels:
        raise ParityError(f"sentinels read back are {after.sentinels[:3]}..., the source's {before.sentinels[:3]}...")
    batch = parity.examples(after)
    if any((parity.examples(before)[name] != batch[name]).any() for name in batch):
        raise ParityError("the vocabulary read back gives other ids than the source's")
    expected = parity.log_probabilities(source.model, source.params, batch)
    difference = parity.largest_difference(expected, parity.log_probabilities(written.model, written.params, batch))
    if not difference <= parity.TOLERANCE:
        raise ParityError(
            f"log-probabilities of the fixed sentences differ by {difference:.2e} from the source's, more than "
            f"{parity.TOLERANCE:.0e}; {CONFIG_NAME} and {MARK_NAME} do not describe this model. Please report it"
        )
    return difference, len(expected)
