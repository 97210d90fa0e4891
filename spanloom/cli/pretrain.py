"""`spanloom pretrain --text ...`: `train` with the recipe pretrain."""

from collections.abc import Sequence

from spanloom.cli.recipe import find
from spanloom.cli.train import train

USAGE = "spanloom pretrain --text FILES [--model SIZE] [--out DIR] [flags]"


def main(argv: Sequence[str]) -> int:
    """Run the command; the exit code."""
    return train(find("pretrain"), argv, "spanloom pretrain", USAGE)
