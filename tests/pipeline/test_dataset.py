import pytest
from pipeline_data import tiny_run

from spanloom.pipeline.data import open_data
from spanloom.settings.feature import Feature
from spanloom.settings.objectives import Supervised
from spanloom.settings.row_sources import PythonExamples
from spanloom.settings.task import Task
from spanloom.settings.vocabulary import Bytes

pytestmark = pytest.mark.short


def test_an_example_is_shown_to_its_last_token_though_that_be_0(tmp_path):
    rows = tuple({"inputs": [7, number, 0], "targets": [8, 0]} for number in range(3, 9))
    features = (Feature("inputs", add_eos=False), Feature("targets", add_eos=False))
    source = PythonExamples(rows=rows, heldout_share=0.0)
    run = tiny_run(Task("ids", source, Bytes(), Supervised(8, 8), features=features))
    shown = open_data(run, tmp_path).tasks[0].train.text_examples(len(rows))
    assert [one.inputs.tolist() for one in shown] == [row["inputs"] for row in rows]
    assert {tuple(one.targets.tolist()) for one in shown} == {(8, 0)}
