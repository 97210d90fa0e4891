"""A draft as the text of a recipe file: docstring, imports, functions, `recipe`, and what was not carried over."""

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from spanloom.migration.draft import Draft
from spanloom.migration.fates import Note
from spanloom.migration.recipe_code import WIDTH, Writer, identifier
from spanloom.settings.mixture import Mixture
from spanloom.settings.task import Task

_SHARED = 2
"""Settings that so many tasks have are written once."""
_TITLES = {
    "lost": "Not carried over:",
    "changed": "Carried over as something else:",
    "needless": "Needs nothing here:",
    "overridden": "Set again by a later line:",
}


def recipe_text(draft: Draft, files: Sequence[str], path: str) -> str:
    """The recipe, ready to be written to `path`; `files` are what it was made of."""
    writer = Writer()
    run_type = writer.name("spanloom.settings.run", "Run")
    body = [*_function_head(draft, run_type), *_body(draft, writer)]
    parts = [
        _docstring(draft, files, path),
        "\n".join(writer.import_lines(draft.imports)),
        *draft.functions.values(),
        "\n".join(body),
    ]
    text = parts[0] + "\n" + parts[1] + "\n\n\n" + "\n\n\n".join(part.strip("\n") for part in parts[2:]) + "\n"
    notes = "\n".join(_comments(draft.notes))
    return f"{text}\n\n{notes}\n" if notes else text


def _docstring(draft: Draft, files: Sequence[str], path: str) -> str:
    run = draft.run
    names = ", ".join(Path(file).name for file in files)
    head = f'"""{_plain(run.name)}, written by `spanloom migrate` from {_plain(names)}.'
    lines = [*textwrap.wrap(head, WIDTH, break_on_hyphens=False), ""]
    needed = " ".join(f"--{one.name} FILES" for one in draft.parameters if one.default == "()")
    needed = f" {needed}" if needed else ""
    if draft.kind == "train":
        lines += [
            f"    spanloom plan {path}{needed} --on v4-8",
            f"    spanloom show {path}{needed}",
            f"    spanloom train {path}{needed} --out runs/{_plain(run.name)}",
        ]
    else:
        lines += [f"    spanloom eval CHECKPOINT {path}{needed}"]
    counts = {kind: sum(note.kind == kind for note in draft.notes) for kind in _TITLES}
    lost = counts["lost"]
    left = f"{lost} line{'s were' if lost != 1 else ' was'} not carried over" if lost else "Every line was carried over"
    lines += ["", *textwrap.wrap(f"{left}; the end of this file says what became of each.", WIDTH), '"""', ""]
    return "\n".join(lines)


def _plain(text: str) -> str:
    """A text that may stand in a docstring."""
    return text.replace("\\", "/").replace('"""', "'''")


def _function_head(draft: Draft, run_type: str) -> list[str]:
    parameters = [f"{one.name}: {one.kind} = {one.default}" for one in draft.parameters]
    line = f"def recipe({', '.join(parameters)}) -> {run_type}:"
    if len(line) > WIDTH:
        lines = ["def recipe(", *(f"    {one}," for one in parameters), f") -> {run_type}:"]
    else:
        lines = [line]
    if not parameters:
        return [*lines, '    """The run."""']
    lines += ['    """The run.', "", "    Args:"]
    for one in draft.parameters:
        text = textwrap.wrap(f"{one.name}: {one.text}", WIDTH - 8)
        lines += [f"      {text[0]}", *(f"        {more}" for more in text[1:])]
    return [*lines, '    """']


def _body(draft: Draft, writer: Writer) -> Iterator[str]:
    """Statements of the function: what tasks share, each task of a mixture, and the run."""
    run = draft.run
    tasks = (*run.tasks, *run.eval.also)
    for name in ("vocabulary", "objective", "features", "preprocessors"):
        values = _shared(tasks, name)
        for number, value in enumerate(values, 1):
            free = f"{name}_{number}" if len(values) > 1 else name
            taken = free in {one.name for one in draft.parameters}
            yield writer.assigned("pieces" if taken else free, value)
    if isinstance(run.task, Mixture) or run.eval.also:
        names: set[str] = {name for _, name in writer.variables} | {one.name for one in draft.parameters}
        names |= set(draft.functions)
        for task in dict.fromkeys(task.name for task in tasks):
            value = next(one for one in tasks if one.name == task)
            yield writer.assigned(_free(identifier(task), names), value)
        for mixture in _inner_first(run.task):
            yield writer.assigned(_free(identifier(mixture.name), names), mixture)
    elif run.task.name:
        yield writer.assigned("task", run.task)
    yield f"    return {writer.code(run, 4, len('return '))}"


def _free(name: str, names: set[str]) -> str:
    """The name, or the next one that is not taken."""
    reserved = {"recipe", "run", "named", "partial", "text", "data", "start", "tfds"}
    number, free = 1, name
    while free in names or free in reserved:
        number += 1
        free = f"{name}_{number}"
    names.add(free)
    return free


def _shared(tasks: Sequence[Task], name: str) -> list[Any]:
    """Values of a field that several tasks have, or that a task of its own is better read without."""
    values: list[Any] = []
    counts: list[int] = []
    for task in tasks:
        value = getattr(task, name)
        if not value:
            continue
        if value in values:
            counts[values.index(value)] += 1
        else:
            values.append(value)
            counts.append(1)
    few = 1 if name in ("vocabulary", "objective") and len(values) == 1 else _SHARED
    return [value for value, count in zip(values, counts, strict=True) if count >= few]


def _inner_first(data: Task | Mixture) -> Iterator[Mixture]:
    """Every mixture once, those inside of others before them."""
    if isinstance(data, Task):
        return
    seen: list[Mixture] = []
    for part in data.parts:
        for one in _inner_first(part.part):
            if one not in seen:
                seen.append(one)
                yield one
    yield data


def _comments(notes: Sequence[Note]) -> Iterator[str]:
    """What became of the lines that are not in the recipe as they stood, as comments."""
    first = True
    for kind, title in _TITLES.items():
        found = [note for note in notes if note.kind == kind]
        if not found:
            continue
        if not first:
            yield "#"
        first = False
        yield f"# {title}"
        for note in found:
            where = f"{note.place}: " if note.place else ""
            text = " ".join(f"{where}{note.what}".split())
            yield from _wrapped(text, "#   ")
            why = " ".join(note.why.split())
            if why:
                yield from _wrapped(why, "#     ")


def _wrapped(text: str, first: str) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent="#     ",
        break_long_words=False,
        break_on_hyphens=False,
    )
