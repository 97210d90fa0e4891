"""Text to token ids within a task's preprocessors, for those after it that work on ids."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spanloom.tasks.templates import missing
from spanloom.tasks.text_preprocessors import fields
from spanloom.tasks.text_preprocessors.fields import Example

if TYPE_CHECKING:
    from spanloom.tasks.preprocessing import RunSettings


@dataclass(frozen=True)
class Tokenize:
    """Each feature as the ids that its vocabulary gives, as seqio's tokenize; without an end of sequence.

    Needed only before preprocessors of ids: what is text in the end is tokenized by itself.
    """

    features: tuple[str, ...] = ("inputs", "targets")
    copy_pretokenized: bool = True
    """Whether the text stays, as 'inputs_pretokenized' and so on."""

    def __call__(self, example: Example, run: "RunSettings") -> dict[str, Any]:
        """Raises FieldError for a field that is missing, no text, or no feature of the task."""
        changed: dict[str, Any] = {}
        for name in self.features:
            if name not in run.vocabularies:
                raise missing(name, run.vocabularies, "feature")
            text = fields.text(example, name)
            changed[name] = run.vocabularies[name].encode(text)
            if self.copy_pretokenized:
                changed[f"{name}_pretokenized"] = text
        return {**example, **changed}
