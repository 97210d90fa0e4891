import math
from dataclasses import replace
from pathlib import Path

import pytest
from pipeline_data import sentences, text_task

from spanloom.pipeline import build_progress
from spanloom.pipeline.build_progress import AllMeter, BuildProgress, Meter
from spanloom.pipeline.shard_maker import Count
from spanloom.settings.task import PythonDocs
from spanloom.tasks.read_report import ReadReport


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(build_progress.time, "monotonic", lambda: now[0])
    return now


def progress(task: str, done: int, read: int) -> BuildProgress:
    return BuildProgress(task, "train", done, 10 * done, 11 * done, 1, False, read_bytes=read)


def test_what_was_found_done_is_counted_but_makes_no_pace(write_texts, clock):
    task, told = text_task(write_texts(sentences(100))), []
    report = ReadReport()
    meter = Meter(task, {"train": report}, told.append)
    clock[0] += 2.0
    report.file_bytes = 1000
    meter.count(Count(5, 600, 700, found=True))
    meter.count(Count(3, 400, 500, found=False))
    last = told[-1]
    assert (last.examples, last.text_bytes, last.tokens, last.read_bytes) == (8, 1000, 1200, 1000)
    assert (last.bytes_per_second, last.tokens_per_second) == (200.0, 250.0)
    size = Path(task.source.files[0]).stat().st_size
    assert last.seconds_left == pytest.approx(2.0 * (size - 1000) / 1000)


def test_all_tasks_add_up_and_time_is_in_proportion_to_their_files(write_texts, clock):
    files = [write_texts(sentences(count), f"{count}.jsonl") for count in (100, 100, 200)]
    tasks = [replace(text_task(file), name=str(number)) for number, file in enumerate(files)]
    sizes = [Path(file).stat().st_size for file in files]
    told = []
    meter = AllMeter(tasks, told.append)
    meter.begin(tasks[0])
    clock[0] += 50.0
    assert meter.end() is None  # it was there already: neither its size nor its time says anything of the others
    meter.begin(tasks[1])
    clock[0] += 3.0
    meter.building(progress("1", 30, sizes[1] // 2))
    assert (told[-1].done, told[-1].tasks, told[-1].examples) == (1, 3, 30)
    ahead = sizes[1] - sizes[1] // 2 + sizes[2]
    assert told[-1].seconds_left == pytest.approx(3.0 * ahead / (sizes[1] // 2))
    clock[0] += 1.0
    assert meter.end() == 4.0
    meter.begin(tasks[2])
    clock[0] += 6.0
    meter.building(progress("2", 70, sizes[2]))
    last = told[-1]
    assert (last.done, last.examples, last.text_bytes, last.tokens) == (2, 100, 1000, 1100)
    assert (last.bytes_per_second, last.tokens_per_second) == (100.0, 110.0)
    assert last.seconds_left == pytest.approx(10.0 * (sizes[1] - sizes[1] // 2) / (sizes[1] // 2 + sizes[2]), abs=10)


def test_nobody_knows_where_a_size_is_unknown_or_files_are_missing(write_texts, clock):
    first = text_task(write_texts(sentences(100)))
    others = [replace(first, name="docs", source=PythonDocs()), replace(text_task("/nowhere/a.txt"), name="missing")]
    for other in others:
        told = []
        meter = AllMeter([first, other], told.append)
        meter.begin(first)
        clock[0] += 1.0
        meter.building(progress("text", 10, 100))
        assert math.isnan(told[-1].seconds_left)
