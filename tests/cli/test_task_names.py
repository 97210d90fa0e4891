import pytest

from spanloom.cli.errors import UsageError
from spanloom.cli.task_names import tasks_named
from spanloom.settings.mixture import Mixture, Weighted
from spanloom.settings.model import Model
from spanloom.settings.run import Run
from spanloom.settings.task import Task, TextFiles

pytestmark = pytest.mark.short


def run() -> Run:
    model = Model(384, d_model=8, d_ff=8, num_heads=1, d_kv=8, num_encoder_layers=1, num_decoder_layers=1)
    tasks = [Task(name, TextFiles((f"{name}.txt",))) for name in ("english", "german", "polish")]
    return Run("r", Mixture("m", tuple(map(Weighted, tasks))), model)


def test_tasks_come_in_the_runs_order_once_each():
    assert [task.name for task in tasks_named(run(), ["polish", "english", "polish"])] == ["english", "polish"]
    assert [task.name for task in tasks_named(run(), [])] == ["english", "german", "polish"]


def test_a_name_that_no_task_has_is_refused_with_the_nearest():
    with pytest.raises(UsageError, match=r"--task germen: the run has no such task; did you mean german\?"):
        tasks_named(run(), ["english", "germen"])
