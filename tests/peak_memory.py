"""How much memory some code takes, measured in a process of its own: one that did more before tells nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

_MEASURE = """
import sys

def memory(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name))

exec(sys.argv[1])
before = memory("VmRSS")
exec(sys.argv[2])
print((memory("VmHWM") - before) / 1024)
"""


def peak_growth(prepare: str, code: str, *arguments: str) -> float:
    """MiB by which the code grows the process at most, after `prepare`; both find the arguments in sys.argv[3:].

    It is the kernel's high-water mark of the process image: ru_maxrss counts that of the parent, too.
    """
    if not Path("/proc/self/status").exists():
        pytest.skip("Linux says how much memory a process had at most")
    command = [sys.executable, "-c", _MEASURE, prepare, code, *arguments]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return float(run.stdout.splitlines()[-1])
