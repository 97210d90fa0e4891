"""t0 and prompted, of what `datasets` saved with save_to_disk: all splits, one, part of one, and damaged folders."""

import json
import shutil

import pytest
from bare_checkpoint import save_bare
from golden_data import absent
from row_stores import rows as rows_of

from spanloom.pipeline.data import open_data
from spanloom.recipes import prompted, t0
from spanloom.recipes.quickstart import recipe as quickstart
from spanloom.settings.serialize import SettingsError
from spanloom.tasks.prompts.t0_table import t0_data_sets
from spanloom.tasks.read_report import BadInputError

TEMPLATE = {
    "name": "which",
    "jinja": "{{text}} Is it? ||| {{answer_choices[label]}}",
    "answer_choices": "no ||| yes",
    "metadata": {"original_task": True},
}
LENGTHS = {"inputs_length": 64, "targets_length": 16}


@pytest.fixture
def datasets():
    try:
        import datasets
    except ImportError:
        absent("the package datasets is not installed: pip install 'spanloom[hub]'")
    datasets.disable_progress_bars()
    return datasets


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory: a checkpoint, and a template for each data set of T0 in promptsource's layout."""
    monkeypatch.chdir(tmp_path)
    save_bare(tmp_path / "start", 5, quickstart().resolve())
    for row in t0_data_sets():
        place = tmp_path / "ps" / "templates" / "/".join(filter(None, row.name))
        place.mkdir(parents=True)
        about = {"dataset": row.name[0], "subset": row.name[1], "templates": {"1": TEMPLATE}}
        (place / "templates.yaml").write_text(json.dumps(about))
    (tmp_path / "data").mkdir()
    return tmp_path


def rows(datasets, name, count):
    return datasets.Dataset.from_list([{"text": f"{name} {n}", "label": n % 2} for n in range(count)])


def saved(datasets, place, **splits):
    """A DatasetDict."""
    datasets.DatasetDict({name: rows(datasets, name, count) for name, count in splits.items()}).save_to_disk(place)


def saved_split(datasets, place, split, count):
    """One split alone, called as load_dataset calls what it gives."""
    whole = rows(datasets, "some", count)
    datasets.Dataset(whole.data, split=split and datasets.Split(split)).save_to_disk(place)


def learnt_and_heldout(run, folder):
    """The texts of each task's training and held-out examples."""
    data = open_data(run.resolve(), folder / "run")
    parts = {one.task.name: (one.train.store, one.heldout.store) for one in data.tasks}
    return {
        name: tuple([inputs.removesuffix(" Is it?") for inputs in rows_of(store, "inputs")] for store in stores)
        for name, stores in parts.items()
    }


def of_t0(**more):
    return t0.recipe("data", ("ps",), "start", missing="skip", **LENGTHS, **more)


def of_prompted(name, as_name=None):
    return prompted.recipe((f"{as_name or name}=data/{name}",), ("ps",), "start", **LENGTHS)


def named(name, *numbers):
    return [f"{name} {number}" for number in numbers]


def test_splits_that_were_saved_together(folder, datasets):
    saved(datasets, folder / "data" / "glue_mrpc", train=3, validation=2, test=3)
    saved(datasets, folder / "data" / "trec", test=3)
    wanted = {"glue_mrpc_which": (named("train", 0, 1, 2), named("validation", 0, 1))}
    assert learnt_and_heldout(of_t0(), folder) == wanted
    assert learnt_and_heldout(of_prompted("glue_mrpc", as_name="glue/mrpc"), folder) == wanted


def test_rounds_that_were_saved_together(folder, datasets):
    saved(datasets, folder / "data" / "anli", train_r1=3, dev_r1=2, test_r1=3, train_r2=2, dev_r2=1, train_r3=2)
    found = learnt_and_heldout(of_t0(mixture="t0_eval_score_eval"), folder)
    assert found["anli_which_r1_score_eval"] == (named("train_r1", 0, 1, 2), named("dev_r1", 0, 1))
    assert found["anli_which_r2_score_eval"] == (named("train_r2", 0, 1), named("dev_r2", 0))
    assert len(found) == 3, "of the third, rows of its training split are held out"


@pytest.mark.parametrize("split", [None, "train", "train[:50%]", "train+validation"])
def test_a_split_that_was_saved_by_itself_is_learnt(folder, datasets, split):
    saved_split(datasets, folder / "data" / "trec", split, 40)
    for run in (of_t0(), of_prompted("trec")):
        (learnt, heldout) = learnt_and_heldout(run, folder)["trec_which"]
        assert len(learnt) + len(heldout) == 40 and heldout
        assert {*learnt, *heldout} == set(named("some", *range(40)))


@pytest.mark.parametrize("split", ["validation", "test[:50%]", "dev"])
def test_a_split_that_was_saved_by_itself_is_held_out(folder, datasets, split):
    saved_split(datasets, folder / "data" / "super_glue_rte", split, 4)
    run = of_t0(mixture="t0_eval_score_eval")
    assert learnt_and_heldout(run, folder)["super_glue_rte_which_score_eval"][1] == named("some", *range(4))
    with pytest.raises(SettingsError, match="What is there makes no task"):
        of_t0(mixture="t0++_train")
    with pytest.raises(SettingsError, match="super_glue_rte: nothing to learn in it, neither a split called train"):
        of_prompted("super_glue_rte", as_name="super_glue/rte")


@pytest.mark.short
@pytest.mark.parametrize("kept", ["{}", "[]", '{"splits": [], "_split": ', "", '"train"', "null"])
@pytest.mark.parametrize("file", ["dataset_dict.json", "state.json"])
def test_a_folder_whose_list_of_splits_is_damaged_is_named(folder, file, kept):
    (folder / "data" / "trec").mkdir()
    (folder / "data" / "trec" / file).write_text(kept)
    for recipe in (of_t0, lambda: of_prompted("trec")):
        with pytest.raises(SettingsError, match=rf"data/trec/{file} is damaged \(.*\): save the data set again"):
            recipe()


@pytest.mark.short
@pytest.mark.parametrize("splits", [None, []])
def test_a_folder_without_splits_is_none(folder, splits):
    (folder / "data" / "trec").mkdir()
    if splits is not None:
        (folder / "data" / "trec" / "dataset_dict.json").write_text(json.dumps({"splits": splits}))
    with pytest.raises(SettingsError, match=r"lacks 38 of the 38 data sets .* What is there makes no task"):
        of_t0()
    with pytest.raises(SettingsError, match="trec=data/trec: nothing to learn in it"):
        of_prompted("trec")


def test_a_split_that_is_gone_is_an_error_of_its_data_set(folder, datasets):
    saved(datasets, folder / "data" / "trec", train=3, validation=2)
    shutil.rmtree(folder / "data" / "trec" / "train")
    for run in (of_t0(), of_prompted("trec")):
        with pytest.raises(BadInputError, match="data/trec"):
            open_data(run.resolve(), folder / "run")
