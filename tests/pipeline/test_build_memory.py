"""Memory of whole processes that build a store: what is theirs alone (RssAnon), summed over all of them, in MiB."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from build_store_process import __file__ as helper

CODE = """
import sys
from dataclasses import replace
from pathlib import Path
import task_functions
from pipeline_data import text_task
from spanloom.settings.row_sources import RowFiles
from spanloom.pipeline.store import open_or_build_all
from spanloom.vocabularies.build import build
task = text_task(sys.argv[1])
if sys.argv[3]:
    rows = RowFiles((sys.argv[1],), heldout_share=0.05)
    task = replace(task, source=rows, preprocessors=(task_functions.upper_text,))
directories = {split: Path(sys.argv[1] + "." + split) for split in ("train", "heldout")}
open_or_build_all(task, directories, build(task.vocabulary), workers=int(sys.argv[2]))
"""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux says what is a process's own"),
]
LIMIT = 1e9 / 2**20


def anonymous(process: psutil.Process) -> float:
    try:
        status = Path(f"/proc/{process.pid}/status").read_text()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("RssAnon")), 0.0)


def peak_of_build(corpus: Path, workers: int, preprocessed: bool = False) -> float:
    environment = {**os.environ, "PYTHONPATH": str(Path(helper).parent)}
    command = [sys.executable, "-c", CODE]
    process = subprocess.Popen([*command, str(corpus), str(workers), "yes" if preprocessed else ""], env=environment)
    root, peak = psutil.Process(process.pid), 0.0
    while process.poll() is None:
        peak = max(peak, sum(map(anonymous, [root, *root.children(recursive=True)])))
        time.sleep(0.005)
    assert process.returncode == 0
    print(f"{corpus.name}, {workers} processes{', preprocessed rows' * preprocessed}: {peak:.0f} MiB")
    return peak


def write_lines(path: Path, megabytes: int) -> Path:
    line = "all the novels of the world and then some more " * 200
    with path.open("w") as file:
        for number in range(megabytes * 10**6 // len(line)):
            file.write(json.dumps({"text": f"{number} {line}"}) + "\n")
    return path


def test_memory_does_not_grow_with_the_corpus(tmp_path):
    small, large = (peak_of_build(write_lines(tmp_path / f"{size}.jsonl", size), 1) for size in (100, 800))
    assert large < small + 100 and large < 400


def test_memory_of_several_processes(tmp_path):
    assert peak_of_build(write_lines(tmp_path / "a.jsonl", 500), 3) < LIMIT


def test_memory_of_rows_and_preprocessors(tmp_path):
    small, large = (peak_of_build(write_lines(tmp_path / f"{size}.jsonl", size), 1, True) for size in (100, 300))
    assert large < small + 100 and large < 400
    for path in tmp_path.glob("300.jsonl.*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert peak_of_build(tmp_path / "300.jsonl", 3, True) < LIMIT


@pytest.mark.parametrize("ending", ["txt", "jsonl"])
@pytest.mark.parametrize("letters", ["0123456789", "水と火 книга "])
def test_a_line_of_200_mb(tmp_path, ending, letters):
    text = letters * (200_000_000 // len(letters.encode()))
    path = tmp_path / f"a.{ending}"
    with path.open("w", encoding="utf-8") as file:
        for document in ("short", text, "another"):
            file.write(document if ending == "txt" else json.dumps({"text": document}, ensure_ascii=False))
            file.write("\n")
    assert peak_of_build(path, 1) < LIMIT
