"""Winograd schemas: does a pronoun mean a noun phrase, or what does it mean? WSC, DPR and their forms in T5.

Words are parted by white space and counted from 0, as the data sets do.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from spanloom.tasks.templates import FieldError
from spanloom.tasks.text_preprocessors import fields
from spanloom.tasks.text_preprocessors.fields import Example
from spanloom.tasks.text_preprocessors.labels import kept_id, label_name
from spanloom.tasks.text_preprocessors.spacing import SPACES

_LABELS = ("False", "True")


def wsc(example: Example) -> dict[str, Any]:
    """'wsc text: Bob asked * Tom * if # he # can lend some money .' -> 'True', 'False' or '<unk>'.

    A span that does not stand where its index says is not marked. Raises FieldError for missing fields.
    """
    text = fields.text(example, "text")
    marks = []
    for span, mark in (("span1", "*"), ("span2", "#")):
        marked, index = fields.text(example, f"{span}_text"), fields.whole(example, f"{span}_index")
        start = _start_of(text, index)
        if start is not None and text.startswith(marked, start):
            marks.append((start, start + len(marked), mark))
    for start, end, mark in sorted(marks, reverse=True):  # from the right, so that places to the left stay
        text = f"{text[:start]}{mark} {text[start:end]} {mark}{text[end:]}"
    return {"inputs": f"wsc text: {text}", "targets": label_name(example, _LABELS), **kept_id(example, "idx")}


@dataclass(frozen=True)
class WscSimple:
    """'wsc: Bob asked Tom if *he* can lend some money .' -> 'Tom': the pronoun is marked, its meaning is the target."""

    label: str = "wsc:"
    correct_referent_only: bool = False
    """Keep only examples whose noun phrase is what the pronoun means, for training."""

    def __call__(self, example: Example) -> Iterator[dict[str, Any]]:
        """Raises FieldError for missing fields, and where the pronoun does not stand at its index."""
        label = fields.whole(example, "label")
        if self.correct_referent_only and label != 1:
            return
        text, pronoun = fields.text(example, "text"), fields.text(example, "span2_text")
        index = fields.whole(example, "span2_index")
        start = _start_of(text, index)
        if start is None or not text.startswith(pronoun, start):
            what = f"span2_text {pronoun!r} is not at word {index} of the text"
            raise FieldError(what, "Leave such examples out", "pronoun not found")
        inputs = f"{self.label} {_starred(text, start, pronoun)}"
        targets = fields.text(example, "span1_text")
        yield {"inputs": inputs, "targets": targets, "label": label, "idx": fields.value(example, "idx")}


@dataclass(frozen=True)
class DefinitePronounResolutionSimple:
    """'wsc: Bob asked Tom if *he* can lend some money.' -> 'Tom', from the Definite Pronoun Resolution data."""

    label: str = "wsc:"

    def __call__(self, example: Example) -> dict[str, Any]:
        """Raises FieldError for missing fields, a pronoun not in the sentence, and a label without a candidate."""
        sentence, pronoun = fields.text(example, "sentence"), fields.text(example, "pronoun")
        found = re.search(rf"(?:^|(?<={SPACES})){re.escape(pronoun)}(?=\W|$)", sentence, re.ASCII)
        if found is None:
            raise FieldError(f"pronoun {pronoun!r} is not in the sentence", "Leave it out", "pronoun not found")
        candidates, label = fields.texts(example, "candidates"), fields.whole(example, "label")
        if not 0 <= label < len(candidates):
            what = f"label {label} is none of the {len(candidates)} candidates"
            raise FieldError(what, "Leave such examples out", "label without a candidate")
        inputs = f"{self.label} {_starred(sentence, found.start(), pronoun)}"
        return {"inputs": inputs, "targets": candidates[label]}


def _start_of(text: str, index: int) -> int | None:
    """Where a word begins, in characters; None where the text has fewer."""
    if index < 0:
        return None
    before = re.match(rf"(?:[^\t\n\f\r ]+{SPACES}){{{index}}}", text)
    return before.end() if before else None


def _starred(text: str, start: int, span: str) -> str:
    return f"{text[:start]}*{span}*{text[start + len(span) :]}"
