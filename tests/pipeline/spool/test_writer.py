import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import stream_functions
from pipeline_data import tiny_run

from spanloom.pipeline.data import open_data
from spanloom.pipeline.spool.index import SpoolIndex
from spanloom.pipeline.spool.writer import AHEAD, writing
from spanloom.settings.function import Function
from spanloom.settings.objectives import Supervised
from spanloom.settings.row_sources import PythonExamples
from spanloom.settings.task import Task

PATIENCE = 120


def run_of(log: Path | None = None):
    name, arguments = ("endless", {}) if log is None else ("counted", {"log": str(log)})
    function = Function(f"{stream_functions.__file__}:{name}", arguments)
    source = PythonExamples(function, streaming=True, shard_rows=30, heldout_share=0.0)
    objective = Supervised(inputs_length=16, targets_length=24, too_long="trim")
    return tiny_run(Task("s", source, objective=objective))


def wait_for(happened) -> None:
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)


def children() -> set[int]:
    tasks = Path(f"/proc/{os.getpid()}/task").iterdir()
    return {int(number) for task in tasks for number in (task / "children").read_text().split()}


def test_shards_are_made_ahead_of_what_is_read_and_no_further(tmp_path):
    log = tmp_path / "log"
    run = run_of(log)
    data = open_data(run, tmp_path)
    spool, said = data.tasks[0].train.spool, []
    begun, others = log.read_text().count("begun"), children()
    with writing(spool.task, spool.vocabulary, spool.index.directory, said.append):
        data.train.batch(0, 95)
        wait_for(lambda: spool.index.refresh().shard == 4 + AHEAD)
        time.sleep(0.3)
        assert spool.index.refresh().shard == 4 + AHEAD
        data.train.batch(95, 60)
        wait_for(lambda: spool.index.refresh().shard == 6 + AHEAD)
    assert log.read_text().count("begun") == begun + 1  # all of them by one process that began the stream once
    assert not said
    wait_for(lambda: not children() - others)


def test_where_it_is_killed_the_run_goes_on_by_itself(tmp_path):
    straight = open_data(run_of(), tmp_path / "straight").train.batch(0, 300)
    data = open_data(run_of(), tmp_path)
    spool, others = data.tasks[0].train.spool, children()
    with writing(spool.task, spool.vocabulary, spool.index.directory, print):
        (writer,) = children() - others
        wait_for(lambda: spool.index.refresh().shard >= AHEAD)
        os.kill(writer, signal.SIGKILL)
        batch = data.train.batch(0, 300)
    for name, whole in straight.items():
        np.testing.assert_array_equal(batch[name], whole)


def test_it_ends_with_the_process_that_began_it(tmp_path):
    open_data(run_of(), tmp_path)
    program = (
        "import sys, pickle, time; from pathlib import Path; from spanloom.pipeline.spool.writer import writing\n"
        "with writing(*pickle.loads(bytes.fromhex(sys.argv[1])), print):\n"
        "    print('begun', flush=True); time.sleep(600)"
    )
    data = open_data(run_of(), tmp_path)
    spool = data.tasks[0].train.spool
    argument = pickle.dumps((spool.task, spool.vocabulary, spool.index.directory)).hex()
    process = subprocess.Popen([sys.executable, "-c", program, argument], stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline() == b"begun\n"
        spool.index.want(3)
        wait_for(lambda: spool.index.refresh().shard > 3)
        writers = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.kill()
        process.wait()
        (writer,) = map(int, writers)
        wait_for(lambda: not Path(f"/proc/{writer}").exists() or _state(writer) == "Z")
    finally:
        process.kill()
        process.stdout.close()


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_several_who_read_one_directory_make_every_shard_once(tmp_path):
    log = tmp_path / "log"
    open_data(run_of(log), tmp_path)
    straight = open_data(run_of(), tmp_path / "straight").train.batch(0, 400)
    found: list[dict[str, np.ndarray]] = []
    readers = [open_data(run_of(log), tmp_path) for _ in range(4)]
    threads = [threading.Thread(target=lambda one=one: found.append(one.train.batch(0, 400))) for one in readers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    for batch in found:
        for name, whole in straight.items():
            np.testing.assert_array_equal(batch[name], whole)
    index = SpoolIndex(tmp_path / "stores/s/train.spool")
    assert index.last.shard == 14 and index.kept() == list(range(14))
