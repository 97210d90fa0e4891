"""A prompt template, as settings have it: what promptsource keeps of one (Bach et al. 2022), and names of tasks."""

import re
from dataclasses import dataclass

SEPARATOR = "|||"
"""Parts a template into inputs and targets, and answer choices from one another."""
DataSetName = tuple[str, str | None]
"""A data set and its subset (configuration), if it has several."""


@dataclass(frozen=True)
class PromptTemplate:
    """How a row becomes inputs and targets."""

    name: str
    """Unique within the data set."""
    jinja: str
    """Text in Jinja's language, whose variables are the row's columns: inputs ||| targets."""
    answer_choices: str | None = None
    """What may be answered, in Jinja's language, too: bad ||| good; None: anything."""
    original_task: bool = False
    """Whether it asks what the data set was made for."""
    choices_in_prompt: bool = False
    """Whether the inputs name the choices."""
    metrics: tuple[str, ...] = ()
    """Names of what promptsource measures it by."""
    languages: tuple[str, ...] = ()
    """Languages of the prompt, not of the data."""
    reference: str = ""
    """Where it comes from."""
    id: str = ""
    """promptsource's identity of it."""


@dataclass(frozen=True)
class DataSetTemplates:
    """All templates of a data set, or of one of its subsets."""

    dataset: str
    subset: str | None
    templates: tuple[PromptTemplate, ...]
    """By name, in the order of code points."""

    @property
    def name(self) -> DataSetName:
        """Data set and subset."""
        return self.dataset, self.subset


def task_name(data_set: DataSetName, template: str) -> str:
    """The name of the task that T0 makes of a template: of letters, digits, dots and underscores."""
    dataset, subset = data_set
    return re.sub(r"[^\w.]+", "_", "_".join([dataset, *([subset] if subset is not None else []), template]))


def shown_data_set(data_set: DataSetName) -> str:
    """'glue/mrpc', as it is written on a command line and in messages."""
    return "/".join(part for part in data_set if part is not None)
