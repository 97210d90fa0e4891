"""ReCoRD (SuperGLUE): which entity stands at the query's placeholder, as T5 asks it."""

import re
from collections.abc import Iterator
from typing import Any

from spanloom.tasks.text_preprocessors import fields
from spanloom.tasks.text_preprocessors.fields import Example
from spanloom.tasks.text_preprocessors.labels import UNKNOWN, kept_id

_AFTER_AN_END = re.compile(r"([.?!\"'])\n@highlight\n")


def record(example: Example) -> Iterator[dict[str, Any]]:
    """'record query: ... entities: ... passage: ...' -> the answer: one row for each answer, or one of '<unk>'.

    The passage's highlights become sentences. Raises FieldError for missing fields.
    """
    passage = _AFTER_AN_END.sub(r"\1 ", fields.text(example, "passage")).replace("\n@highlight\n", ". ")
    query, entities = fields.text(example, "query"), ", ".join(fields.texts(example, "entities"))
    answers = fields.texts(example, "answers")
    inputs = f"record query: {query} entities: {entities} passage: {passage}"
    for answer in answers or [UNKNOWN]:
        yield {**kept_id(example, "idx"), "inputs": inputs, "targets": answer, "answers": answers}
