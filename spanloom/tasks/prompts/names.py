"""Which data set and which template a task is of, where it was made of one."""

from spanloom.settings.task import Task
from spanloom.tasks.prompts.prompted import CACHED_PROMPT, RENDERING
from spanloom.tasks.prompts.t0_table import t0_data_sets
from spanloom.tasks.prompts.template import task_name

_JUDGED = "_score_eval"  # what T0 calls a task by which it is judged


def data_set_and_template(task: Task) -> tuple[str, str]:
    """'glue_mrpc' and 'equivalent' of the task glue_mrpc_equivalent; a task without a template is a data set itself.

    Of ANLI, whose rounds are tasks each, a round is a data set: anli_r1.
    """
    name = task.name.removesuffix(_JUDGED)
    for function in task.preprocessors:
        if function.name == RENDERING:
            template = str(function.arguments["name"])
            head, found, tail = name.rpartition(task_name(("", None), template))
            return (f"{head}{tail}", template) if found and head else (task.name, template)
        if function == CACHED_PROMPT:
            known = [one for row in t0_data_sets() if name.startswith(one := task_name(row.name, ""))]
            if known:
                longest = max(known, key=len)
                return longest.removesuffix("_"), name.removeprefix(longest)
    return task.name, ""
