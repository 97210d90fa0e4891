import json
from dataclasses import replace

import numpy as np
import pytest
from pipeline_data import tiny_run

from spanloom.evaluation.options import RankingError
from spanloom.evaluation.records import HeldoutTask, predictions_in, scored_in
from spanloom.evaluation.scoring import Score
from spanloom.evaluation.writing import Output
from spanloom.pipeline.data import open_data
from spanloom.pipeline.watched import open_heldout
from spanloom.settings.feature import Feature
from spanloom.settings.objectives import Supervised
from spanloom.settings.row_sources import RowFiles
from spanloom.settings.task import Task
from spanloom.tasks.prompts.prompted import ANSWER_NUMBER

pytestmark = pytest.mark.short
FEATURES = (Feature("inputs", add_eos=False), Feature("targets"))


class Echo:
    """Stands for a model: each token of a target costs its number in nats, and it writes its input."""

    def __init__(self):
        self.pairs = []

    def score_ids(self, pairs, batch_size):
        self.pairs += pairs
        return [Score(tuple(-float(token) for token in target)) for _, target in pairs]

    def write(self, requests, batch_size):
        assert {request.settings.max_length for request in requests} == {8}
        return [[Output(np.asarray(request.inputs), 0.0, 0.0)] for request in requests]


def some(row, rng):
    """Leaves rows out whenever they are read."""
    return row["number"] % 2 == 0


def with_choices(row):
    return {**row, "answer_choices": ["no", "yes", "no"], "label": row["number"] % 2}


def asked(tmp_path, rows, **more):
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "b.jsonl").write_text((tmp_path / "a.jsonl").read_text())
    settings = {"objective": Supervised(12, 8, too_long="trim"), "features": FEATURES, **more}
    task = Task("t", RowFiles((str(tmp_path / "b.jsonl"),), (str(tmp_path / "a.jsonl"),)), **settings)
    data = open_data(tiny_run(task).resolve(), tmp_path / "run")
    return HeldoutTask(task, data.tasks[0].heldout, data.vocabulary)


def records_of(asked, model=None):
    count = asked.heldout.num_examples
    return [one for block in asked.records(model or Echo(), range(count)) for one in block]


ROWS = [{"number": n, "inputs": f"in {n}", "targets": ["no", "yes"][n % 2]} for n in range(5)]


def test_choices_are_scored_behind_the_inputs_of_training(tmp_path):
    part = asked(tmp_path, ROWS, preprocessors=(with_choices,), postprocess=ANSWER_NUMBER)
    records = records_of(part, model := Echo())
    assert [record["example"] for record in records] == list(range(5))
    encode = part.vocabulary.encode
    assert {inputs for inputs, _ in model.pairs} == {tuple(encode(f"in {n}").tolist()) for n in range(5)}
    assert len(model.pairs) == len(set(model.pairs)) == 10, "the target is one of the choices, two of which read alike"
    no, yes = (-float(sum(encode(text).tolist()) + 1) for text in ("no", "yes"))
    for number, record in enumerate(records):
        assert record["scores"] == [no, yes, no] and record["lengths"] == [3, 4, 3]
        assert record["correct"] == [number % 2 == 0, number % 2 == 1, number % 2 == 0]
        assert record["loss"] == [-no, -yes][number % 2] and record["tokens"] == [3, 4][number % 2]
        assert (
            record["prediction"] == record["inputs"] == f"in {number}" and record["targets"] == ROWS[number]["targets"]
        )
    assert [(one.example, one.option, one.options, one.is_correct) for one in scored_in(records)][:4] == [
        *[(0, 0, 3, True), (0, 1, 3, False), (0, 2, 3, True), (1, 0, 3, False)]
    ]
    assert [one.number for one in predictions_in(records)] == list(range(5))
    assert not predictions_in(records_of(replace(part, writes=False)))


def test_rows_that_are_an_option_each(tmp_path):
    rows = [
        {"idx": [example, option], "inputs": "i", "targets": "ab"[option], "is_correct": option == 1, "weight": 2.0}
        for example in (4, 7)
        for option in (0, 1)
    ]
    records = records_of(asked(tmp_path, rows, metrics=("rank_classification",)))
    assert [one.key for one in scored_in(records)] == [(4, 0), (4, 1), (7, 0), (7, 1)]
    assert [one.is_correct for one in scored_in(records)] == [False, True] * 2
    assert {one.weight for one in scored_in(records)} == {2.0} and {one.options for one in scored_in(records)} == {0}
    assert [record["choices"] for record in records] == [["a"], ["b"]] * 2
    assert all("prediction" not in record and record["lengths"] == [2] for record in records)


@pytest.mark.parametrize("options", [1, 2, 3])
def test_rows_that_are_an_option_each_are_taken_with_all_options_of_their_example(tmp_path, options):
    rows = [
        {"idx": [example, option], "inputs": "i", "targets": "abc"[option], "is_correct": option == 0}
        for example in range(12)
        for option in range(options)
    ]
    part = asked(tmp_path, rows, metrics=("rank_classification",))
    chosen = part.with_all_options([1, 4, 8, 11])
    whole = sorted({row // options for row in [1, 4, 8, 11][::options]})
    assert chosen == [example * options + option for example in whole for option in range(options)]
    everything = list(range(12 * options))
    assert part.with_all_options(everything) == everything and part.with_all_options([]) == []
    assert [one.key for one in scored_in(one for block in part.records(Echo(), chosen) for one in block)] == [
        (example, option) for example in whole for option in range(options)
    ]


def test_rows_that_are_no_options_stay_alone(tmp_path):
    assert asked(tmp_path, ROWS, preprocessors=(with_choices,)).with_all_options([0, 3]) == [0, 3]


def test_what_a_preprocessor_leaves_out_when_it_is_read(tmp_path):
    records = records_of(asked(tmp_path, ROWS, preprocessors=(some,)))
    assert [record.get("left_out", False) for record in records] == [False, True, False, True, False]
    assert records[1] == {"example": 1, "left_out": True} and records[2]["targets"] == "no"


def test_targets_that_are_cut_are_kept_whole_and_marked(tmp_path):
    rows = [{"inputs": "i" * 40, "targets": "t" * length} for length in (7, 8)]
    records = records_of(asked(tmp_path, rows))
    assert [len(record["targets"]) for record in records] == [7, 8] and [len(one["inputs"]) for one in records] == [
        12
    ] * 2
    assert [record.get("cut", False) for record in records] == [False, True] and records[1]["tokens"] == 8


def test_choices_without_a_right_one_told_are_refused(tmp_path):
    rows = [{**ROWS[0], "answer_choices": ["a", "b"], "label": 5}]
    part = asked(tmp_path, rows, metrics=("accuracy",))
    with pytest.raises(RankingError, match="example 0: label 5 is no number from -1 to 1"):
        records_of(part)


def test_a_held_out_part_by_itself(tmp_path):
    """Where lengths are set its training part need not be built; where they are not, it is."""
    part = asked(tmp_path, ROWS)
    for name, lengths, parts in (("a", (12, 8), {"heldout"}), ("b", (None, 8), {"train", "heldout"})):
        task = replace(part.task, objective=Supervised(*lengths))
        run, place = tiny_run(task).resolve(), tmp_path / name
        options = {"progress": None, "workers": 1, "warn": print, "alone": True}
        found = open_heldout(run, [task], place, part.vocabulary, **options)["t"]
        assert {path.name for path in (place / "stores" / "t").iterdir() if path.is_dir()} == parts
        (batch,) = found.eval_batches(5)
        (same,) = open_data(run, tmp_path / f"{name}-whole").tasks[0].heldout.eval_batches(5)
        assert all(np.array_equal(batch[field], same[field]) for field in batch)
        assert found.content == open_data(run, place).tasks[0].heldout.content
