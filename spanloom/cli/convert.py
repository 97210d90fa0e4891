"""`spanloom convert SRC DST --to hf`: a run or a checkpoint, ours or T5X's, as a folder that Hugging Face loads."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from spanloom.cli.parsing import options

ABOUT = """A run or a checkpoint as a folder that Hugging Face loads; every weight is read back and compared.

SRC may be a run directory, one of its checkpoints/STEP, a checkpoint of T5X or Mesh TensorFlow (or a folder of them),
or a Hugging Face folder; what it is and which model is found out. The checkpoints of T5X and Mesh TensorFlow hold no
vocabulary: where the SentencePiece model lies beside them, or they are of bytes, it is found, too.

    spanloom convert runs/quickstart exported --to hf
    spanloom convert runs/a exported --to hf --which best
    spanloom convert t5_small/checkpoint_1000000 exported --to hf
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
        activations: str | None = None
        """Activations of a T5X checkpoint, gelu,linear or relu, where neither its config.gin nor its sizes tell."""
        overwrite: bool = False
        """Replace what was exported there from another run. A folder that holds anything else is never replaced."""

    chosen = options(Options, argv, "spanloom convert", "SRC DST --to hf [flags]", ABOUT)
    from spanloom.conversion.convert import convert_to_hf
    from spanloom.training.read_model import read_model

    source = read_model(Path(chosen.source), chosen.which, chosen.vocabulary, chosen.activations)
    report = convert_to_hf(source, chosen.destination, overwrite=chosen.overwrite, progress=print)
    print(report.describe())
    return 0
