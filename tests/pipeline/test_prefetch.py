import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path

import pytest

import spanloom
from spanloom.pipeline.prefetch import prefetch


def make(step):
    return {"step": step}


def no_thread_left():
    for _ in range(6000):  # two minutes on a busy machine
        if not [thread for thread in threading.enumerate() if "grain" in thread.name]:
            return True
        time.sleep(0.02)
    return False


@pytest.mark.short
@pytest.mark.parametrize("ahead", [0, 1, 2, 7])
def test_batches_come_in_order(ahead):
    assert [batch["step"] for batch in prefetch(make, 3, 40, ahead)] == list(range(3, 40))
    assert no_thread_left()


def test_no_steps_no_batches():
    assert list(prefetch(make, 5, 5)) == []


def test_batches_are_made_ahead_but_not_further():
    made = []

    def record(step):
        made.append(step)
        return make(step)

    batches = prefetch(record, 0, 10**12, ahead=3)
    next(batches)
    deadline = time.monotonic() + 60
    while len(made) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.2)  # time for one too many
    assert made == [0, 1, 2, 3]
    batches.close()
    assert no_thread_left()


def fails_at_5(step):
    if step == 5:
        raise ValueError("no batch at step 5")
    return make(step)


def test_an_error_comes_where_its_batch_is_asked_for_with_its_own_traceback():
    batches = prefetch(fails_at_5, 2, 100)
    assert [next(batches)["step"] for _ in range(3)] == [2, 3, 4]
    with pytest.raises(ValueError, match="step 5") as caught:
        next(batches)
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert frames[-1].name == "fails_at_5"
    assert no_thread_left()


def test_leaving_a_loop_by_an_exception_closes_the_thread():
    def consume():
        for batch in prefetch(make, 0, 10**9):
            if batch["step"] == 3:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        consume()
    assert no_thread_left()


def test_ctrl_c_ends_a_process_that_waits_for_a_batch():
    code = (
        "import time\nfrom spanloom.pipeline.prefetch import prefetch\n"
        "for batch in prefetch(lambda step: time.sleep(0.3) or {'step': step}, 0, 10**9):\n"
        "    print(batch, flush=True)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "{'step': 0}\n"
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=300)
    assert process.returncode == -signal.SIGINT
    assert said.rstrip().endswith("KeyboardInterrupt")


@pytest.mark.parametrize(
    ("ending", "returned", "last_said"),
    [
        ("raise KeyboardInterrupt", -signal.SIGINT, "KeyboardInterrupt"),
        ("sys.exit(130)", 130, ""),
        ("kept = batches", 0, ""),
    ],
)
def test_a_process_ends_although_batches_are_on_the_way(ending, returned, last_said):
    code = (
        "import sys, time\nfrom spanloom.pipeline.prefetch import prefetch\n"
        "batches = prefetch(lambda step: time.sleep(0.05) or {'step': step}, 0, 10**9)\n"
        f"next(batches)\n{ending}\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == returned
    assert ended.stderr.rpartition("\n")[0].rpartition("\n")[2] == last_said
    assert ended.stderr.count("Traceback") == bool(last_said), "no thread has anything to say"


WITH_WORKERS = r"""
import os, signal, sys, time
from spanloom.pipeline.prefetch import prefetch

def make(step):
    os.write(1, f"{os.getpid()}\n".encode())  # one write a line: three processes have this pipe
    return step

if __name__ == "__main__":
    for step in prefetch(make, 0, 10**9, workers=2):
        if step == 9:
            os.write(1, b"ready\n")
            time.sleep(600)
"""


def running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="Linux says which processes there are")
@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_the_process_that_they_work_for(ending, tmp_path):
    (tmp_path / "made.py").write_text(WITH_WORKERS)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(spanloom.__file__).parents[1])])}
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "made.py")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    assert process.stdout is not None
    workers = set()
    for line in process.stdout:
        if line == "ready\n":
            break
        workers.add(int(line))
    assert len(workers) == 2 and process.pid not in workers
    if ending == signal.SIGINT:
        os.killpg(process.pid, ending)  # as a terminal does
    else:
        process.kill()
    _, said = process.communicate(timeout=300)
    deadline = time.monotonic() + 120
    while any(map(running, workers)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not [pid for pid in workers if running(pid)]
    assert said.count("Traceback") == (ending == signal.SIGINT), said
