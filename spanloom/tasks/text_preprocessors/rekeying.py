"""Fields renamed or left out, and the two commonest forms that need nothing else: lm and summarize."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spanloom.tasks.text_preprocessors import fields
from spanloom.tasks.text_preprocessors.fields import Example


@dataclass(frozen=True)
class Rekey:
    """Exactly the named fields, each from a field of the example, as seqio's rekey: Rekey({"targets": "text"})."""

    key_map: Mapping[str, str | None] = field(default_factory=dict)
    """New name -> old name; None or "" gives an empty text. An empty map changes nothing."""

    def __call__(self, example: Example) -> dict[str, Any]:
        """Raises FieldError for a field that the example lacks."""
        if not self.key_map:
            return dict(example)
        return {new: fields.value(example, old) if old else "" for new, old in self.key_map.items()}


def lm(example: Example) -> dict[str, Any]:
    """Empty inputs, the field 'text' as targets. Raises FieldError where it is missing."""
    return {"inputs": "", "targets": fields.text(example, "text")}


@dataclass(frozen=True)
class Summarize:
    """'summarize: <article>' -> its summary, as in T5 (Raffel et al. 2020, appendix D.17)."""

    article_key: str = "article"
    summary_key: str = "highlights"

    def __call__(self, example: Example) -> dict[str, Any]:
        """Raises FieldError for missing fields."""
        article, summary = fields.text(example, self.article_key), fields.text(example, self.summary_key)
        return {"inputs": f"summarize: {article}", "targets": summary}
