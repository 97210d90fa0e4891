"""ByT5 small continued, language after language: the values of the original, and what goes on from what start."""

import pytest
from bare_checkpoint import save_bare
from tiny_model import tiny_source

from spanloom.conversion.convert import convert_to_hf
from spanloom.model.flops import train_flops
from spanloom.model.sizes import named
from spanloom.optim.build import learning_rate
from spanloom.recipes.hmbyt5 import recipe
from spanloom.recipes.quickstart import recipe as quickstart
from spanloom.settings.follow import Follow
from spanloom.settings.run import Run
from spanloom.settings.serialize import SettingsError, from_json, to_json

pytestmark = pytest.mark.short
ON = Follow(optimizer="continue", schedule="continue")
TEXT = ("en=en.txt", "de=de.txt", "fr=fr.txt")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("start")
    save_bare(folder, 5, quickstart().resolve())
    return str(folder)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hf") / "exported"
    convert_to_hf(tiny_source(), folder)
    return str(folder)


def rate_at(run: Run, step: int) -> float:
    return float(learning_rate(run.optimizer, run.schedule)(step))


def test_the_values_are_the_originals(trained):
    runs = recipe(TEXT, trained)
    assert [run.name for run in runs] == ["en", "de", "fr"]
    for run in runs:
        objective = run.task.objective
        assert (objective.inputs_length, objective.noise_density, objective.mean_span_length) == (1024, 0.15, 20.0)
        assert (run.batch_size, run.steps, run.model.dropout, run.loss.z_loss) == (1024, 100_000, 0.0, 1e-4)
        assert run.follow == ON and from_json(to_json(run)) == run
    assert rate_at(runs[0], 1_000_000) == pytest.approx(1e-3)


def test_a_folder_without_an_optimizer_begins_at_the_rate_that_it_was_left_at(exported):
    first, second, _ = recipe(TEXT, exported)
    assert first.follow == Follow() and second.follow == ON
    assert rate_at(first, 0) == pytest.approx(1e-3)
    assert rate_at(second, 400_000) == pytest.approx(1_400_000**-0.5)  # 8.5e-4, as the original's logbook has it


def test_policies_are_of_the_later_languages(trained):
    assert [run.follow for run in recipe(TEXT, trained, policy="reset")] == [ON, Follow(), Follow()]


def test_what_is_needed(trained):
    with pytest.raises(SettingsError, match="hmbyt5 needs --start"):
        recipe(TEXT)
    with pytest.raises(SettingsError, match="--text is empty"):
        recipe((), trained)


def test_it_costs_what_it_says():
    assert train_flops(named("byt5_small"), 1024, 1024, 189) == pytest.approx(1.5e15, rel=0.04)
