"""`spanloom diff RUN RUN`: what differs between two runs."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

from spanloom.cli.errors import UsageError
from spanloom.cli.parsing import options

if TYPE_CHECKING:
    from spanloom.report.differences import Difference

ABOUT = """Which settings, data and versions differ between two runs, and nothing else.

RUN is a run directory, one of its checkpoints/STEP, or a directory of stages, of which each is compared with its like;
s3:// and gs:// are read, too. Data are compared by the hashes that checkpoints keep, and by fingerprints and counts of
the stores. Where a run is written and how far it has come is no difference. Exit code: 0 nothing differs, 1 something
does, 2 they cannot be compared.

    spanloom diff runs/a runs/b
    spanloom diff runs/a/checkpoints/1000 s3://bucket/runs/a --json
"""
SAME, DIFFERENT = 0, 1


def main(argv: Sequence[str]) -> int:
    """Run the command; the exit code."""
    from tyro.conf import Positional, arg

    @dataclass(frozen=True)
    class Options:
        first: Annotated[Positional[str], arg(metavar="RUN")]
        """A run directory, a checkpoint, or a directory of stages."""
        second: Annotated[Positional[str], arg(metavar="RUN")]
        """The other one."""
        json: bool = False
        """Print JSON in place of a table."""

    chosen = options(Options, argv, "spanloom diff", "RUN RUN [--json]", ABOUT)
    from spanloom.report.differences import differences
    from spanloom.report.run_files import NoRunError, opened
    from spanloom.tasks.read_report import BadInputError

    try:
        found = differences(opened(chosen.first), opened(chosen.second))
    except (NoRunError, BadInputError, OSError) as error:
        raise UsageError(f"diff: {error}") from error
    if chosen.json:
        print(json.dumps([asdict(one) for one in found], indent=2, ensure_ascii=False))
    else:
        _show(found, chosen.first, chosen.second)
    return DIFFERENT if found else SAME


def _show(found: Sequence["Difference"], first: str, second: str) -> None:
    from spanloom.cli.terminal import width_and_colour
    from spanloom.report.difference_table import difference_text

    if not found:
        print("settings, data and versions are the same")
        return
    width, colour = width_and_colour(sys.stdout)
    print(difference_text(found, first, second, width=width, colour=colour), end="")
