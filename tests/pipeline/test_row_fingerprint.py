"""What makes stores of tasks with preprocessors anew, and what is said of it."""

import json
from dataclasses import replace

import pytest
import task_functions as own
from row_stores import build_stores, task_of, write_pairs

from spanloom.pipeline.fingerprint import changes
from spanloom.settings.feature import Feature
from spanloom.settings.function import Function
from spanloom.settings.objectives import Supervised
from spanloom.tasks.rows import ROW


@pytest.fixture
def pairs(tmp_path):
    return write_pairs(tmp_path)


RECIPE = (
    "LEAST = 5\ndef long_enough(example):\n    return len(example['targets']) > LEAST\ndef steps():\n    return 1\n"
)


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "recipe.py"
    path.write_text(RECIPE)
    return path


def test_an_edited_function_rebuilds_the_store_and_says_so(pairs, recipe, tmp_path):
    task = task_of(pairs, Function(f"{recipe}:long_enough"))
    first = build_stores(task, tmp_path / "s")["train"]
    said = []
    recipe.write_text(RECIPE.replace("return 1", "return 2"))
    assert build_stores(task, tmp_path / "s", said)["train"].content == first.content and not said
    recipe.write_text(RECIPE.replace("LEAST = 5", "LEAST = 6"))
    second = build_stores(task, tmp_path / "s", said)["train"]
    assert len(said) == 2 and "changed: the preprocessors (the code of long_enough was edited)" in said[0]
    assert second.num_rows < first.num_rows and second.content != first.content


def test_a_closure_that_no_hash_sees_is_told_by_the_probes(pairs, recipe, tmp_path, monkeypatch):
    task = task_of(pairs, own.prefixed)
    build_stores(task, tmp_path / "s")
    monkeypatch.setattr(own, "PREFIX", "tell: ")
    monkeypatch.setattr("spanloom.tasks.functions.module_of", lambda function: own)
    said = []
    build_stores(task, tmp_path / "s", said)
    assert "changed: tokenization (" in said[0] and "probes give other ids)" in said[0]


@pytest.mark.short
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"preprocessors": (own.Cut(9),)}, r"the preprocessors \(Cut has other arguments: .*8.* -> .*9"),
        ({"preprocessors": (own.prefixed,)}, r"the preprocessors \(Cut -> prefixed\)"),
        ({"features": (Feature("inputs"), Feature("targets", required=False))}, "the features"),
        ({"deduplicate": ("inputs",)}, "the fields of which rows must not be repeated"),
        ({"version": "2"}, "the task's version"),
    ],
)
def test_other_settings_say_what_they_change(pairs, tmp_path, change, said):
    task = task_of(pairs, own.Cut(8))
    build_stores(task, tmp_path / "s")
    told = []
    build_stores(replace(task, **change), tmp_path / "s", told)
    assert len(told) == 2
    with pytest.raises(AssertionError, match=said):
        raise AssertionError(told[0])


@pytest.mark.short
def test_end_of_sequence_and_metrics_rebuild_nothing_that_is_learnt_from(pairs, tmp_path):
    task, said = task_of(pairs, own.prefixed), []
    first = build_stores(task, tmp_path / "s")
    again = replace(task, features=(Feature("inputs", add_eos=False), Feature("targets")))
    assert build_stores(again, tmp_path / "s", said)["train"].content == first["train"].content
    measured = build_stores(replace(task, metrics=(own.same_first,)), tmp_path / "s", said)
    assert len(said) == 1 and "heldout is built anew: changed: the columns" in said[0]
    assert measured["heldout"].content == first["heldout"].content and ROW in measured["heldout"].columns


@pytest.mark.short
def test_an_objective_that_a_preprocessor_looks_at_decides_the_store(pairs, tmp_path):
    task, said = task_of(pairs, own.lengths_told, objective=Supervised(64, 32)), []
    build_stores(task, tmp_path / "s")
    build_stores(replace(task, objective=Supervised(64, 40)), tmp_path / "s", said)
    assert "changed: the objective, which a preprocessor asks for (targets_length 32 -> 40)" in said[0]


@pytest.mark.short
def test_probes_are_kept_as_rows_with_the_ids_they_give(pairs, tmp_path):
    store = build_stores(task_of(pairs, own.not_third, own.doubled), tmp_path, shard_bytes=2**20)["train"]
    probes = store.meta["probes"]
    assert len(probes) == 64 and [probe["number"] for probe in probes] == list(range(64))
    assert probes[0]["example"]["inputs"].startswith("in ")
    json.dumps(probes)


@pytest.mark.short
def test_what_changed_is_said_of_old_stores_without_preprocessors(pairs, tmp_path):
    plain = build_stores(task_of(pairs), tmp_path / "a")["train"].meta["fingerprint"]
    made = build_stores(task_of(pairs, own.prefixed), tmp_path / "b")["train"].meta["fingerprint"]
    assert any("the preprocessors" in one for one in changes(plain, made))
