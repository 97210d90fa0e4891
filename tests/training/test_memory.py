import platform
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import pytest

from spanloom.training.memory import return_freed_memory


@pytest.mark.short
def test_returning_memory_leaves_arrays_alone() -> None:
    x = jnp.arange(1000)
    return_freed_memory()
    assert int(x.sum()) == 499500


def page_faults_of_another_thread(before: str) -> float:
    """Pages that a fresh process takes for each of 20 arrays of 64 MiB, made and freed in a thread one by one."""
    script = f"""
import resource, threading
import numpy as np
from spanloom.training.memory import keep_freed_memory
{before}
def work():
    global faults
    for number in range(22):
        if number == 2:
            start = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        np.empty(2**23, np.float64).fill(number)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - start
thread = threading.Thread(target=work)
thread.start()
thread.join()
print(faults / 20)
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return float(ended.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc alone has these settings")
def test_freed_memory_is_kept_for_the_next_array() -> None:
    assert page_faults_of_another_thread("") > 20
    assert page_faults_of_another_thread("keep_freed_memory()") < 2


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are counted where Linux shows them")
def test_the_command_keeps_memory_before_any_thread_is_started(tmp_path: Path) -> None:
    script = """
import os, sys
import spanloom.training.memory as memory
from spanloom.cli.main import main
def count():
    print(len(os.listdir("/proc/self/task")), "jax" in sys.modules, flush=True)
    os._exit(0)
memory.keep_freed_memory = count
main(["train", "quickstart", "--out", sys.argv[1]])
"""
    ended = subprocess.run([sys.executable, "-c", script, str(tmp_path / "run")], capture_output=True, text=True)
    assert ended.stdout.splitlines()[-1] == "1 False", ended.stdout + ended.stderr
