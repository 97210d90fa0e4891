"""A run that learns from several tasks at once."""

import dataclasses
from statistics import fmean

import jax
import pytest
from tiny_training import MODEL, events, losses, tiny_run, train, write_text

from spanloom.pipeline.examples import DataError
from spanloom.pipeline.packing import WINDOW
from spanloom.settings.mixture import Mixture, Weighted
from spanloom.settings.objectives import Supervised
from spanloom.settings.packing import Packed, Unpacked
from spanloom.settings.run import Checkpoints, Evaluation
from spanloom.settings.task import PairFiles, Task
from spanloom.training.checkpoint_paths import latest
from spanloom.training.facts import read_facts
from spanloom.training.same_data import ChangedDataError


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """The steps are compiled once for this file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPANLOOM_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
    jax.config.update("jax_compilation_cache_dir", None)


@pytest.fixture
def mixed(tmp_path):
    """A run of eight steps on two texts and on pairs."""
    parts = []
    for number, name in enumerate(("a", "b")):
        run = tiny_run(write_text(tmp_path / f"{name}.txt", lines=400, seed=number), 8)
        parts.append(Weighted(dataclasses.replace(run.task, name=name), 1.0 + number))
    (tmp_path / "pairs.tsv").write_text("inputs\ttargets\n" + "".join(f"{i}\t{i + 1}\n" for i in range(200)))
    pairs = PairFiles((str(tmp_path / "pairs.tsv"),), heldout_share=0.1)
    parts.append(Weighted(Task("count", pairs, objective=Supervised())))
    return dataclasses.replace(
        run,
        task=Mixture("all", tuple(parts)),
        model=dataclasses.replace(MODEL, dropout=0.0),
        checkpoint=Checkpoints(every=4),
        eval=Evaluation(every=4, max_batches=2),
    )


def test_resuming_gives_the_same_losses_and_each_task_has_its_own_heldout_loss(mixed, tmp_path):
    said = train(mixed, tmp_path / "straight")
    train(dataclasses.replace(mixed, steps=4), tmp_path / "stopped")
    train(mixed, tmp_path / "stopped")
    assert losses(tmp_path / "stopped") == losses(tmp_path / "straight")

    evaluated = [event for event in events(tmp_path / "stopped") if event["kind"] == "eval"]
    assert sorted((event["step"], event["task"]) for event in evaluated) == [
        (step, task) for step in (4, 8) for task in ("a", "b", "count")
    ]
    mean = fmean(event["heldout_loss"] for event in evaluated if event["step"] == 8)
    assert read_facts(latest(tmp_path / "stopped")).heldout_loss == pytest.approx(mean, abs=1e-12)
    assert "data: b: 50.00% of the examples" in said
    assert ", the mean of 3 tasks" in said


def test_the_losses_are_those_of_another_order_of_the_tasks(mixed, tmp_path):
    train(mixed, tmp_path / "one")
    other = dataclasses.replace(mixed, task=dataclasses.replace(mixed.task, parts=mixed.task.parts[::-1]))
    train(other, tmp_path / "other")
    assert losses(tmp_path / "other") == losses(tmp_path / "one")


def test_a_task_whose_text_changed_is_named(mixed, tmp_path):
    directory = tmp_path / "run"
    train(dataclasses.replace(mixed, steps=4), directory)
    write_text(tmp_path / "b.txt", lines=390, seed=5)
    with pytest.raises(ChangedDataError, match=r"training text of b .*--accept-change task\.parts"):
        train(mixed, directory)
    said = train(mixed, directory, accepted=("task.parts",))
    assert "the training text of b" in said


@pytest.mark.parametrize("packing", [Unpacked(), Packed()])
def test_a_task_is_added_to_a_run_and_what_follows_can_be_repeated(mixed, packing, tmp_path):
    """Added at step 4; stopped and gone on with at step 6, or straight through: the same losses, and the same rows."""
    before = dataclasses.replace(
        mixed,
        task=Mixture("all", mixed.task.parts[:2]),
        packing=packing,
        steps=4,
        checkpoint=Checkpoints(every=2),
        eval=Evaluation(every=2, max_batches=1),
    )
    after = dataclasses.replace(
        before, steps=8, task=Mixture("all", (*mixed.task.parts[::2], Weighted(mixed.tasks[1], 0.5)))
    )
    for name, stops in (("straight", (8,)), ("stopped", (6, 8))):
        train(before, tmp_path / name)
        for stop in stops:
            accepted = ("task.parts",) if stop == stops[0] else ()
            train(dataclasses.replace(after, steps=stop), tmp_path / name, accepted=accepted)
    assert losses(tmp_path / "stopped") == losses(tmp_path / "straight")
    begun, anew = read_facts(latest(tmp_path / "straight")).eras
    assert begun["rates"] == {"a": 1.0, "b": 2.0} and begun["draw"] == 0
    assert anew["rates"] == {"a": 1.0, "b": 0.5, "count": 1.0}
    assert anew["draw"] == (16 if packing == Unpacked() else WINDOW)


def test_one_task_becomes_several(mixed, tmp_path):
    alone = dataclasses.replace(mixed, task=mixed.tasks[0], steps=4)
    train(alone, tmp_path / "run")
    said = train(mixed, tmp_path / "run", accepted=("task",))
    assert [era["rates"] for era in read_facts(latest(tmp_path / "run")).eras] == [
        {"a": 1.0},
        {"a": 1.0, "b": 2.0, "count": 1.0},
    ]
    assert "count: 25.00% of the examples" in said
    assert "drawn at these rates from example 16 on, and as before until then" in said


def test_a_task_that_was_drawn_may_not_go(mixed, tmp_path):
    train(dataclasses.replace(mixed, steps=4), tmp_path / "run")
    fewer = dataclasses.replace(mixed, task=Mixture("all", mixed.task.parts[:2]))
    with pytest.raises(DataError, match="drawn from the task 'count', which is gone: keep it in the mixture"):
        train(fewer, tmp_path / "run", accepted=("task.parts",))
