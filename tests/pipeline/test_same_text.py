import os
from pathlib import Path

import pytest
import task_functions as own
from pipeline_data import sentences, text_task
from row_stores import build_stores, task_of, write_pairs

from spanloom.pipeline import same_text
from spanloom.pipeline.same_text import changed_code, changed_texts
from spanloom.pipeline.store import open_or_build_all
from spanloom.settings.function import Function
from spanloom.tasks.heldout import bound_of, is_heldout
from spanloom.vocabularies.build import build

pytestmark = pytest.mark.short


@pytest.fixture
def built(tmp_path):
    """A text file, its task and the stores of both parts, of several shards."""
    path = tmp_path / "a.txt"
    path.write_text("".join(f"{line!r}\n" for line in sentences(200)))
    task = text_task(str(path), heldout_share=0.2)
    places = {split: tmp_path / "stores" / split for split in ("train", "heldout")}
    stores = open_or_build_all(task, places, build(task.vocabulary), shard_bytes=2000)
    assert all(len(store.meta["shards"]) > 1 for store in stores.values())
    return path, task, stores


def never(*_):
    raise AssertionError("read all the same")


def test_files_that_look_as_they_did_or_are_gone_are_not_read(built, monkeypatch):
    path, task, stores = built
    monkeypatch.setattr(same_text, "read_task", never)
    assert changed_texts(task, stores) == set()
    path.unlink()
    assert changed_texts(task, stores) == set()


def test_a_touched_file_has_the_same_text(built):
    path, task, stores = built
    os.utime(path, (1, 1))
    assert changed_texts(task, stores) == set()


def test_both_parts_are_named_where_much_changed(built):
    path, task, stores = built
    lines = path.read_text().splitlines(keepends=True)
    assert changed(path, lines[:100], task, stores) == {"train", "heldout"}
    more = [*lines, *(f"{line!r}\n" for line in sentences(100, seed=7))]
    assert changed(path, more, task, stores) == {"train", "heldout"}


@pytest.mark.parametrize("part", ["train", "heldout"])
@pytest.mark.parametrize("place", [0, -1])
def test_the_part_that_lost_a_line_is_named(built, part, place):
    path, task, stores = built
    lines = path.read_text().splitlines(keepends=True)
    held_out = is_heldout([line.rstrip("\n").encode() for line in lines], bound_of(task.source.heldout_share))
    number = [number for number, held in enumerate(held_out) if held == (part == "heldout")][place]
    assert changed(path, lines[:number] + lines[number + 1 :], task, stores) == {part}


def changed(path: Path, lines: list[str], task, stores):
    path.write_text("".join(lines))
    return changed_texts(task, stores)


def test_nothing_is_written(built, tmp_path):
    path, task, stores = built
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p != path}
    assert changed(path, ["other\n"] * 50, task, stores)
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p != path} == before


def test_rows_of_preprocessors_are_compared_as_they_are_read(tmp_path):
    path = Path(write_pairs(tmp_path))
    task = task_of(str(path), own.not_third)
    stores = build_stores(task, tmp_path)
    os.utime(path, (1, 1))
    assert changed_texts(task, stores) == set()
    lines = path.read_text().splitlines(keepends=True)
    assert changed(path, [*lines[:-1], "other\tother\n"], task, stores) == {"train"}


def test_edited_code_is_told_from_other_settings_and_from_none(tmp_path):
    path = write_pairs(tmp_path)
    text = "BY = 3\ndef cut(example):\n    return {**example, 'inputs': example['inputs'][:BY]}\n"
    (tmp_path / "mine.py").write_text(text)
    task = task_of(path, Function(f"{tmp_path}/mine.py:cut"))
    stores = build_stores(task, tmp_path)
    assert changed_code(task, stores) == "" == changed_code(task_of(path), stores)
    (tmp_path / "mine.py").write_text(text.replace("BY = 3", "BY = 4"))
    assert changed_code(task, stores) == "the code of cut was edited"
    assert changed_code(task, {}) == ""
