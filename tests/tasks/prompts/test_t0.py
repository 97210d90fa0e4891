import csv
import gzip
import json

import pytest
from golden_data import shared_dir

from spanloom.tasks.prompts import t0_table
from spanloom.tasks.prompts.t0 import t0_tasks
from spanloom.tasks.prompts.template import DataSetTemplates, PromptTemplate, task_name
from spanloom.tasks.prompts.template_files import PromptError, read_collection

RELEASES = ("v0.1.0", "v0.2.3")
TOTALS = {"t0_train": (313, 17_277_798), "t0+_train": (392, 20_672_671), "t0++_train": (464, 23_118_591)}


@pytest.fixture(scope="module", params=RELEASES)
def released(request):
    """The templates of a release, and the mixtures that must come out of them."""
    templates = read_collection([str(shared_dir("data", "promptsource", request.param))])
    with gzip.open(shared_dir("data", "t0", "expected_mixtures.json.gz"), "rt") as file:
        return templates, json.load(file)[request.param]


def test_all_mixtures_have_their_tasks_and_rates(released):
    templates, expected = released
    assert len(expected) == 8
    for mixture, rates in expected.items():
        tasks = t0_tasks(mixture, templates)
        assert {task.name: task.rate for task in tasks} == rates
        assert len(tasks) == len(rates)
        if mixture in TOTALS:
            assert (len(tasks), sum(task.rate for task in tasks)) == TOTALS[mixture]


def test_anli_has_its_rounds(released):
    tasks = t0_tasks("t0_eval_score_eval", released[0])
    rounds = [task for task in tasks if task.data_set == ("anli", None)]
    assert len(rounds) == 45 and {task.round for task in rounds} == {"r1", "r2", "r3"}
    assert all(task.name.endswith(f"_{task.round}_score_eval") for task in rounds)


def test_the_table_is_t0s():
    with shared_dir("data", "t0", "datasets.csv").open() as file:
        rows = [
            (
                (row["HF_name"], row["subset"] or None),
                row["do_train"] or None,
                row["do_eval"] or None,
                row["train_size"],
            )
            for row in csv.DictReader(file)
        ]
    ours = [(row.name, row.learnt, row.judged, str(row.train_size or "")) for row in t0_table.t0_data_sets()]
    assert ours == rows
    excluded = json.loads(shared_dir("data", "t0", "excluded_tasks.json").read_text())
    assert set(excluded["excluded_from_training"]) == t0_table.LEFT_OUT
    judged = {f"{name}_score_eval" for name in t0_table.LEFT_OUT_OF_TRAIN_EVAL}
    assert set(excluded["excluded_from_train_score_eval"]) == judged
    skipped = set(excluded["datasets_skipped_in_train_score_eval"])
    assert skipped == set(t0_table.DATA_SETS_LEFT_OUT_OF_TRAIN_EVAL)


def made_up(rows):
    """Three templates for each data set of the table: open, one with choices, and one that asks something else."""
    kinds = [
        PromptTemplate("a", "x ||| y", original_task=True),
        PromptTemplate("b", "x ||| y", "no ||| yes", original_task=True),
        PromptTemplate("c", "x ||| y", "no ||| yes"),
    ]
    return {row.name: DataSetTemplates(*row.name, tuple(kinds)) for row in rows}


def test_the_rules_on_templates_of_our_own():
    rows = t0_table.t0_data_sets()
    templates = made_up(rows)
    train = {task.name: task.rate for task in t0_tasks("t0_train", templates)}
    assert len(train) == 38 * 3
    assert train["glue_mrpc_a"] == 3668
    assert train["gigaword_c"] == 500_000 // 3
    first = [task.template.name for task in t0_tasks("t0_train_one_og_prompt", templates)]
    assert first == ["a"] * 38
    assert {task.template.name for task in t0_tasks("t0_train_all_og_prompts", templates)} == {"a", "b"}
    judged = t0_tasks("t0_eval_score_eval", templates)
    assert {task.template.name for task in judged} == {"b"} and len(judged) == 8 + 3
    assert {task.rate for task in judged if task.data_set == ("super_glue", "rte")} == {None}
    biased = t0_tasks("bias_fairness_eval_score_eval", templates)
    assert {task.template.name for task in biased} == {"b", "c"}


def test_data_sets_without_templates_are_named_at_once():
    templates = made_up(t0_table.t0_data_sets())
    del templates["glue", "mrpc"], templates["anli", None]
    with pytest.raises(PromptError, match="no templates for 2 data sets of T0: anli, glue/mrpc"):
        t0_tasks("t0_train", templates)


def test_names_of_tasks():
    assert task_name(("glue", "mrpc"), "want to know?") == "glue_mrpc_want_to_know_"
    assert task_name(("super_glue", "wsc.fixed"), "p is/are r") == "super_glue_wsc.fixed_p_is_are_r"
    assert task_name(("trec", None), "trec1") == "trec_trec1"
