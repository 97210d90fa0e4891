"""`spanloom report RUN [RUN ...] --out report.html`: what there is to know of runs, as one page."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from spanloom.cli.page_file import page_file
from spanloom.cli.parsing import options

ABOUT = """One page of a run, or of several side by side, to keep, to send or to print; it needs no network.

It has curves (losses of training and of what is held out, learning rate, gradient, throughput, MFU, where the time
goes) to zoom and smooth, stages and what they forgot, tables of `spanloom eval`, what models filled in and what each
checkpoint wrote, the data with rates and padding, settings that were chosen, costs, machines, versions and commands.
RUN is a run directory, or one of stages; s3:// and gs:// are read, too. Runs that go on are shown as far as they are,
and nothing is written into them.

    spanloom report runs/a --out report.html
    spanloom report runs/a runs/b s3://bucket/runs/c --out three.html
"""


def main(argv: Sequence[str]) -> int:
    """Run the command; the exit code."""
    from tyro.conf import Positional, arg

    @dataclass(frozen=True)
    class Options:
        run: Annotated[Positional[str], arg(metavar="RUN")]
        """A run directory, or one of stages."""
        out: str
        """The file to write."""
        beside: tuple[str, ...] = ()
        """More runs, to be compared with it; RUN RUN is enough."""
        references: Literal["auto", "none", "nanot5"] = "auto"
        """Published curves in the chart of the training loss. auto: those whose data, size and batch the run has."""

    usage = "RUN [RUN ...] --out report.html"
    chosen = options(Options, argv, "spanloom report", usage, ABOUT, rest="beside")
    path = page_file("--out", chosen.out, "report.html")
    from spanloom.cli.recipe_defaults import baselines_of
    from spanloom.pipeline.durable import write_file
    from spanloom.report.run_page import made_now, page, title_of
    from spanloom.report.run_view import views_of

    views = views_of([chosen.run, *chosen.beside])
    baselines = {view.label: baselines_of(view) for view in views}
    content = page(views, made_now(), references=chosen.references, baselines=baselines).encode()
    write_file(path, lambda file: file.write(content))
    print(f"{path}: {title_of(views)[0].lower()}{title_of(views)[1:]} as a page ({len(content):,} bytes)")
    return 0
