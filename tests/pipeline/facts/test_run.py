"""What is collected of whole runs: rows that preprocessors make, vocabularies of their own, no held-out part."""

import json
from dataclasses import replace

import pytest
from pipeline_data import pair_task, sentences, text_task, tiny_run

from spanloom.pipeline.data import open_data
from spanloom.pipeline.eras import Resumption
from spanloom.pipeline.facts.run import run_facts
from spanloom.settings.feature import Feature
from spanloom.settings.function import Function
from spanloom.settings.mixture import Mixture, Weighted
from spanloom.settings.objectives import Supervised
from spanloom.settings.packing import Packed
from spanloom.settings.row_sources import RowFiles
from spanloom.settings.task import Task
from spanloom.settings.vocabulary import Bytes
from spanloom.vocabularies.build import build

CODE = """
def pair(row):
    return {"inputs": row["a"], "targets": row["b"]}

def longer(example, rng):
    return {**example, "targets": example["targets"] * (1 + int(rng.integers(0, 9)))}

def some(example, rng):
    return bool(rng.integers(0, 2))
"""


@pytest.fixture
def task_of(tmp_path):
    """A task on rows, with functions of a file as preprocessors."""
    code, rows = tmp_path / "code.py", tmp_path / "rows.jsonl"
    code.write_text(CODE)
    rows.write_text("".join(json.dumps({"a": f"text {number}", "b": "abc"}) + "\n" for number in range(60)))

    def make(name: str, *functions: str, features=(), **objective) -> Task:
        chosen = tuple(Function(f"{code}:{function}") for function in functions)
        source = RowFiles((str(rows),), heldout_share=0.0)
        return Task(name, source, Bytes(), Supervised(**objective), preprocessors=chosen, features=features)

    return make


def facts_of(task, folder, *, examples=30, **settings):
    run = replace(tiny_run(task), batch_size=4, steps=5, **settings).resolve()
    data = open_data(run, folder)
    return run_facts(run, data, data.tasks, examples=examples, rows=1), data


def text_of(pieces) -> str:
    return "".join(piece.text for piece in pieces)


def test_rows_made_when_they_are_read_are_shown_and_measured_as_they_are_drawn(task_of, tmp_path):
    task = task_of("made", "pair", "longer", inputs_length=12, targets_length=9, too_long="trim")
    facts, data = facts_of(task, tmp_path / "a")
    (one,) = facts.tasks
    targets = one.facts.lengths["targets"]
    assert targets.is_sample and 9 < targets.longest <= 28 and 0 < targets.share_truncated < 1
    batch = data.tasks[0].train.batch(0, 60)
    assert targets.mean == batch["decoder_loss_weights"].sum(axis=1).mean()
    for row, example in enumerate(one.examples):
        ids = [id_ for piece in example.targets for id_ in piece.ids]
        assert batch["decoder_target_tokens"][row, : len(ids)].tolist() == ids
    assert one.facts.tokens == 0 and one.facts.misfits[0].startswith("targets of ")


def test_an_example_that_a_filter_leaves_out_is_empty(task_of, tmp_path):
    task = task_of("made", "pair", "some", inputs_length=12, targets_length=9)
    facts, _ = facts_of(task, tmp_path / "a")
    left_out = [not example.inputs and not example.targets for example in facts.tasks[0].examples]
    assert any(left_out) and not all(left_out)


def test_features_with_their_own_vocabulary_and_end(task_of, tmp_path):
    features = (Feature("inputs", Bytes(extra_ids=5)), Feature("targets", add_eos=False))
    facts, _ = facts_of(task_of("once", "pair", features=features, targets_length=2, too_long="trim"), tmp_path / "a")
    (one,) = facts.tasks
    assert text_of(one.examples[0].inputs).startswith("text ") and text_of(one.examples[0].inputs).endswith("</s>")
    assert text_of(one.examples[0].targets) == "ab" and one.examples[0].cut == (0, 1)
    targets = one.facts.lengths["targets"]
    assert (targets.longest, targets.truncated, targets.mean, targets.is_sample) == (3, 60, 2.0, False)
    assert one.facts.tokens == sum(len(f"text {number}") + 3 for number in range(60))


def test_pairs_with_masked_spans_of_their_own_are_shown_as_such(tmp_path, write_pairs):
    google = Bytes("google")
    task = pair_task(write_pairs([("ab", "cd")] * 9), vocabulary=google)
    vocabulary = build(google)
    facts, data = facts_of(task, tmp_path / "a")
    drawn = data.tasks[0].train.drawn(0, 1)[0]
    from spanloom.pipeline.facts.pieces import lay_out

    first = vocabulary.sentinels[0]
    spans = replace(drawn, inputs=drawn.inputs * 0 + [100, first, 1], targets=drawn.targets * 0 + [first, 100, 1])
    shown = lay_out(spans, task.objective, vocabulary)
    assert [(piece.kind, piece.span) for piece in shown.inputs] == [("text", None), ("sentinel", 0), ("eos", None)]
    assert [(piece.kind, piece.span) for piece in shown.targets] == [("sentinel", 0), ("text", 0), ("eos", 0)]
    one_side = lay_out(replace(drawn, inputs=spans.inputs), task.objective, vocabulary)
    assert [piece.kind for piece in one_side.inputs] == ["text", "stray", "eos"]
    assert facts.tasks[0].facts.misfits[0].startswith("88.9% of the pairs")


def test_no_held_out_part_no_examples_and_no_steps(tmp_path, write_texts):
    task = text_task(write_texts(sentences(60)), heldout_share=0.0)
    facts, _ = facts_of(task, tmp_path / "a", examples=0)
    assert facts.tasks[0].facts.heldout == 0 and facts.tasks[0].examples == ()
    run = replace(tiny_run(task), steps=0).resolve()
    data = open_data(run, tmp_path / "a")
    none = run_facts(run, data, data.tasks, examples=1)
    assert none.planned.total == 0 and none.tasks[0].facts.share == 0 and none.warnings == ()


def test_draws_of_a_run_whose_tasks_changed_on_the_way_are_counted_under_their_names(tmp_path, write_texts):
    tasks = {name: replace(text_task(write_texts(sentences(60))), name=name) for name in "acb"}
    before = Mixture("all", tuple(Weighted(tasks[name]) for name in "ac"))
    now = Mixture("all", (*before.parts, Weighted(tasks["b"], 6.0)))
    _, data = facts_of(before, tmp_path / "a")
    run = replace(tiny_run(now), batch_size=4, steps=30).resolve()
    data = open_data(run, tmp_path / "a", resumption=Resumption(data.eras, {"examples": 40}))
    facts = run_facts(run, data, data.tasks, examples=0)
    assert {one.facts.name: one.facts.draws for one in facts.tasks} == {"a": 30, "c": 30, "b": 60}


@pytest.mark.parametrize("packing", [None, Packed(inputs_length=200, targets_length=100)])
def test_segments_name_the_tasks_that_they_are_of(tmp_path, write_texts, write_pairs, packing):
    text = text_task(write_texts(sentences(90)), heldout_share=0.0)
    pairs = pair_task(write_pairs([(f"in {number}", "out") for number in range(40)]))
    settings = {} if packing is None else {"packing": packing}
    facts, _ = facts_of(Mixture("both", (Weighted(text), Weighted(pairs))), tmp_path / "a", **settings)
    segments = [segment for row in facts.batch.rows for segment in row.segments]
    assert facts.batch.is_packed is (packing is not None)
    assert {segment.task for segment in segments} == {"text", "pairs"}
    assert all((segment.lengths["decoder"] == 4) == (segment.task == "pairs") for segment in segments)
    assert sum(one.facts.draws for one in facts.tasks) == facts.planned.total
    assert facts.planned.is_exact is (packing is None)
