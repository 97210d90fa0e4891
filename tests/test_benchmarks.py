"""The benchmarks run: what they measure is for people, that they still can is for tests."""

import importlib.util
import io
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spanloom.settings.run import Run
from spanloom.training.checkpoint_paths import latest
from spanloom.training.progress import Pace, PlainDisplay

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


# Every script at its smallest, and what it then says. Those of the training step build T5 1.1 small or need a GPU: the
# worker that they share runs below, on a tiny model.
SMALLEST = {
    "cli.py": (["--repeat", "1"], "spanloom recipes"),
    "convert.py": (
        ["--width", "32", "--layers", "1", "--rounds", "1", "--ways", "safetensors", "hf"],
        r"\| hf \| \d.* \| [\d,]+ \|",
    ),
    "data.py": (["--quick", "--text", "TEXT"], "store to batch"),
    "identical_loss.py": (["HEAD", "--steps", "1", "--cases", "scanned"], "identical to|scanned: differs from step"),
    "generate.py": (
        [
            *("--model", "t5_1_1_tiny", "--batch", "2", "--length", "8", "--tokens", "3", "--rounds", "1"),
            *("--beams", "2", "--contenders", "spanloom"),
        ],
        r"\| 2 \| spanloom \| \d",
    ),
    "growth.py": (["--rounds", "1", "--width", "16"], r"layers +8: .*exponent(.|\n)*at step 10,000,000: CPU s: save"),
    "loop.py": (["--rounds", "1", "--steps", "8", "--width", "16"], r"in train a step takes \d.* of its time alone"),
    "loader.py": (["--sizes", "0.001", "0.003"], r"at most \d+ MB of a loader's own memory"),
    "mixing.py": (["--tasks", "10", "--repeats", "1"], "10 tasks: .* million draws per CPU second"),
    "packing.py": (["--rows", "128", "--repeats", "1", "--tasks", "3"], "3 tasks, targets of median 60: .* rows"),
    "objectives.py": (["--blocks", "8"], "ByT5 1024/189 .* examples(.|\n)*UL2 .* examples"),
    "optimizers.py": (
        ["--dry-run", "--steps", "4", "--seeds", "1", "--text", "TEXT", "--optimizers", "adamw", "schedule-free"],
        r"\| schedule-free \| 0.004 \| \d",
    ),
}


def test_every_script_has_a_smallest_run() -> None:
    assert {*SMALLEST, "gpu.py", "pods.py", "tpu.py", "train_step.py"} == set(SCRIPTS)


@pytest.mark.parametrize("script", list(SMALLEST))
def test_each_runs_at_its_smallest(script: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("".join(f"line {number} of a text, of some words\n" for number in range(2000)))
    words, said = SMALLEST[script]
    words = [str(tmp_path / "text.txt") if word == "TEXT" else word for word in words]
    if script == "identical_loss.py" and not (BENCHMARKS.parent / ".git").exists():
        pytest.skip("there is no other revision to compare with")
    ended = run(sys.executable, str(BENCHMARKS / script), *words)
    assert re.search(said, ended.stdout), ended.stdout + ended.stderr
    assert ended.returncode == ("differs from" in ended.stdout), ended.stderr


def test_the_comparison_of_optimizers_goes_on_where_it_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of its second run: the first is not made again, and the second ends as if nothing had happened."""
    script = imported("optimizers", monkeypatch)
    train, begun = script.train, []

    class Stops(PlainDisplay):
        def advance(self, pace: Pace, log_line: bool) -> None:
            if pace.step == 2:
                os.kill(os.getpid(), signal.SIGTERM)

    def watched(run: Run, directory: Path, display: PlainDisplay) -> bool:
        begun.append((run.seed, latest(directory) is not None))
        return train(run, directory, display=Stops(io.StringIO()) if len(begun) == 2 else display)

    monkeypatch.setattr(script, "train", watched)
    monkeypatch.setattr(script, "speeds", lambda plan, names: {name: {} for name in names})
    monkeypatch.setattr(script, "table", lambda plan, results: [])
    monkeypatch.setattr("spanloom.training.loop.enable_compile_cache", lambda: None)
    text = tmp_path / "text.txt"
    text.write_text("".join(f"line {number} of a text, of some words\n" for number in range(2000)))
    plan = script.Plan(script.TINY, str(text), 4, 2, 1, tmp_path / "results.json", tmp_path / "runs", tuned=False)
    with pytest.raises(SystemExit, match="the same command goes on"):
        script.compare(plan, ["adamw"])
    assert [run["seed"] for run in json.loads(plan.results.read_text())["runs"]] == [0]
    script.compare(plan, ["adamw"])
    script.compare(plan, ["adamw"])
    assert begun == [(0, False), (1, False), (1, True)]
    first, second = json.loads(plan.results.read_text())["runs"]
    other = replace(plan, results=tmp_path / "other.json", runs=tmp_path / "others")
    again = script.trained(other, script.Results(other.results, other.described), "adamw", 2e-3, 1, 4)
    assert again["heldout_loss"] == second["heldout_loss"] != first["heldout_loss"]
    assert again["train_loss"] == second["train_loss"]


def imported(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A script as a module."""
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, script)  # dataclasses look their module up
    spec.loader.exec_module(script)
    return script


@pytest.mark.long
def test_the_tpu_script_compiles_or_says_what_is_missing(tmp_path: Path) -> None:
    script, rows = str(BENCHMARKS / "tpu.py"), tmp_path / "rows.json"
    ended = run(sys.executable, script, "--cases", "tiny", "--remat", "none", "cheap", "--output", str(rows))
    if importlib.util.find_spec("libtpu") is None:
        assert ended.returncode == 2 and "pip install 'spanloom[tpu]'" in ended.stderr, ended.stderr
        return
    assert ended.returncode == 0 and "| tiny | none | 0." in ended.stdout, ended.stdout + ended.stderr
    kept, cheap = json.loads(rows.read_text())
    assert kept["devices"] == 4 and 0.01 < kept["tflop"] <= cheap["tflop"] < 1.1 * kept["tflop"] < 1


def test_the_tpu_script_says_what_further_layers_cost() -> None:
    code = (
        "import tpu; same = {'gib': 1.0, 'case': 'base-v4', 'remat': 'none', 'compile_s': 1}; "
        "few, more = ({**same, 'layers': n, 'tflop': 3 + n, 'gb': 5 + 2 * n} for n in (2, 4)); "
        "row = tpu.extrapolated(few, more, 12); print(row['layers'], row['tflop'], row['gb'], row['gib']); "
        "print(len([*tpu.goals(row, None)]), tpu.markdown([row]).splitlines()[-1])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=BENCHMARKS)
    costs, rest = ended.stdout.splitlines()
    assert costs == "12 15.0 29.0 None", ended.stderr
    assert rest == "2 | base-v4 | none | 15.00 | 7.89 | 1.90 | 29.0 | 83.5 | 0.35 | - | - | - | 1 |"


@pytest.mark.parity
def test_the_gpu_script_runs_dry(tmp_path: Path) -> None:
    ended = run(str(BENCHMARKS / "gpu.sh"), "--dry-run", "--output", str(tmp_path))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    results = json.loads((tmp_path / "gpu-cpu.json").read_text())
    assert [row["contender"] for row in results["speed"]] == ["einsum", "cudnn", "unrolled", "transformers"]
    assert all(row["tokens_per_s"] > 0 and row["peak_gib"] > 0 for row in results["speed"])
    assert len(results["checks"]) == 5 and all(row["passed"] for row in results["checks"])
    assert "| byt5_nano | 2 x 32/8 | transformers |" in (tmp_path / "gpu-cpu.md").read_text()


@pytest.mark.parity
def test_a_failed_check_fails_the_gpu_script(tmp_path: Path) -> None:
    code = (
        "import sys, gpu; gpu.DRY_SIZES = (); gpu.CHECKS = (lambda config: gpu.result('of a test', 2.0, 1.0),); "
        f"sys.argv = ['gpu.py', '--dry-run', '--output', {str(tmp_path)!r}]; sys.exit(gpu.main())"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=BENCHMARKS)
    assert ended.returncode == 1 and "FAILED of a test" in ended.stdout, ended.stderr
