"""`spanloom convert SRC DST --to hf`: a run or a checkpoint as a folder that Hugging Face loads."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from spanloom.cli.errors import CommandError
from spanloom.cli.parsing import options

if TYPE_CHECKING:
    from spanloom.conversion.trained_model import TrainedModel

ABOUT = """A run or a checkpoint as a folder that Hugging Face loads; every weight is read back and compared.

    spanloom convert runs/quickstart exported --to hf
    spanloom convert runs/a exported --to hf --which best
"""


def main(argv: Sequence[str]) -> int:
    """Run the command; the exit code."""
    from tyro.conf import Positional, arg

    @dataclass(frozen=True)
    class Options:
        source: Annotated[Positional[str], arg(metavar="SRC")]
        """A run directory, one of its checkpoints/STEP, or a Hugging Face folder."""
        destination: Annotated[Positional[str], arg(metavar="DST")]
        """Folder to write."""
        to: Literal["hf"]
        """Format to write."""
        which: str = "last"
        """Checkpoint of a run: last, best, or a step."""
        overwrite: bool = False
        """Write into a folder that is not empty."""

    chosen = options(Options, argv, "spanloom convert", "SRC DST --to hf [flags]", ABOUT)
    from spanloom.conversion.convert import convert_to_hf

    source = read_source(Path(chosen.source), chosen.which)
    report = convert_to_hf(source, chosen.destination, overwrite=chosen.overwrite, progress=print)
    print(report.describe())
    return 0


def read_source(path: Path, which: str = "last") -> "TrainedModel":
    """The weights at a path with all that belongs to them.

    Raises ConversionError where `path` is nothing that can be read, or has no such checkpoint; CommandError where
    `which` is to choose, but there is nothing to choose from.
    """
    from spanloom.conversion.convert import model_from_hf
    from spanloom.conversion.detect import KINDS, detect
    from spanloom.conversion.trained_model import Lineage, TrainedModel
    from spanloom.training.checkpoint_paths import open_checkpoint
    from spanloom.training.checkpoints import restore, vocabulary_inside

    kind = detect(path)
    if kind != "run" and which != "last":
        raise CommandError(f"--which {which}: {path} is {KINDS[kind]}, and --which chooses among those of a run")
    if kind == "huggingface":
        return model_from_hf(path)
    restored = restore(open_checkpoint(path, which))
    facts = restored.facts
    losses = {"training loss of the last step": facts.loss, "held-out loss": facts.heldout_loss}
    lineage = Lineage(
        origin=str(restored.path),
        run=facts.run,
        step=facts.step,
        losses={name: loss for name, loss in losses.items() if loss is not None},
        started_from=facts.started_from,
        versions={name: str(value) for name, value in facts.machine.items()},
    )
    return TrainedModel(facts.run.model, restored.params, vocabulary_inside(restored.path, facts.run), lineage)
