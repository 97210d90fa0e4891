"""T0's mixtures: which prompts of which data sets they have, and at which rates (Sanh et al. 2022).

A template of a data set is a task. Its rate is the number of training examples of the data set; where these are more
than 500,000 its templates share that cap. So a data set below the cap counts once for each of its templates.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from spanloom.settings.mixture import PerTemplate
from spanloom.tasks.prompts.t0_table import (
    DATA_SETS_LEFT_OUT_OF_TRAIN_EVAL,
    LEFT_OUT,
    LEFT_OUT_OF_TRAIN_EVAL,
    NO_TEMPLATES,
    Learnt,
    T0DataSet,
    t0_data_sets,
)
from spanloom.tasks.prompts.template import (
    DataSetName,
    DataSetTemplates,
    PromptTemplate,
    shown_data_set,
    task_name,
)
from spanloom.tasks.prompts.template_files import PromptError

T0Mixture = Literal[
    "t0_train",
    "t0+_train",
    "t0++_train",
    "t0_train_one_og_prompt",
    "t0_train_all_og_prompts",
    "t0_train_score_eval",
    "t0_eval_score_eval",
    "bias_fairness_eval_score_eval",
]
CAP = PerTemplate(templates=1).maximum
_ROUNDS = ("r1", "r2", "r3")  # of ANLI, whose splits are train_r1, dev_r1, test_r1 and so on
_T0: tuple[Learnt, ...] = ("BASE",)
_T0_PLUS: tuple[Learnt, ...] = ("BASE", "GPT_EVAL")
_T0_PLUS_PLUS: tuple[Learnt, ...] = ("BASE", "GPT_EVAL", "SGLUE")


@dataclass(frozen=True)
class T0Task:
    """One task of a mixture."""

    name: str
    """As T0 calls it."""
    data_set: DataSetName
    """What its rows are of."""
    template: PromptTemplate
    """What makes examples of them."""
    rate: int | None
    """How often it is drawn, relative to the others; None where T0 gives none, in evaluation alone."""
    round: str | None = None
    """r1, r2 or r3 of ANLI."""


@dataclass(frozen=True)
class _Prompt:
    """A template with what T0's rules go by."""

    task: T0Task
    of: T0DataSet
    is_first: bool
    """Whether it is the first of its data set that asks what that was made for."""


def t0_tasks(mixture: T0Mixture, templates: Mapping[DataSetName, DataSetTemplates]) -> tuple[T0Task, ...]:
    """The tasks of a mixture, by name. T0 itself used the templates of promptsource 0.1.0.

    Raises PromptError where templates of its data sets are missing, all of which it names.
    """
    chosen = [prompt for prompt in _prompts(templates) if prompt.task.name not in LEFT_OUT and _RULES[mixture](prompt)]
    lacking = [row.name for row in t0_data_sets() if row.name not in templates and row.name not in NO_TEMPLATES]
    if lacking:
        raise PromptError(
            f"no templates for {len(lacking)} data sets of T0: {', '.join(map(shown_data_set, lacking))}: name the "
            "folder promptsource/templates as it was released"
        )
    tasks = [prompt.task for prompt in chosen]
    if mixture.endswith("score_eval"):
        tasks = [_judged(task) for task in tasks]
    return tuple(sorted(tasks, key=lambda task: task.name))


def _prompts(templates: Mapping[DataSetName, DataSetTemplates]) -> Iterator[_Prompt]:
    for row in t0_data_sets():
        if row.name not in templates:
            continue
        several = templates[row.name].templates
        first = next((template for template in several if template.original_task), None)
        for template in several:
            for task in _tasks(row, template, len(several)):
                yield _Prompt(task, row, template is first)


def _tasks(row: T0DataSet, template: PromptTemplate, count: int) -> Iterator[T0Task]:
    rate = (row.train_size if row.train_size <= CAP else CAP // count) if row.learnt else None
    name = task_name(row.name, template.name)
    if row.name != ("anli", None):
        yield T0Task(name, row.name, template, rate)
        return
    for number in _ROUNDS:
        yield T0Task(f"{name}_{number}", row.name, template, rate, number)


def _judged(task: T0Task) -> T0Task:
    return T0Task(f"{task.name}_score_eval", task.data_set, task.template, task.rate, task.round)


def _is_judged_training(prompt: _Prompt) -> bool:
    name = prompt.task.name
    kept = name not in LEFT_OUT_OF_TRAIN_EVAL and not any(part in name for part in DATA_SETS_LEFT_OUT_OF_TRAIN_EVAL)
    return kept and prompt.of.learnt in _T0 and prompt.task.template.original_task and _has_choices(prompt)


def _has_choices(prompt: _Prompt) -> bool:
    return bool(prompt.task.template.answer_choices)


_RULES: Mapping[T0Mixture, Callable[[_Prompt], bool]] = {
    "t0_train": lambda prompt: prompt.of.learnt in _T0,
    "t0+_train": lambda prompt: prompt.of.learnt in _T0_PLUS,
    "t0++_train": lambda prompt: prompt.of.learnt in _T0_PLUS_PLUS,
    "t0_train_one_og_prompt": lambda prompt: prompt.of.learnt in _T0 and prompt.is_first,
    "t0_train_all_og_prompts": lambda prompt: prompt.of.learnt in _T0 and prompt.task.template.original_task,
    "t0_train_score_eval": _is_judged_training,
    "t0_eval_score_eval": lambda p: p.of.judged == "BASE" and p.task.template.original_task and _has_choices(p),
    "bias_fairness_eval_score_eval": lambda prompt: prompt.of.judged == "BIAS_FAIRNESS" and _has_choices(prompt),
}
