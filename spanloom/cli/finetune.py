"""`spanloom finetune --data ... --start ...`: `train` with the recipe finetune."""

from collections.abc import Sequence

from spanloom.cli.recipe import find
from spanloom.cli.train import train

USAGE = "spanloom finetune --data FILES --start CHECKPOINT [--out DIR] [flags]"


def main(argv: Sequence[str]) -> int:
    """Run the command; the exit code."""
    return train(find("finetune"), argv, "spanloom finetune", USAGE)
