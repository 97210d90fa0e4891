from dataclasses import replace

import pytest
from pipeline_data import pair_task, text_task, tiny_run

from spanloom.pipeline.data import open_data
from spanloom.settings.mixture import Mixture, Weighted
from spanloom.tasks.read_report import BadInputError

pytestmark = pytest.mark.short


def mixture(*tasks):
    named = (replace(task, name=f"task {number}") for number, task in enumerate(tasks))
    return tiny_run(Mixture("all", tuple(map(Weighted, named))))


@pytest.fixture
def good(write_texts):
    return text_task(write_texts(["some words to learn from", "and some more of them"] * 20), heldout_share=0)


def test_all_tasks_whose_files_are_missing_are_named_before_anything_is_built(good, tmp_path):
    run = mixture(good, text_task(str(tmp_path / "gone.txt")), good, pair_task(str(tmp_path / "lost.tsv")))
    with pytest.raises(BadInputError, match=r"task 'task 1': .*gone\.txt.* of 1 more tasks be read: 'task 3'"):
        open_data(run, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_task_whose_store_is_there_needs_no_files(good, tmp_path, write_texts):
    run = mixture(good, replace(good, version="2"))
    open_data(run, tmp_path / "run")
    (tmp_path / "corpus.jsonl").unlink()
    assert open_data(run, tmp_path / "run").train.num_examples


@pytest.mark.parametrize("text", ["", "\n\n"])
def test_an_empty_task_among_others_is_named(good, text, tmp_path):
    (tmp_path / "empty.txt").write_text(text)
    with pytest.raises(BadInputError, match=r"task 'task 1': .*empty\.txt"):
        open_data(mixture(good, text_task(str(tmp_path / "empty.txt"))), tmp_path / "run")


def test_bad_input_of_a_task_among_others_is_said_to_be_its(good, tmp_path):
    (tmp_path / "bad.txt").write_bytes(b"fine\n\xff\xfe broken\n" * 5)
    with pytest.raises(BadInputError, match=r"^task 'task 1': .*bad\.txt"):
        open_data(mixture(good, text_task(str(tmp_path / "bad.txt"))), tmp_path / "run")


def test_a_task_that_is_alone_is_not_named(tmp_path):
    with pytest.raises(BadInputError, match=r"^(?!task).*gone\.txt"):
        open_data(tiny_run(text_task(str(tmp_path / "gone.txt"))), tmp_path / "run")
