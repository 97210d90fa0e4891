"""`spanloom pretrain --text ...`: `train` with the recipe pretrain."""

from collections.abc import Sequence

from spanloom.cli.recipe import find
from spanloom.cli.train import train


def main(argv: Sequence[str]) -> int:
    """Run the command; the exit code."""
    return train(find("pretrain"), argv, "spanloom pretrain")
