import pytest
from pipeline_data import tiny_run

from spanloom.pipeline.data import open_data
from spanloom.settings.function import Function
from spanloom.settings.objectives import Supervised
from spanloom.settings.row_sources import PythonExamples
from spanloom.settings.task import Task

pytestmark = pytest.mark.short


def test_empty_targets_have_no_shard_made_that_nobody_draws_from(tmp_path):
    code = "import itertools\ndef rows():\n    return ({'inputs': str(n), 'targets': ''} for n in itertools.count())\n"
    (tmp_path / "rows.py").write_text(code)
    function = Function(f"{tmp_path}/rows.py:rows")
    source = PythonExamples(function, streaming=True, shard_rows=40, heldout_share=0.0)
    train = open_data(tiny_run(Task("s", source, objective=Supervised(16, 16))), tmp_path / "run").tasks[0].train
    inputs, targets = train.tokens(train.find(0, 40))
    assert len(inputs.offsets) == 41 and targets.values.tolist() == [1] * 40
    assert train.store.index.last.shard == 1
