import pytest

from spanloom.settings.objectives import Supervised
from spanloom.settings.row_sources import RowFiles
from spanloom.settings.task import PairFiles, Task
from spanloom.settings.vocabulary import Bytes
from spanloom.tasks.prompts.names import data_set_and_template
from spanloom.tasks.prompts.prompted import CACHED_PROMPT, prompt, prompted_task
from spanloom.tasks.prompts.template import PromptTemplate, task_name

pytestmark = pytest.mark.short


def task_of(name, *render):
    return prompted_task(name, RowFiles(("a.jsonl",)), render, Bytes(), Supervised(), has_choices=False)


@pytest.mark.parametrize("template", ["equivalent", "GPT-3 style", "(odd) one?", "a_b", "x"])
@pytest.mark.parametrize(("data_set", "shown"), [(("glue", "mrpc"), "glue_mrpc"), (("a_b", None), "a_b")])
def test_a_templates_task(data_set, shown, template):
    name = task_name(data_set, template)
    render = prompt(PromptTemplate(template, "{{a}} ||| {{b}}"))
    assert data_set_and_template(task_of(name, render)) == (shown, template)
    assert data_set_and_template(task_of(f"{name}_score_eval", render)) == (shown, template)
    assert data_set_and_template(task_of(f"{name}_r1", render)) == (f"{shown}_r1", template)
    assert data_set_and_template(task_of("mine", render)) == ("mine", template)


def test_p3s_tasks_are_known_by_their_names():
    assert data_set_and_template(task_of("super_glue_rte_GPT_3_style", CACHED_PROMPT)) == (
        "super_glue_rte",
        "GPT_3_style",
    )
    assert data_set_and_template(task_of("mine_x", CACHED_PROMPT)) == ("mine_x", "")


def test_another_task_is_a_data_set():
    assert data_set_and_template(Task("sums", PairFiles(("a.tsv",)))) == ("sums", "")
