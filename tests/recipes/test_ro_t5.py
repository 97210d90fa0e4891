"""A language's own T5, from scratch or from mT5: the values of the original, and what is refused."""

import re
import sys

import pytest
from bare_checkpoint import save_bare

from spanloom.cli.main import main
from spanloom.model.flops import train_flops
from spanloom.recipes.quickstart import recipe as quickstart
from spanloom.recipes.ro_t5 import recipe
from spanloom.settings.follow import Follow
from spanloom.settings.row_sources import HuggingFaceDataset
from spanloom.settings.serialize import SettingsError, from_json, to_json
from spanloom.tasks.span_lengths import span_lengths

pytestmark = pytest.mark.short


def test_from_scratch_it_has_the_originals_values():
    run = recipe(("ro.txt",), vocabulary="ro.model").resolve()
    assert from_json(to_json(run)) == run
    objective = run.task.objective
    assert (objective.inputs_length, objective.noise_density, objective.mean_span_length) == (512, 0.15, 3.0)
    assert span_lengths(512, 0.15, 3.0).targets_length == 114
    assert (run.batch_size, run.steps, run.model.vocab_size, run.model.d_model) == (128, 2_000_000, 64_000, 768)
    assert (run.optimizer.learning_rate, run.schedule.warmup_steps, run.model.dropout) == (1.0, 10_000, 0.0)
    assert train_flops(run.model, 128, 512, 114) == pytest.approx(5.7e13, rel=0.04)
    assert recipe(("ro.txt",), vocabulary="ro.model", model="t5_1_1_large").model.d_model == 1024


def test_the_vocabulary_that_its_help_makes_fits_its_embedding():
    """Sentinels come on top of --size."""
    (size,) = re.findall(r"--size (\d+)", sys.modules[recipe.__module__].__doc__)
    assert int(size) + 100 == recipe(("ro.txt",), vocabulary="ro.model").model.vocab_size


def test_a_released_model_goes_on_at_its_step(tmp_path):
    save_bare(tmp_path / "start", 5, quickstart().resolve())
    run = recipe(("ro.txt",), start=str(tmp_path / "start"))
    assert run.follow == Follow(optimizer="continue", schedule="continue")
    assert (run.optimizer.learning_rate, run.steps, run.start) == (0.4, 1_000_000, str(tmp_path / "start"))


def test_a_data_set_of_the_hub_is_streamed():
    source = recipe(hub="someone/corpus", vocabulary="ro.model").task.source
    assert source == HuggingFaceDataset("someone/corpus", heldout_split="validation", streaming=True)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"vocabulary": "ro.model"}, "--text FILES or --hub DATASET"),
        ({"text": ("a.txt",), "hub": "b", "vocabulary": "ro.model"}, "--text FILES or --hub DATASET"),
        ({"text": ("a.txt",)}, "--vocabulary is missing.*vocab train"),
        ({"text": ("a.txt",), "start": "x", "model": "t5_1_1_large"}, "those of --start: leave them out"),
    ],
)
def test_what_does_not_go_together_is_refused(given, said):
    with pytest.raises(SettingsError, match=said):
        recipe(**given)


def test_help_teaches(capsys):
    assert main(["train", "ro_t5", "--help"]) == 0
    assert "--vocab-size" in capsys.readouterr().out
