"""Rendering: a row of a data set becomes inputs, targets and answer choices by a template, exactly as promptsource's.

Jinja's sandbox runs the template: it reaches no attribute that begins with an underscore, and no file. The rules are
promptsource's and T0's (Bach et al. 2022, Sanh et al. 2022): hyphens in names of columns become underscores; what
stands in double braces is text of at most 2,048 characters, cut at a word; ||| in the row's own texts parts nothing;
parts are stripped; a row that does not give two parts, or an empty one, is left out. Other than there, what a template
draws (`choice`, `random`) follows from the row, so that a row gives the same example each time.
"""

import functools
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from spanloom.settings.nearest import did_you_mean
from spanloom.tasks.example_rng import ExampleRng
from spanloom.tasks.prompts.answers import CHOICES, with_answers
from spanloom.tasks.prompts.template import SEPARATOR
from spanloom.tasks.prompts.template_files import INSTALL, PromptError
from spanloom.tasks.rows import pack_row
from spanloom.tasks.shown import shown
from spanloom.tasks.templates import FieldError

if TYPE_CHECKING:
    from jinja2 import Template
    from jinja2.runtime import Context
    from jinja2.sandbox import SandboxedEnvironment

TRUNCATE = 2048
"""Characters of a value that are shown, as promptsource has it."""
_DRAWS = "spanloom_draws"
_STAND_IN = "3ed2dface8203c4c9dfb1a5dc58e41e0"
"""Stands for ||| in the row's own texts: promptsource's own, for its length counts where a text is cut, and templates
that measure a text or take it apart see it."""


@dataclass(frozen=True)
class Prompt:
    """A preprocessor: a row becomes `inputs` and `targets`, and what `spanloom.tasks.prompts.answers` tells."""

    name: str
    """In messages; and what the template draws follows from it and the row."""
    jinja: str
    """The template."""
    answer_choices: str | None = None
    """Template of the answer choices."""
    truncate: int = TRUNCATE
    """Characters of each value, see above; 0: all."""
    empty_target: str | None = None
    """What is written where the target is empty; unset: such rows are left out."""
    absent: Literal["error", "empty"] = "error"
    """What a column is that the template names and the row lacks."""

    def __post_init__(self) -> None:
        """Raises PromptError where a template is not well-formed, or jinja2 is not installed."""
        _ = self._text, self._choices

    def __call__(self, row: Mapping[str, Any]) -> dict[str, Any] | bool:
        """The example; False where the row gives none. Raises FieldError for columns that it lacks."""
        parts, choices = self.render(row)
        if len(parts) != 2:
            return False
        inputs, targets = parts[0], parts[1] or self.empty_target or ""
        return with_answers(inputs, targets, choices) if inputs and targets else False

    def render(self, row: Mapping[str, Any]) -> tuple[list[str], list[str] | None]:
        """The stripped parts of the text, whatever their number, and the answer choices. Raises FieldError."""
        values = {name.replace("-", "_"): _protected(value) for name, value in row.items()}
        if CHOICES in values:
            fix = "Rename it in a preprocessor before this one"
            raise FieldError(f"the row has a column {CHOICES!r}, which the template's own choices are called", fix, "")
        lacking = sorted(self.columns.difference(values))
        if lacking and self.absent == "error":
            raise _absent(lacking[0], values)
        values[_DRAWS] = _Draws(self.name, row)
        choices = None if self._choices is None else _parts(self._choices.render(values))
        return _parts(self._text.render({**values, CHOICES: choices})), choices

    @functools.cached_property
    def columns(self) -> frozenset[str]:
        """Columns that the templates name."""
        from jinja2 import meta

        texts = [self.jinja] if self.answer_choices is None else [self.jinja, self.answer_choices]
        found = (meta.find_undeclared_variables(environment().parse(text)) for text in texts)
        return frozenset().union(*found) - {CHOICES}

    @property
    def fixed_choices(self) -> list[str] | None:
        """Answer choices that are those of every row; None where they depend on it, or there are none."""
        from jinja2 import meta

        if self.answer_choices is None or meta.find_undeclared_variables(environment().parse(self.answer_choices)):
            return None
        assert self._choices is not None
        return _parts(self._choices.render({_DRAWS: _Draws(self.name, {})}))

    @functools.cached_property
    def _text(self) -> "Template":
        cut = f" | string | truncate({self.truncate}) }}}}"
        return self._compiled(self.jinja.replace("}}", cut) if self.truncate else self.jinja)

    @functools.cached_property
    def _choices(self) -> "Template | None":
        return None if self.answer_choices is None else self._compiled(self.answer_choices)

    def _compiled(self, text: str) -> "Template":
        env = environment()
        from jinja2 import TemplateError

        try:
            return env.from_string(text)
        except (TemplateError, RecursionError) as error:
            line = getattr(error, "lineno", None)
            place = f", line {line}" if line else ""
            raise PromptError(f"prompt {self.name!r}{place}: {type(error).__name__}: {error}") from error


@functools.cache
def environment() -> "SandboxedEnvironment":
    """Jinja's sandbox with promptsource's filters (`choice`, `most_frequent`, `highlight`) and its `zip`.

    Raises PromptError where jinja2 is not installed.
    """
    try:
        from jinja2 import pass_context
        from jinja2.sandbox import SandboxedEnvironment
    except ImportError as error:
        raise PromptError(f"prompts need the package jinja2: {INSTALL}") from error
    env = SandboxedEnvironment()
    env.globals["zip"] = zip
    del env.globals["lipsum"]  # draws by a generator of its own
    env.filters |= {"choice": pass_context(_choice), "random": pass_context(_choice)}
    env.filters |= {"most_frequent": most_frequent, "highlight": _highlight}
    return env


def most_frequent(items: Iterable[Any]) -> list[Any] | None:
    """The items that come most often, by first mention; None of none."""
    counts = Counter(items).most_common()
    return [item for item, count in counts if count == counts[0][1]] if counts else None


def _highlight(text: Any) -> Any:
    """Marks a value in promptsource's viewer; a model sees the value alone."""
    return text


def _choice(context: "Context", items: Iterable[Any]) -> Any:
    draws = context.resolve(_DRAWS)
    return draws.choice(items if hasattr(items, "__getitem__") else list(items))


class _Draws:
    """What the templates of one row draw, in turn: follows from the prompt's name and the row alone."""

    def __init__(self, name: str, row: Mapping[str, Any]):
        self._of = name, row
        self._rng: ExampleRng | None = None

    @property
    def choice(self) -> Callable[[Any], Any]:
        if self._rng is None:
            name, row = self._of
            digest = hashlib.blake2b(name.encode() + b"\0" + pack_row(row), digest_size=8).digest()
            self._rng = ExampleRng(int.from_bytes(digest, "little"))
        return self._rng.choice


def _absent(name: str, columns: Iterable[str]) -> FieldError:
    columns = list(columns)
    there = ", ".join(map(shown, columns[:20])) or "none"
    what = f"no column {name!r}, which the template names; the columns are {there}{did_you_mean(name, columns)}"
    fix = "Give it that name in a preprocessor before this one, or set absent='empty' if rows may be without it"
    return FieldError(what, fix, f"missing column {name!r}")


def _protected(value: Any) -> Any:
    """A value as templates see it: lists for arrays, and ||| in a text parts nothing."""
    if isinstance(value, str):
        return value.replace(SEPARATOR, _STAND_IN)
    return value.tolist() if hasattr(value, "tolist") else value


def _parts(rendered: str) -> list[str]:
    return [part.replace(_STAND_IN, SEPARATOR).strip() for part in rendered.split(SEPARATOR)]
