"""Run directories as a training run leaves them, written by hand in no time, for what only reads them."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

from bare_checkpoint import save_bare
from tiny_training import tiny_run

from spanloom.settings.mixture import Mixture, Weighted
from spanloom.settings.run import Evaluation, Run
from spanloom.settings.serialize import to_json
from spanloom.settings.stages import linked, stage_directories
from spanloom.training.run_file import write_run

HOSTILE = "</script><script>alert(1)</script> \"q\" 'a' & \x1b[31m \u202e <!-- ${x} \\u003c"
START = {"kind": "start", "step": 0, "parameters": 17_136, "peak_flops": 1e11, "spanloom": "0.1.0", "python": "3.11.7"}
START |= {"jax": "0.10.2", "devices": "4 x TPU v4", "cpu_count": 2}


def run_of(names: tuple[str, ...] = ("en",), steps: int = 100, **changes: Any) -> Run:
    """A tiny run; of several tasks a mixture of them."""
    run = tiny_run(Path("/texts/a.txt"), steps, **changes)
    tasks = [dataclasses.replace(run.task, name=name) for name in names]
    task = tasks[0] if len(tasks) == 1 else Mixture("all", tuple(Weighted(one, 1.0 + n) for n, one in enumerate(tasks)))
    return dataclasses.replace(run, task=task).resolve()


def train_line(step: int, loss: float | None = None, **more: Any) -> dict[str, Any]:
    """A line of training: 0.36 s a step, a tenth of the time for evaluating."""
    line = {"kind": "train", "step": step, "loss": 2 + 5 / step if loss is None else loss, "accuracy": 0.3}
    line |= {"learning_rate": 0.01, "grad_norm": 1.0, "tokens_per_second": 1000.0, "seconds_per_step": 0.36, "mfu": 0.4}
    line |= {"encoder_tokens_per_second": 800.0, "encoder_tokens_per_second_padded": 1000.0}
    line |= {"data_wait": 0.05, "checkpoint_time": 0.0, "eval_time": 0.1, "step_time": 0.85}
    return line | more


def eval_line(step: int, task: str, loss: float, **more: Any) -> dict[str, Any]:
    return {"kind": "eval", "step": step, "task": task, "heldout_loss": loss, "heldout_tokens": 500.0, **more}


def lines_of(run: Run, steps: int, worse: float = 0.0) -> list[dict[str, Any]]:
    """Of a run that logs each step and evaluates every tenth."""
    lines: list[dict[str, Any]] = [START]
    for step in range(1, steps + 1):
        lines.append(train_line(step))
        if step % 10 == 0:
            tasks = (*run.tasks, *run.eval.also)
            lines += [eval_line(step, task.name, 3 + worse + n + 1 / step) for n, task in enumerate(tasks)]
    return lines


def write_lines(directory: Path, lines: list[dict[str, Any]]) -> None:
    (directory / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def make_run(directory: Path, run: Run | None = None, steps: int = 30, lines: list[Any] | None = None) -> Path:
    """A run directory after so many steps, with a checkpoint, a store, what it filled in, and an evaluation."""
    run = run or run_of()
    directory.mkdir(parents=True, exist_ok=True)
    write_run(run, directory)
    write_lines(directory, lines_of(run, steps) if lines is None else lines)
    save_bare(directory, steps, run)
    command = ["spanloom", "train", "mine.py", "--steps", "100"]
    entry = {
        "time": "2026-01-02T03:04:05+00:00",
        "command": command,
        "directory": "/",
        "version": "0.1.0",
        "step": None,
    }
    (directory / "commands.jsonl").write_text(json.dumps(entry) + "\n")
    for task in run.tasks:
        for part, examples in (("train", 90), ("heldout", 10)):
            write_store(directory, task.name, part, examples)
    pieces = [["The ", None, True], ["cat", "cat", True], [" sat on ", None, True], ["a mat", "<b>the", True]]
    results = {"text": "  this model  2.5\n  unigram     3.5", "kind": "", "values": {}, "fills": [pieces], "hint": ""}
    (directory / "results.json").write_text(json.dumps({"key": "", "crc32": 0, "results": results}))
    return directory


def write_store(directory: Path, task: str, part: str, examples: int, **fingerprint: Any) -> None:
    from urllib.parse import quote

    place = directory / "stores" / quote(task, safe=" ") / part
    place.mkdir(parents=True, exist_ok=True)
    columns = {"tokens": {"rows": examples, "tokens": 7 * examples}}
    settings = {"files": ["/texts/a.txt"]}
    meta = {
        "counts": {"examples": examples, "characters": 6 * examples, "columns": columns},
        "report": {"documents": examples, "files": 1},
        "fingerprint": {"source": "abc", "source_settings": settings, **fingerprint},
    }
    (place / "meta.json").write_text(json.dumps(meta))


def add_evaluation(directory: Path, run: Run, steps: tuple[int, ...] = (10, 20)) -> None:
    """Results of `spanloom eval`, and what each checkpoint wrote for two examples."""
    folder = directory / "eval"
    folder.mkdir()
    rows = []
    for step in steps:
        name = f"{directory.name}-{step}"
        for task in run.tasks:
            row = {"checkpoint": name, "kind": "task", "data_set": task.name, "template": "", "task": task.name}
            rows.append({**row, "examples": 2, "loss": 3 - step / 100, "exact_match": None})
            (folder / name).mkdir(exist_ok=True)
            records = [
                {
                    "example": number,
                    "inputs": f"The <extra_id_0> sat <extra_id_1> {number}",
                    "targets": "<extra_id_0> cat <extra_id_1> down",
                    "prediction": f"<extra_id_0> dog{step} <extra_id_1> <i>up",
                }
                for number in range(2)
            ]
            (folder / name / f"{task.name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    (folder / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def make_stages(directory: Path, done: int = 2) -> Path:
    """Two stages, of which so many have trained: the second one forgets some of what the first has learnt."""
    runs = [run_of((name,), 20, name=name) for name in ("en", "de")]
    plain = [dataclasses.replace(run, out=None, start=None, eval=Evaluation(every=10)) for run in runs]
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "stages.json").write_text(json.dumps({"format": 1, "stages": [to_json(run) for run in plain]}))
    stages = linked(plain, directory)
    for number, (run, place) in enumerate(zip(stages, stage_directories(stages, directory), strict=True)):
        if number >= done:
            continue
        lines: list[dict[str, Any]] = [START, *(train_line(step) for step in range(1, 21))]
        lines += [eval_line(20, "en", 2.0 + 0.5 * number), eval_line(20, "de", 4.0 - number)]
        make_run(place, run.resolve(), 20, sorted(lines, key=lambda line: line["step"]))
    return directory


def wild_lines() -> list[Any]:
    """What no run should write: huge, negative and missing numbers, and text in every place."""
    return [
        {**START, "devices": HOSTILE, "parameters": 10**400, "jax": HOSTILE},
        train_line(1, 1e308),
        train_line(2, -1e308, mfu=None),
        train_line(3, math.nan),
        train_line(4, math.inf, grad_norm=10**400, tokens_per_second=0.0, seconds_per_step=0.0),
        train_line(5, True, **{HOSTILE: 3.0, "learning_rate": "0.1", "nested": {"a": 1}}),
        eval_line(5, HOSTILE, 1e-300, **{f"exact {HOSTILE}": 1.0}),
        eval_line(6, HOSTILE, None),  # type: ignore[arg-type]
        train_line(7, None, eval_time=1.0, encoder_tokens_per_second_padded=0.0),
        {"kind": "train", "step": 10**400, "loss": 1.0},
        {"kind": "train", "step": -1, "loss": 1.0},
        {"kind": "train", "step": "8", "loss": 1.0},
        {"kind": 3, "step": 9},
        [1, 2],
        "x",
        {"kind": HOSTILE, "step": 9, "values": [1]},
        {"kind": "diverged", "step": 9, "loss": None},
    ]
