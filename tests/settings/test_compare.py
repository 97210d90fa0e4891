from dataclasses import replace

import pytest

from spanloom.settings.compare import ChangedSettingsError, changes, check_accepted, refuse
from spanloom.settings.model import Model
from spanloom.settings.optimizer import AdamW
from spanloom.settings.run import After, Checkpoints, Evaluation, Logging, Run
from spanloom.settings.serialize import SettingsError
from spanloom.settings.task import PythonDocs, Task

pytestmark = pytest.mark.short

MODEL = Model(vocab_size=384, d_model=32, d_ff=64, num_heads=2, d_kv=16, num_encoder_layers=2, num_decoder_layers=2)
RUN = Run(name="a", task=Task("docs", PythonDocs()), model=MODEL)


def test_no_change_between_equals():
    assert changes(RUN, replace(RUN)) == []


@pytest.mark.parametrize(
    "change",
    [
        {"steps": 5},
        {"out": "x"},
        {"name": "b"},
        {"log": Logging(every=1, tensorboard=False)},
        {"eval": Evaluation(every=1)},
        {"checkpoint": Checkpoints(keep=9)},
        {"after": After(fills=0)},
        {"model": replace(MODEL, name="other")},
    ],
)
def test_free_fields_may_change(change):
    found = changes(RUN, replace(RUN, **change))
    assert found
    assert all(c.free for c in found)
    refuse(found)


def test_deciding_fields_are_refused_with_diff_and_ways_on():
    new = replace(RUN, seed=1, steps=3, task=Task("docs", PythonDocs(heldout_share=0.2)), optimizer=AdamW())
    found = changes(RUN, new)
    assert [c.field for c in found if not c.free] == ["task.source.heldout_share", "optimizer", "seed"]
    with pytest.raises(ChangedSettingsError) as error:
        refuse(found)
    text = str(error.value)
    assert "seed                       0  ->  1" in text
    assert "task.source.heldout_share  0.05  ->  0.2" in text
    assert "Adafactor (learning_rate 1.0" in text
    assert "--fork NEW_DIR" in text
    assert "--accept-change task.source.heldout_share,optimizer,seed" in text
    assert "steps  " not in text


def test_accepting_by_name_or_group():
    found = changes(RUN, replace(RUN, seed=1, task=Task("docs", PythonDocs(heldout_share=0.2))))
    refuse(found, ["seed", "task.source.heldout-share"])
    refuse(found, ["--seed", "task"])
    with pytest.raises(ChangedSettingsError, match=r"accept-change seed$"):
        refuse(found, ["task.source"])


def test_other_shapes_cannot_be_accepted():
    found = changes(RUN, replace(RUN, model=replace(MODEL, d_model=64)))
    with pytest.raises(ChangedSettingsError, match="No checkpoint can go on"):
        refuse(found, ["model.d_model"])


def test_accepted_names_must_exist():
    check_accepted(["seed", "task.source", "model.d-model"], RUN)
    with pytest.raises(SettingsError, match="seeed: no such setting; did you mean seed"):
        check_accepted(["seeed"], RUN)
