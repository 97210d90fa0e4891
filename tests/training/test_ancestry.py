"""What a checkpoint was started from, and that from, as far as it is there."""

import json
import shutil

import pytest
from conversion.conftest import random_params

from spanloom.conversion.huggingface import write_folder
from spanloom.conversion.stored_model import as_stored
from spanloom.conversion.trained_model import Lineage, TrainedModel
from spanloom.settings.model import Model
from spanloom.settings.run import Run
from spanloom.settings.run_layout import FACTS
from spanloom.settings.task import Task, TextFiles
from spanloom.settings.vocabulary import Bytes
from spanloom.training.ancestry import lineage_of
from spanloom.training.facts import Facts, read_facts, to_data
from spanloom.training.integrity import seal

TINY = Model(vocab_size=384, d_model=8, d_ff=8, num_heads=1, d_kv=4, num_encoder_layers=1, num_decoder_layers=1)


@pytest.fixture
def checkpoint(tmp_path):
    """A function that writes a checkpoint of one step, without arrays; its directory."""

    def make(name: str, started_from: str | None, step: int = 5):
        run = Run(name=name, task=Task("t", TextFiles(("a.txt",))), model=TINY, start=started_from).resolve()
        path = tmp_path / name / "checkpoints" / str(step)
        path.mkdir(parents=True)
        facts = Facts(step, {"examples": 1}, run, {"jax": "1"}, loss=2.0, heldout_loss=1.0, started_from=started_from)
        (path / FACTS).write_text(json.dumps(to_data(facts, {})))
        seal(path)
        return path

    return make


def chain(path):
    return lineage_of(path, read_facts(path))


def test_stages_reach_back_to_what_the_first_was_started_from(tmp_path, checkpoint):
    folder = tmp_path / "hf"
    folder.mkdir()
    old = Lineage("/gone/runs/z/checkpoints/9", step=9)
    params = random_params(TINY)
    export = Lineage("/gone/runs/y/checkpoints/3", step=3, started_from=old.origin, before=(old,))
    write_folder(folder, as_stored(TrainedModel(TINY, params, Bytes(), export)), name="hf")
    first = checkpoint("1-en", str(folder))
    second = checkpoint("2-de", str(first))
    last = chain(checkpoint("3-fr", str(second)))
    assert [one.origin for one in last.before] == [old.origin, export.origin, str(first), str(second)]
    assert all(one.before == () for one in last.before)
    assert last.before[-1].losses == {"training loss of the last step": 2.0, "held-out loss": 1.0}
    assert last.before[-1].checkpoint and last.before[-1].run.name == "2-de"


@pytest.mark.parametrize("harm", ["gone", "damaged", "none"])
def test_it_begins_after_what_cannot_be_read(checkpoint, harm):
    first = checkpoint("a", "runs/nowhere")
    second = checkpoint("b", str(first))
    if harm == "gone":
        shutil.rmtree(first)
    if harm == "damaged":
        (first / FACTS).write_text("{")
    last = chain(checkpoint("c", str(second)))
    wanted = [str(second)] if harm != "none" else [str(first), str(second)]
    assert [one.origin for one in last.before] == wanted
    assert last.started_from == str(second)


def test_from_random_weights_there_is_nothing_before(checkpoint):
    assert chain(checkpoint("a", None)).before == ()


def test_a_circle_of_starts_comes_to_an_end(tmp_path, checkpoint):
    place = tmp_path / "a" / "checkpoints" / "5"
    assert len(chain(checkpoint("a", str(place))).before) == 100
