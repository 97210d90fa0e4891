"""Tasks made of prompt templates, as settings: each template of a data set is a task."""

from collections.abc import Sequence

from spanloom.settings.feature import Feature
from spanloom.settings.function import Function, FunctionError
from spanloom.settings.measures import template_metric
from spanloom.settings.mixture import PerTemplate, Weighted
from spanloom.settings.objectives import Supervised
from spanloom.settings.row_sources import RowSource
from spanloom.settings.task import Task
from spanloom.settings.vocabulary import Vocabulary
from spanloom.tasks.prompts.template import DataSetTemplates, PromptTemplate, shown_data_set, task_name
from spanloom.tasks.prompts.template_files import PromptError

ANSWER_NUMBER = Function("spanloom.tasks.prompts.answers:answer_number")
CACHED_PROMPT = Function("spanloom.tasks.prompts.answers:cached_prompt")
RENDERING = "spanloom.tasks.prompts.rendering:Prompt"
"""Name of the preprocessor that renders a template."""
_CAP = 500_000


def prompt(template: PromptTemplate, *, empty_target: str | None = None) -> Function:
    """The preprocessor that renders a template, see `spanloom.tasks.prompts.rendering.Prompt`; made without jinja2."""
    arguments = {"name": template.name, "jinja": template.jinja}
    optional = {"answer_choices": template.answer_choices, "empty_target": empty_target}
    arguments |= {name: value for name, value in optional.items() if value is not None}
    return Function(RENDERING, arguments)


def prompted_task(
    name: str,
    source: RowSource,
    render: Sequence[Function],
    vocabulary: Vocabulary,
    objective: Supervised,
    *,
    has_choices: bool,
    inputs_eos: bool = False,
    metrics: Sequence[Function] = (),
) -> Task:
    """The task whose rows `render` makes examples of; those with answer choices are judged by which was written, others
    by `metrics`, or exact match where there are none.

    `inputs_eos`: whether an end of sequence follows the inputs; T0's have none.
    """
    return Task(
        name,
        source,
        vocabulary,
        objective,
        preprocessors=tuple(render),
        features=(Feature("inputs", add_eos=inputs_eos), Feature("targets")),
        postprocess=ANSWER_NUMBER if has_choices else None,
        metrics=() if has_choices else tuple(metrics),
    )


def prompted_parts(
    templates: DataSetTemplates,
    source: RowSource,
    vocabulary: Vocabulary,
    objective: Supervised,
    *,
    before: Sequence[Function] = (),
    inputs_eos: bool = False,
    maximum: int = _CAP,
    own_metrics: bool = False,
) -> tuple[Weighted, ...]:
    """A task for each template of a data set, for a mixture, with T0's cap.

    `before`: preprocessors that give rows the columns which the templates name. `own_metrics`: whether templates
    without answer choices are judged by what they name.
    """
    rate = PerTemplate(len(templates.templates), maximum)
    tasks = (
        prompted_task(
            task_name(templates.name, template.name),
            source,
            (*before, prompt(template)),
            vocabulary,
            objective,
            has_choices=bool(template.answer_choices),
            inputs_eos=inputs_eos,
            metrics=metrics_of(templates, template) if own_metrics and not template.answer_choices else (),
        )
        for template in templates.templates
    )
    return tuple(Weighted(task, rate) for task in tasks)


def metrics_of(templates: DataSetTemplates, template: PromptTemplate) -> tuple[Function, ...]:
    """The metrics that a template names, those that t5 has. Raises PromptError for a name that is none."""
    try:
        found = [template_metric(name) for name in template.metrics]
    except FunctionError as error:
        raise PromptError(f"{shown_data_set(templates.name)}, template {template.name!r}: metrics: {error}") from None
    return tuple(function for function in found if function is not None)
