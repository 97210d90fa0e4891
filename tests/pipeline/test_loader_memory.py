"""Memory of a process that reads: flat with the size of the store. benchmarks/loader.py measures it at up to 10 GB."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux says what is a process's own")


@pytest.mark.slow
def test_a_loader_takes_at_most_150_mb_whatever_the_size_of_the_store(tmp_path):
    file = tmp_path / "figures.json"
    script = [sys.executable, str(BENCHMARKS / "loader.py"), "--sizes", "0.05", "2", "--json", str(file)]
    subprocess.run(script, check=True, env={**os.environ, "PYTHONPATH": str(BENCHMARKS.parent)})
    for kind, found in json.loads(file.read_text()).items():
        small, large = (found[size]["more_mb"] for size in ("0.05 GB", "2 GB"))
        assert large < 150, kind
        assert large < small + 40, kind
