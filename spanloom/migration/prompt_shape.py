"""What stands for promptsource while a task module is imported: its classes, over templates that Spanloom reads."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spanloom.tasks.prompts.template import SEPARATOR, DataSetName, DataSetTemplates, PromptTemplate


@dataclass(frozen=True)
class Template:
    """promptsource.templates.Template."""

    template: PromptTemplate

    @property
    def metadata(self) -> PromptTemplate:
        """original_task, choices_in_prompt, metrics, languages."""
        return self.template

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.template, name)

    def get_fixed_answer_choices_list(self) -> list[str] | None:
        """The choices, where they are the same for all examples."""
        choices = self.template.answer_choices
        if choices is None or re.search(r"\{\{|\{%", choices):
            return None
        return [one.strip() for one in choices.split(SEPARATOR)]


class DatasetTemplates:
    """promptsource.templates.DatasetTemplates."""

    def __init__(self, found: DataSetTemplates):
        self._by_name = {one.name: Template(one) for one in found.templates}
        self.dataset_name, self.subset_name = found.name

    @property
    def all_template_names(self) -> list[str]:
        """Names in order."""
        return sorted(self._by_name)

    @property
    def templates(self) -> dict[str, Template]:
        """By promptsource's identity."""
        return {one.template.id or name: one for name, one in self._by_name.items()}

    def __getitem__(self, name: str) -> Template:
        return self._by_name[name]

    def __len__(self) -> int:
        return len(self._by_name)


class Collection:
    """promptsource.templates.TemplateCollection."""

    def __init__(self, found: Mapping[DataSetName, DataSetTemplates]):
        self._found = found
        self._removed: set[DataSetName] = set()

    @property
    def keys(self) -> list[DataSetName]:
        """Data sets and subsets."""
        return [name for name in self._found if name not in self._removed]

    def remove(self, dataset_name: str, subset_name: str | None = None) -> None:
        """Leaves one out of what is listed; it can still be asked for by its name."""
        self._removed.add((dataset_name, subset_name))

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def datasets_templates(self) -> dict[DataSetName, DatasetTemplates]:
        """All of them."""
        return {name: DatasetTemplates(self._found[name]) for name in self.keys}

    def get_dataset(self, dataset_name: str, subset_name: str | None = None) -> DatasetTemplates:
        """The templates of one."""
        return DatasetTemplates(self._found.get((dataset_name, subset_name)) or _none(dataset_name, subset_name))


def prompt_names(places: Sequence[str]) -> dict[str, Any]:
    """What stands for promptsource's names, over the templates of these folders; without any there are no templates.

    Raises PromptError for folders without templates.
    """
    found: Mapping[DataSetName, DataSetTemplates] = {}
    if places:
        from spanloom.tasks.prompts.template_files import read_collection

        found = read_collection(places)

    def of_dataset(dataset_name: str, subset_name: str | None = None) -> DatasetTemplates:
        return Collection(found).get_dataset(dataset_name, subset_name)

    home = "promptsource.templates"
    return {
        f"{home}.TemplateCollection": lambda: Collection(found),
        f"{home}.DatasetTemplates": of_dataset,
        f"{home}.INCLUDED_USERS": set(),
        "promptsource.utils.removeHyphen": lambda example: {key.replace("-", "_"): one for key, one in example.items()},
    }


def _none(dataset: str, subset: str | None) -> DataSetTemplates:
    return DataSetTemplates(dataset, subset, ())
