"""Stages of tiny runs, trained by the command in a process of its own that may be killed.

python tests/tiny_stages.py DIRECTORY PLACE train RECIPE --out ...

PLACE is where the process stands still, having made the file DIRECTORY/held, until its standard input ends or a signal
comes: STAGE:STEP, STAGE:begin (before its first step), STAGE:trained (before what follows its last step) or
STAGE:closed (before the next stage).
"""

import os
import subprocess
import sys
from pathlib import Path

from tiny_training import HELD, wait_until

RECIPE = '''
"""Three languages of three sizes, {steps} steps each."""
from dataclasses import replace
from pathlib import Path
from spanloom.settings.follow import Follow
from spanloom.settings.run import After, Checkpoints, Evaluation, Run
from tiny_training import tiny_run

def recipe() -> list[Run]:
    runs = []
    for name in ("en", "de", "fr"):
        run = tiny_run(Path("{text}") / (name + ".txt"), {steps}, name=name, after=After(fills=1, export=False))
        evaluation, saving = Evaluation(every=4, max_batches=2), Checkpoints(every=5)
        task, follow = replace(run.task, name=name), Follow(optimizer="continue", schedule="continue")
        runs.append(replace(run, task=task, eval=evaluation, checkpoint=saving, follow=follow))
    return runs
'''


def spawn(directory: Path, words: list[str], environment: dict[str, str], place: str = "") -> subprocess.Popen:
    """A process that carries out a command; with `place`, it stands still there when this returns."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / HELD).unlink(missing_ok=True)
    paths = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    with (directory / "process.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, __file__, str(directory), place or "-", *words],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env={**os.environ, "PYTHONPATH": paths, **environment},
        )
    if place:
        assert wait_until(process, (directory / HELD).exists), (directory / "process.log").read_text()[-4000:]
    return process


def _hold(directory: Path, place: str) -> None:
    from spanloom.cli import closing
    from spanloom.training import progress

    stage = 0

    def reached(what: object) -> None:
        if f"{stage}:{what}" == place and not (directory / HELD).exists():
            (directory / HELD).touch()
            sys.stdin.readline()

    begin, advance, close = progress.PlainDisplay.begin, progress.PlainDisplay.advance, closing.close_run

    def held_begin(self, done, total):
        nonlocal stage
        stage += 1
        reached("begin")
        begin(self, done, total)

    def held_advance(self, pace, log_line):
        advance(self, pace, log_line)
        reached(pace.step)

    def held_close(*args, **kwargs):
        reached("trained")
        close(*args, **kwargs)
        reached("closed")

    progress.PlainDisplay.begin, progress.PlainDisplay.advance = held_begin, held_advance
    closing.close_run = held_close


if __name__ == "__main__":
    from spanloom.cli.main import main

    _hold(Path(sys.argv[1]), sys.argv[2])
    sys.exit(main(sys.argv[3:]))
