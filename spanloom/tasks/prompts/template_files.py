"""Files of prompt templates: promptsource's YAML, and plain YAML or TOML of one's own.

One's own file names each template, and holds its Jinja text at once or as inputs and targets:

    dataset: reviews                # unset: the file's name
    templates:
      - name: good or bad
        inputs: "{{ text }} Is this review good or bad?"
        targets: "{{ answer_choices[label] }}"
        answer_choices: [bad, good]         # or "bad ||| good"
"""

import os
import tomllib
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from spanloom.settings.nearest import did_you_mean
from spanloom.settings.serialize import SettingsError
from spanloom.tasks.prompts.template import SEPARATOR, DataSetName, DataSetTemplates, PromptTemplate, shown_data_set

INSTALL = "pip install 'spanloom[prompts]'"
_ENDINGS = (".yaml", ".yml", ".toml")
_INSIDE = ("promptsource/templates", "templates", ".")
_TAGS = ("!Template", "!TemplateMetadata")
_LISTS = {"metrics": "[ROUGE]", "languages": "[en]"}
_METADATA = ("original_task", "choices_in_prompt", *_LISTS)
_TEXTS = ("name", "jinja", "inputs", "targets", "reference", "id")
_KNOWN = {*_TEXTS, *_METADATA, "answer_choices", "metadata"}
_IGNORED = {"task_template"}  # of an old promptsource, in a few files


class PromptError(SettingsError):
    """Templates that cannot be read, or are not there: the file, what is wrong and the fix."""


def read_collection(places: Iterable[str]) -> dict[DataSetName, DataSetTemplates]:
    """The templates of files, and of folders with all below them: promptsource's own, or above it, or one's own.

    Several files may hold templates of one data set. Raises PromptError, also where there is none.
    """
    found: dict[DataSetName, DataSetTemplates] = {}
    for place in places:
        for path in _files(Path(place).expanduser()):
            read = read_templates(path)
            found[read.name] = _joined(found[read.name], read, path) if read.name in found else read
    return found


def read_templates(path: Path) -> DataSetTemplates:
    """The templates of one file. Raises PromptError."""
    content = _load(path)
    if not isinstance(content, Mapping) or "templates" not in content:
        raise PromptError(f"{path}: no `templates` in it: a list of them, each with a name, inputs and targets")
    given = content["templates"]
    if not isinstance(given, list | Mapping):
        raise PromptError(f"{path}: `templates` must be a list, or a table by name")
    named = given.items() if isinstance(given, Mapping) else ((None, one) for one in given)
    dataset, subset = content.get("dataset") or path.name.partition(".")[0], content.get("subset")
    one = DataSetTemplates(str(dataset), None if subset is None else str(subset), ())
    read = tuple(_template(value, None if key is None else str(key), path) for key, value in named)
    return _joined(one, DataSetTemplates(one.dataset, one.subset, read), path)


def _joined(one: DataSetTemplates, other: DataSetTemplates, path: Path) -> DataSetTemplates:
    templates = sorted((*one.templates, *other.templates), key=lambda template: template.name)
    names = [template.name for template in templates]
    if again := [name for name, next_name in pairwise(names) if name == next_name]:
        raise PromptError(f"{path}: {shown_data_set(one.name)} has two templates named {again[0]!r}: rename one")
    return DataSetTemplates(one.dataset, one.subset, tuple(templates))


def _template(given: Any, key: str | None, path: Path) -> PromptTemplate:
    if not isinstance(given, Mapping):
        raise PromptError(f"{path}: a template is {given!r}, not a table with a name, inputs and targets")
    name = given.get("name", key)
    if not isinstance(name, str) or not name:
        raise PromptError(f"{path}: a template has no name, but its fields are {', '.join(map(str, given))}")
    where = f"{path}, template {name!r}"
    for field in given:
        if field not in _KNOWN | _IGNORED:
            raise PromptError(f"{where}: no field is called {field!r}{did_you_mean(str(field), sorted(_KNOWN))}")
    for field in _TEXTS:
        if not isinstance(given.get(field, ""), str):
            raise PromptError(f"{where}: {field} is {given[field]!r}, not text: put it into quotes")
    return PromptTemplate(
        name=name,
        jinja=_jinja(given, where),
        answer_choices=_choices(given.get("answer_choices"), where),
        **_about(given, where),
        reference=given.get("reference", ""),
        id=given.get("id", ""),
    )


def _about(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """What is told of a template, in `metadata` (promptsource's) or beside its text; null is as if not there."""
    metadata = given.get("metadata")
    if not isinstance(metadata, Mapping | None):
        raise PromptError(f"{where}: metadata is {metadata!r}: must be a table of {', '.join(_METADATA)}")
    about = {**(metadata or {}), **{field: given[field] for field in _METADATA if field in given}}
    told: dict[str, Any] = {}
    for field in _METADATA:
        value = about.get(field)
        if field in _LISTS:
            if not isinstance(value, list | None) or not all(isinstance(one, str) for one in value or ()):
                raise PromptError(f"{where}: {field} is {value!r}: must be a list of texts, such as {_LISTS[field]}")
            told[field] = tuple(value or ())
        elif isinstance(value, bool | None):
            told[field] = bool(value)
        else:
            raise PromptError(f"{where}: {field} is {value!r}: must be true or false, without quotes")
    return told


def _jinja(given: Mapping[str, Any], where: str) -> str:
    sides = [field for field in ("inputs", "targets") if field in given]
    if "jinja" in given and not sides:
        return str(given["jinja"])
    if "jinja" in given or len(sides) != 2:
        raise PromptError(f"{where}: give inputs and targets, or jinja, which holds both with {SEPARATOR} between them")
    return f"{given['inputs']}{SEPARATOR}{given['targets']}"


def _choices(given: Any, where: str) -> str | None:
    if given is None or isinstance(given, str):
        return given
    if isinstance(given, list) and given and all(isinstance(one, str) for one in given):
        return f" {SEPARATOR} ".join(given)
    raise PromptError(f"{where}: answer_choices is {given!r}: must be texts in quotes, or one text with {SEPARATOR}")


def _files(place: Path) -> list[Path]:
    """The files of templates that a place on a command line stands for."""
    if place.is_file():
        return [place]
    if not place.is_dir():
        raise PromptError(f"prompts {place}: no such file or folder")
    for inside in _INSIDE:
        if found := sorted((place / inside).rglob("templates.yaml")):
            return found
    if found := sorted(path for path in place.iterdir() if path.suffix in _ENDINGS):
        return found
    raise PromptError(
        f"prompts {place}: no templates.yaml below it, and no .yaml or .toml in it: name promptsource's folder "
        "(git clone --branch v0.1.0 https://github.com/bigscience-workshop/promptsource), or files of your own"
    )


def _load(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
        return tomllib.loads(text) if path.suffix == ".toml" else _load_yaml(text)
    except PromptError:
        raise
    except OSError as error:
        raise PromptError(f"{path}: cannot be read: {os.strerror(error.errno or 0)}") from error
    except Exception as error:  # ValueError of TOML and of UTF-8, YAMLError, RecursionError
        raise PromptError(f"{path}: {' '.join(str(error).split())}") from error


def _load_yaml(text: str) -> Any:
    """Plain data alone: no tag makes an object, and promptsource's two are tables."""
    try:
        import yaml
    except ImportError as error:
        raise PromptError(f"templates in YAML need the package PyYAML: {INSTALL}") from error

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        pass

    for tag in _TAGS:
        Loader.add_constructor(tag, lambda loader, node: loader.construct_mapping(node, deep=True))
    return yaml.load(text, Loader)
