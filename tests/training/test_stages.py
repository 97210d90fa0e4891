"""Stages in processes that are killed inside them and between them: what is left goes on to the very same numbers."""

import io
import json
import shutil
import signal
from pathlib import Path

import pytest
from tiny_stages import RECIPE, spawn
from tiny_training import events, finish, kill, losses, same_arrays, wait_until, write_text

from spanloom.evaluation.heldout import heldout_metrics, make_heldout_step
from spanloom.pipeline.data import open_data
from spanloom.settings.run import Run
from spanloom.settings.serialize import from_json
from spanloom.settings.stages import stage_directories
from spanloom.training import loop
from spanloom.training.checkpoint_paths import latest
from spanloom.training.checkpoints import restore
from spanloom.training.forgetting import Forgetting, Row, forgetting_of, in_words
from spanloom.training.progress import PlainDisplay

STEPS = 12
NAMES = ("en", "de", "fr")


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    return {"SPANLOOM_CACHE": str(tmp_path_factory.mktemp("cache")), "JAX_PLATFORMS": "cpu"}


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    directory = tmp_path_factory.mktemp("recipe")
    for number, name in enumerate(NAMES):
        write_text(directory / f"{name}.txt", lines=300 + 100 * number, seed=number)
    (directory / "langs.py").write_text(RECIPE.format(text=directory, steps=STEPS))
    return directory / "langs.py"


def command(recipe: Path, directory: Path) -> list[str]:
    return ["train", str(recipe), "--out", str(directory)]


@pytest.fixture(scope="module")
def straight(tmp_path_factory, recipe, environment):
    """Stages that nobody disturbed."""
    directory = tmp_path_factory.mktemp("straight") / "run"
    finish(spawn(directory, command(recipe, directory), environment), directory)
    return directory


def stages_of(directory: Path) -> list[Path]:
    runs = [from_json(one) for one in json.loads((directory / "stages.json").read_text())["stages"]]
    return stage_directories(runs, directory)


def run_in(directory: Path) -> Run:
    run = from_json(json.loads((directory / "run.json").read_text()))
    assert isinstance(run, Run)
    return run


def assert_same_stages(directory: Path, straight: Path) -> None:
    for ours, theirs in zip(stages_of(directory), stages_of(straight), strict=True):
        assert losses(ours) == losses(theirs)
        assert same_arrays(restore(latest(ours)).params, restore(latest(theirs)).params)
        first, second = (restore(latest(place)).facts for place in (ours, theirs))
        assert (first.step, first.position, first.origin) == (second.step, second.position, second.origin)
    assert (directory / "forgetting.json").read_text() == (straight / "forgetting.json").read_text()


def test_killed_inside_and_between_stages_the_rest_is_the_same_to_the_last_bit(tmp_path, recipe, straight, environment):
    directory, words = tmp_path / "run", command(recipe, tmp_path / "run")
    # Each process counts the stages that it trains from 1.
    for place, again in (("1:7", words), ("1:closed", words), ("1:begin", ["train", str(directory)])):
        kill(spawn(directory, again, environment, place))
    second, third = stages_of(directory)[1:]
    process = spawn(directory, words, environment, "1:7")
    assert wait_until(process, lambda: latest(second) is not None)
    kill(process)
    assert latest(second).name == "5" and not third.exists()
    kill(spawn(directory, words, environment, "1:trained"))
    assert latest(second).name == str(STEPS) and not third.exists()
    finish(spawn(directory, words, environment), directory)
    assert_same_stages(directory, straight)
    log = (directory / "process.log").read_text()
    # Until a stage has a checkpoint the one before it is looked at, and found to be done.
    assert log.count("stage 1 of 3, en: ") == 4 and log.count("all 12 steps are done") == 3
    assert "stage 2 of 3, de: going on from step 5" in log


def test_a_polite_stop_ends_all_and_a_stage_goes_on_by_itself(tmp_path, recipe, straight, environment):
    directory, words = tmp_path / "run", command(recipe, tmp_path / "run")
    assert kill(spawn(directory, words, environment, "2:7"), signal.SIGTERM) == 0
    second, third = stages_of(directory)[1:]
    assert latest(second).name == "8" and not third.exists()
    finish(spawn(directory, ["train", str(second)], environment), directory)  # a run directory like any other
    assert losses(second) == losses(stages_of(straight)[1])
    finish(spawn(directory, ["train", str(directory)], environment), directory)
    assert_same_stages(directory, straight)


def test_a_stage_goes_on_with_optimizer_and_schedule(straight):
    for number, place in enumerate(stages_of(straight)):
        facts = restore(latest(place)).facts
        assert facts.origin == {"optimizer": number * STEPS, "schedule": number * STEPS, "rewarm_steps": 0}
        rates = [event["learning_rate"] for event in events(place) if event["kind"] == "train"]
        warm = 5  # steps of the schedule's warm-up, which there is once
        expected = [1e-2 * min((number * STEPS + step) / warm, 1.0) for step in range(STEPS)]
        assert rates == pytest.approx(expected, rel=1e-6)
    weights = [restore(latest(place)).params for place in stages_of(straight)]
    assert not same_arrays(weights[0], weights[1])


def test_every_stage_measures_every_language(straight):
    for place in stages_of(straight):
        measured = {(event["task"], event["step"]) for event in events(place) if event["kind"] == "eval"}
        assert measured == {(name, step) for name in NAMES for step in (4, 8, 12)}


def test_the_forgetting_table_is_what_a_separate_evaluation_finds(straight, tmp_path):
    table = json.loads((straight / "forgetting.json").read_text())
    assert [row["name"] for row in table["stages"]] == table["tasks"] == list(NAMES)
    tasks = {run_in(place).task.name: run_in(place) for place in stages_of(straight)}
    for place, row in zip(stages_of(straight), table["stages"], strict=True):
        params = restore(latest(place)).params
        for name, run in tasks.items():
            data = open_data(run, tmp_path / name)  # its own stores, built anew
            step = make_heldout_step(run.model, data.vocabulary)
            batches = data.heldout[name].eval_batches(run.eval.batch_size, run.eval.max_batches)
            assert heldout_metrics(step, params, batches)["heldout_loss"] == row["heldout_loss"][name]
    for name in NAMES:
        column = [row["heldout_loss"][name] for row in table["stages"]]
        assert table["forgotten"][name] == column[-1] - min(column)
    words = (straight / "forgetting.md").read_text()
    assert words.strip() in (straight / "process.log").read_text()
    assert f"| {table['stages'][2]['heldout_loss']['en']:.4f} |" in words


def test_a_stage_needs_nothing_of_the_ones_before_it(straight, tmp_path, environment):
    """Once it has a checkpoint of its own: those before it may be deleted to free the disk."""
    copy = tmp_path / "copy"
    shutil.copytree(straight, copy, symlinks=True)
    first, _, third = stages_of(copy)
    shutil.rmtree(first)
    assert loop.train(run_in(third), third, display=PlainDisplay(io.StringIO()))


@pytest.mark.short
def test_the_table_in_words():
    rows = (Row("en", 3, {"en": 2.0, "de": 3.0}), Row("de", 10_000, {"en": 2.5, "de": 1.0}))
    text = in_words(Forgetting(("en", "de"), rows, ("seed differ between the stages",)))
    lines = text.splitlines()
    assert lines[2:4] == ["| after stage |   step |     en |     de |", "| ----------- | -----: | -----: | -----: |"]
    assert lines[5:7] == ["| de          | 10,000 | 2.5000 | 1.0000 |", "| forgotten   |        | 0.5000 | 0.0000 |"]
    assert lines[-1] == "Note: seed differ between the stages."
    gaps = Forgetting(("en", "de"), (Row("en", 3, {"en": 2.0}), rows[1]))
    assert "| en          |      3 | 2.0000 |      - |" in in_words(gaps)


def test_the_table_goes_by_the_checkpoint_that_the_next_stage_begins_with(straight):
    runs = [run_in(place) for place in stages_of(straight)]
    assert [row.step for row in forgetting_of(runs, straight).rows] == [STEPS] * 3
