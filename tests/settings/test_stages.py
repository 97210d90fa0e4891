import dataclasses
from pathlib import Path

import pytest

from spanloom.settings.follow import Follow
from spanloom.settings.model import Model
from spanloom.settings.objectives import SpanCorruption
from spanloom.settings.optimizer import Adafactor, AdamW, Constant, Cosine, Linear
from spanloom.settings.row_sources import HuggingFaceDataset
from spanloom.settings.run import Evaluation, Run
from spanloom.settings.serialize import SettingsError
from spanloom.settings.stages import as_one, linked, stage_directories
from spanloom.settings.task import Task, TextFiles
from spanloom.settings.vocabulary import SentencePiece

pytestmark = pytest.mark.short
MODEL = Model(384, 16, 32, 2, 8, 2, 2)
ON = Follow(optimizer="continue", schedule="continue")


def stage(name, task=None, **changes):
    task = task or Task(name, TextFiles((f"{name}.txt",)), objective=SpanCorruption(32))
    return dataclasses.replace(Run(name=name, task=task, model=MODEL, steps=100), **changes)


def refusal(*runs):
    with pytest.raises(SettingsError) as error:
        linked(runs, Path("out"))
    return str(error.value)


def test_each_begins_where_the_one_before_it_ends_and_measures_all_tasks():
    runs = linked([stage("en", start="byt5"), stage("de"), stage("fr")], Path("out"))
    assert [run.start for run in runs] == ["byt5", "out/1-en", "out/2-de"]
    assert [run.out for run in runs] == ["out/1-en", "out/2-de", "out/3-fr"]
    assert [str(place) for place in stage_directories(runs, Path("out"))] == [run.out for run in runs]
    assert [[task.name for task in run.eval.also] for run in runs] == [["de", "fr"], ["en", "fr"], ["en", "de"]]
    assert all(run.resolve() for run in runs)


def test_a_first_stage_without_a_start_follows_none():
    policies = [[run.follow for run in linked([stage("en", follow=ON, start=s)], Path("o"))] for s in (None, "byt5")]
    assert policies == [[Follow()], [ON]]


def test_tasks_that_a_stage_measures_of_its_own_accord_stay():
    books = Task("books", TextFiles(("books.txt",)), objective=SpanCorruption(32))
    runs = linked([stage("en", eval=Evaluation(also=(books,))), stage("de")], Path("out"))
    assert [[task.name for task in run.eval.also] for run in runs] == [["books", "de"], ["en"]]


def test_the_same_language_may_come_again():
    again = stage("again", task=stage("en").task)
    runs = linked([stage("en"), stage("de"), again], Path("out"))
    assert [task.name for task in runs[2].eval.also] == ["de"]
    assert [task.name for task in as_one(runs).tasks] == ["en", "de"]


def test_a_schedule_that_goes_on_ends_with_the_last_stage_that_shares_it():
    cosine = Cosine(warmup_steps=10)
    runs = [
        stage("en", schedule=cosine),
        stage("de", schedule=cosine, follow=ON),
        stage("fr", schedule=cosine, steps=50),
        stage("fi", schedule=Cosine(decay_steps=400), follow=ON),
        stage("sv", schedule=Constant(), follow=ON),
    ]
    assert [run.schedule.decay_steps for run in linked(runs, Path("out"))[:4]] == [200, 200, 250, 400]
    alone = linked([stage("en", schedule=cosine), stage("de", schedule=cosine)], Path("out"))
    assert [run.resolve().schedule.decay_steps for run in alone] == [100, 100]


def test_a_schedule_that_is_at_its_end_before_the_stages_are_is_refused():
    ends = Linear(decay_steps=150)
    message = refusal(stage("en", schedule=ends), stage("de", schedule=ends, follow=ON))
    assert message.startswith("stage 'de' goes on with a schedule that is at 0 from schedule.decay_steps = 150 on")
    assert "ends after 200 steps of it: give 200" in message


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (stage("en"), "stages 1 and 2 are both named 'en'"),
        (stage("de", start="x"), "stage 2, 'de', has a start of its own (x)"),
        (stage("de", steps=0), "stage 2, 'de', has 0 steps: a stage has 1 or more (--stage.2.steps)"),
        (stage("de", model=dataclasses.replace(MODEL, d_ff=64)), "the weights of 'en', but model.d_ff: 32 -> 64"),
        (stage("de", model=dataclasses.replace(MODEL, norm_epsilon=1e-5)), "model.norm_epsilon"),
        (stage("de", optimizer=AdamW(), follow=ON), "the optimizer's state of 'en', but optimizer: Adafactor"),
        (
            stage(
                "de", task=Task("de", TextFiles(("a",)), vocabulary=SentencePiece("m"), objective=SpanCorruption(32))
            ),
            "stages 'en' and 'de' have different vocabularies",
        ),
        (
            stage("de", task=Task("en", TextFiles(("other.txt",)), objective=SpanCorruption(32))),
            "stages 'en' and 'de' have different tasks of the same name, 'en'",
        ),
    ],
)
def test_settings_that_contradict_across_stages_are_refused_with_their_names(second, words):
    assert words in refusal(stage("en"), second)


def test_what_a_stage_does_not_take_over_may_differ():
    reset = stage("de", optimizer=AdamW(), model=dataclasses.replace(MODEL, dropout=0.1))
    linked([stage("en", optimizer=Adafactor()), reset], Path("out"))


def test_a_stream_is_read_by_one_stage():
    task = Task("web", HuggingFaceDataset("x", streaming=True), objective=SpanCorruption(32))
    assert "both learn the stream 'web'" in refusal(stage("en", task=task), stage("again", task=task))
