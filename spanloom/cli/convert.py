"""`spanloom convert SRC DST`: any checkpoint as one of Hugging Face, T5X or Spanloom."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from spanloom.cli.errors import UsageError
from spanloom.cli.parsing import options

if TYPE_CHECKING:
    from spanloom.conversion.convert import Format, Report
    from spanloom.conversion.hub_push import Repository
    from spanloom.conversion.stored_model import StoredModel

ABOUT = """A checkpoint in another format; every weight is read back and compared before it says done.

SRC may be a run directory, one of its checkpoints/STEP, a checkpoint of T5X or Mesh TensorFlow (or a folder of them),
a Hugging Face folder, or what this command wrote; what it is and which model is found out. The checkpoints of T5X and
Mesh TensorFlow hold no vocabulary: where the SentencePiece model lies beside them, or they are of bytes, it is found,
too. hf is a folder that Hugging Face loads; t5x a checkpoint of T5X (version 3) with Adafactor's memory where SRC has
it, so that training goes on there; spanloom one that every command here takes, memory included. A layer of source
and result is in memory at a time, so that models convert that are much larger than it.

    spanloom convert runs/quickstart exported --to hf
    spanloom convert runs/a exported --to hf --which best --dtype bfloat16
    spanloom convert runs/a exported --to hf --which all
    spanloom convert t5_small/checkpoint_1000000 t5_small_here --to spanloom
    spanloom convert runs/a for_t5x --to t5x
    spanloom convert runs/a exported --to hf --push user/name --private
"""
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "MIB": 2**20, "GIB": 2**30}
_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,18})?) *([a-z]*)", re.IGNORECASE)


def main(argv: Sequence[str]) -> int:
    """Run the command; the exit code."""
    from tyro.conf import Positional, arg

    @dataclass(frozen=True)
    class Options:
        source: Annotated[Positional[str], arg(metavar="SRC")]
        """A run directory, one of its checkpoints/STEP, a T5X checkpoint, a Hugging Face folder, or a converted one."""
        destination: Annotated[Positional[str], arg(metavar="DST")]
        """Folder to write."""
        to: Literal["hf", "t5x", "spanloom"] | None = None
        """Format to write; unset: hf of what Spanloom made, spanloom of what comes from elsewhere."""
        which: str = "last"
        """Checkpoint of a run: last, best, or a step; of T5X last or a step. all: each that is kept, as DST/STEP; what
        is there already is not converted again: a killed command goes on, and a later one takes the new ones."""
        vocabulary: str | None = None
        """Vocabulary of a T5X checkpoint, or of a Hugging Face folder without one: its SentencePiece model, or bytes;
        unset: found beside it."""
        dtype: Literal["float32", "bfloat16", "keep"] = "float32"
        """Type of the weights written. keep: bfloat16 where the source has it, else float32. float32 holds bfloat16 to
        the bit, there and back."""
        shard_size: str = "5GB"
        """Largest file of weights of a Hugging Face folder."""
        activations: str | None = None
        """Activations of a T5X checkpoint, gelu,linear or relu, where neither its config.gin nor its sizes tell."""
        overwrite: bool = False
        """Replace what was exported there from another run, with --push on the Hub as well. A folder that holds
        anything else is never replaced."""
        push: str | None = None
        """Publish the folder on the Hugging Face Hub as user/name, once it is in place; needs HF_TOKEN or
        `hf auth login`."""
        private: bool = False
        """With --push: make the repository private, if it is new."""
        branch: str | None = None
        """With --push: branch of the repository to write, made where there is none; unset: main."""

    chosen = options(Options, argv, "spanloom convert", "SRC DST [--to hf|t5x|spanloom] [flags]", ABOUT)
    shard_bytes = size_in_bytes(chosen.shard_size)
    if chosen.push is not None and chosen.which == "all":
        raise UsageError("--push publishes one model: name its checkpoint with --which, not all")
    repository = _repository(chosen.push, chosen.to, chosen.private, chosen.branch, chosen.overwrite)
    if chosen.which == "all":
        _convert_all(chosen, shard_bytes)
    else:
        _convert_one(chosen, shard_bytes, repository)
    return 0


def _convert_one(chosen: Any, shard_bytes: int, repository: "Repository | None") -> None:
    from spanloom.conversion import hub_push
    from spanloom.training.read_model import open_model

    source = open_model(Path(chosen.source), chosen.which, chosen.vocabulary, chosen.activations)
    if repository is not None:
        hub_push.check_access(repository, source.lineage)  # before hours of conversion
    form = _format("hf" if repository else chosen.to, Path(chosen.source))
    report = _write(chosen, form, shard_bytes, source, Path(chosen.destination), chosen.push)
    print(report.describe())
    if repository is not None:
        print(hub_push.push(report.dst, repository, print).describe())


def _convert_all(chosen: Any, shard_bytes: int) -> None:
    from spanloom.cli.convert_all import convert_all
    from spanloom.conversion.detect import detect
    from spanloom.training.read_model import open_model

    path, destination = Path(chosen.source), Path(chosen.destination)
    form, told = _format(chosen.to, path), [chosen.vocabulary, chosen.activations]

    def write(step: int, place: Path) -> "Report":
        source = open_model(path, str(step), *told)
        return _write(chosen, form, shard_bytes, source, place, f"{destination.name}/{step}")

    how = {"form": form.name, "dtype": chosen.dtype, "shard_bytes": shard_bytes, "told": told}
    convert_all(path, detect(path), destination, how, write)


def _write(
    chosen: Any, form: "Format", shard_bytes: int, source: "StoredModel", destination: Path, name: str | None
) -> "Report":
    from spanloom.cli.progress_bar import counting
    from spanloom.conversion.convert import convert

    return convert(
        source,
        destination,
        form,
        overwrite=chosen.overwrite,
        max_shard_bytes=shard_bytes,
        dtype=chosen.dtype,
        name=name,
        progress=print,
        watch=counting,
    )


def _format(to: Literal["hf", "t5x", "spanloom"] | None, source: Path) -> "Format":
    """The format to write; where none is asked for, out of here or in: what Spanloom made goes to Hugging Face."""
    from spanloom.conversion.convert import HUGGING_FACE
    from spanloom.conversion.detect import detect
    from spanloom.conversion.t5x_write import T5X
    from spanloom.training.converted import SPANLOOM

    is_ours = to is None and detect(source) in ("run", "checkpoint", "converted")
    return {"hf": HUGGING_FACE, "t5x": T5X, "spanloom": SPANLOOM}[to or ("hf" if is_ours else "spanloom")]


def _repository(
    push: str | None, to: str | None, private: bool, branch: str | None, overwrite: bool
) -> "Repository | None":
    """Where to publish, if that was asked for. Raises UsageError for flags that say nothing, HubError for no name."""
    if push is None:
        if private or branch is not None:
            raise UsageError(f"{'--private' if private else '--branch'} goes with --push user/name")
        return None
    if to not in (None, "hf"):
        raise UsageError(f"--push publishes what Hugging Face loads: --to hf, not {to}")
    from spanloom.conversion.hub_push import Repository, check_name

    check_name(push)
    return Repository(push, private, branch, overwrite)


def size_in_bytes(text: str) -> int:
    """The bytes that a size such as 5GB, 500 MB or 2GiB means. Raises UsageError for what is none."""
    match = _SIZE.fullmatch(text.strip())
    unit = _UNITS.get(match[2].upper()) if match else None
    if match is None or unit is None or (size := int(float(match[1]) * unit)) < 1:
        raise UsageError(f"--shard-size {text!r}: give a size such as 5GB or 500MB")
    return size
