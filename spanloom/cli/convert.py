"""`spanloom convert SRC DST --to hf`: a run or a checkpoint, ours or T5X's, as a folder that Hugging Face loads."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from spanloom.cli.errors import UsageError
from spanloom.cli.parsing import options

ABOUT = """A run or a checkpoint as a folder that Hugging Face loads; every weight is read back and compared.

SRC may be a run directory, one of its checkpoints/STEP, a checkpoint of T5X or Mesh TensorFlow (or a folder of them),
or a Hugging Face folder; what it is and which model is found out. The checkpoints of T5X and Mesh TensorFlow hold no
vocabulary: where the SentencePiece model lies beside them, or they are of bytes, it is found, too.

    spanloom convert runs/quickstart exported --to hf
    spanloom convert runs/a exported --to hf --which best
    spanloom convert t5_small/checkpoint_1000000 exported --to hf
    spanloom convert runs/a exported --to hf --push user/name --private
"""


def main(argv: Sequence[str]) -> int:
    """Run the command; the exit code."""
    from tyro.conf import Positional, arg

    @dataclass(frozen=True)
    class Options:
        source: Annotated[Positional[str], arg(metavar="SRC")]
        """A run directory, one of its checkpoints/STEP, a T5X checkpoint, or a Hugging Face folder."""
        destination: Annotated[Positional[str], arg(metavar="DST")]
        """Folder to write."""
        to: Literal["hf"]
        """Format to write."""
        which: str = "last"
        """Checkpoint of a run: last, best, or a step."""
        vocabulary: str | None = None
        """Vocabulary of a T5X checkpoint: its SentencePiece model, or bytes; unset: found beside it."""
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

    chosen = options(Options, argv, "spanloom convert", "SRC DST --to hf [flags]", ABOUT)
    _refuse_idle(chosen.push, chosen.private, chosen.branch)
    repository = None
    if chosen.push is not None:
        from spanloom.conversion import hub_push

        repository = hub_push.Repository(chosen.push, chosen.private, chosen.branch, chosen.overwrite)
        hub_push.check_access(repository)  # before hours of conversion
    from spanloom.conversion.convert import HUGGING_FACE, convert
    from spanloom.training.read_model import read_model

    source = read_model(Path(chosen.source), chosen.which, chosen.vocabulary)
    if repository is not None:
        hub_push.check_content(repository, source.lineage)
    report = convert(
        source, chosen.destination, HUGGING_FACE, overwrite=chosen.overwrite, name=chosen.push, progress=print
    )
    print(report.describe())
    if repository is not None:
        print(hub_push.push(report.dst, repository, print).describe())
    return 0


def _refuse_idle(push: str | None, private: bool, branch: str | None) -> None:
    if push is None and (private or branch is not None):
        raise UsageError(f"{'--private' if private else '--branch'} goes with --push user/name")
