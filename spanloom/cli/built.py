"""What `spanloom cache` says at its end: a table of the stores, what is still to do, and what failed."""

import sys
from collections.abc import Sequence
from pathlib import Path

from spanloom.cli.errors import FAILED, report
from spanloom.pipeline.build_tasks import Outcome
from spanloom.pipeline.share import BuildShare
from spanloom.report.stores import stores_line, stores_table
from spanloom.report.terminal import table_text
from spanloom.settings.run_layout import STORES

_FEW_TASKS = 4
_NAMED = 10
_AFTERWARDS = "`spanloom cache` without --shard, and `spanloom train`,"


def tell(outcomes: Sequence[Outcome], directory: Path, share: BuildShare | None, debug: bool) -> int:
    """Says what became of the tasks; the exit code."""
    several = len(outcomes) > 1
    for one in outcomes:
        for split, store in one.opened.stores.items():
            said = store.report.describe()
            if len(outcomes) <= _FEW_TASKS or "\n" in said:  # of many tasks only what is not as it should be
                print(f"{one.task.name}, {split}: {said}" if several else f"{split}: {said}")
    print(table_text(stores_table(outcomes)), end="")
    if several:
        print(stores_line(outcomes))
    unfinished = [one for one in outcomes if one.error is None and not one.opened.whole]
    if unfinished and share is not None:
        print(_of_share(share, sorted({job for one in unfinished for job in one.opened.missing})))
    print(f"stores in {directory / STORES}", flush=True)
    failed = [(one.task, one.error) for one in outcomes if one.error is not None]
    if failed:
        print(f"spanloom: {len(failed)} of {len(outcomes)} tasks failed, the others did not:", file=sys.stderr)
    for task, error in failed:
        report(error, debug, about=f"task {task.name!r}: ")
    return FAILED if failed else 0


def _of_share(share: BuildShare, missing: Sequence[int]) -> str:
    """What a job may say whose siblings are not done."""
    if not missing:
        return (
            f"job {share} made its share, and all shards are there: a job that is still at work puts the stores in "
            f"place; {_AFTERWARDS} would, too"
        )
    jobs = ", ".join(f"{job}/{share.of}" for job in missing[:_NAMED]) + (", ..." if missing[_NAMED:] else "")
    return (
        f"job {share} made its share; run the remaining jobs, but for those that are at work now: {jobs}. The last one "
        f"to end puts the stores in place; {_AFTERWARDS} make what is missing"
    )
