"""The benchmarks run: what they measure is for people, that they still can is for tests."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"
SCRIPTS = sorted(path.name for path in BENCHMARKS.glob("*.py") if not path.stem.endswith("_worker"))


def run(*command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(BENCHMARKS.parent)}
    return subprocess.run(command, capture_output=True, text=True, env=environment)


@pytest.mark.parametrize("script", SCRIPTS)
def test_each_says_what_it_does(script: str) -> None:
    ended = run(sys.executable, str(BENCHMARKS / script), "--help")
    assert ended.returncode == 0, ended.stderr
    assert "usage:" in ended.stdout and len(ended.stdout) > 200


@pytest.mark.parity
def test_the_gpu_script_runs_dry(tmp_path: Path) -> None:
    ended = run(str(BENCHMARKS / "gpu.sh"), "--dry-run", "--output", str(tmp_path))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    results = json.loads((tmp_path / "gpu-cpu.json").read_text())
    assert [row["contender"] for row in results["speed"]] == ["scanned", "unrolled", "transformers"]
    assert all(row["tokens_per_s"] > 0 and row["peak_gib"] > 0 for row in results["speed"])
    assert len(results["checks"]) == 3 and all(row["passed"] for row in results["checks"])
    assert "| byt5_nano | 2 x 32/8 | transformers |" in (tmp_path / "gpu-cpu.md").read_text()


@pytest.mark.parity
def test_a_failed_check_fails_the_gpu_script(tmp_path: Path) -> None:
    code = (
        "import sys, gpu; gpu.DRY_SIZES = (); gpu.CHECKS = (lambda config: gpu.result('of a test', 2.0, 1.0),); "
        f"sys.argv = ['gpu.py', '--dry-run', '--output', {str(tmp_path)!r}]; sys.exit(gpu.main())"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=BENCHMARKS)
    assert ended.returncode == 1 and "FAILED of a test" in ended.stdout, ended.stderr
