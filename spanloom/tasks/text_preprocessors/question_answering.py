"""Questions about a context: SQuAD and TriviaQA in the form of T5 (Raffel et al. 2020, appendix D.16)."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from spanloom.tasks.templates import FieldError
from spanloom.tasks.text_preprocessors import fields
from spanloom.tasks.text_preprocessors.fields import Example
from spanloom.tasks.text_preprocessors.spacing import collapse_spaces, pad_punctuation

_NO_WORD = re.compile(r"\W", re.ASCII)


@dataclass(frozen=True)
class Squad:
    """'question: <question> context: <context>' -> the first answer; all answers stay for the metric.

    From {"id", "context", "question", "answers": {"text": [...]}}.
    """

    include_context: bool = True
    """False: 'squad trivia question: <question>', to be answered from memory."""

    def __call__(self, example: Example) -> dict[str, Any]:
        """Raises FieldError for missing fields, and where there is no answer."""
        question = pad_punctuation(fields.text(example, "question"))
        context = pad_punctuation(fields.text(example, "context"))
        answers = [pad_punctuation(answer) for answer in fields.texts(example, "answers/text")]
        if not answers:
            raise FieldError("no answers to learn from", "Leave such examples out", "no answers")
        form = "question: {} context: {}" if self.include_context else "squad trivia question: {}"
        return {
            "inputs": collapse_spaces(form.format(question, context)),
            "targets": answers[0],
            "id": fields.value(example, "id"),
            "context": context,
            "question": question,
            "answers": answers,
        }


def squad_span_space_tokenized(example: Example) -> Iterator[dict[str, Any]]:
    """As Squad, but the targets say where the answer stands: 'start: 6 end: 6', in words from 0, both ends included.

    Words are what any character but ASCII letters, digits and '_' parts. An answer that is not in the context gives
    nothing. Raises FieldError as Squad.
    """
    row = Squad()(example)
    answer, context = _words(row["targets"]), _words(row["context"])
    for start in range(len(context) - len(answer) + 1):
        if context[start : start + len(answer)] == answer:
            yield {**row, "targets": f"start: {start} end: {start + len(answer) - 1}"}
            return


def trivia_qa(example: Example) -> Iterator[dict[str, Any]]:
    """One row for each context and each answer that stands in it, letter case apart, in this order.

    From {"question", "answer": {"normalized_aliases"}, "entity_pages": {"wiki_context"}, "search_results":
    {"search_context"}}; one of the two sources of contexts may be missing. Raises FieldError for other missing fields.
    """
    question = pad_punctuation(fields.text(example, "question"))
    answers = [pad_punctuation(answer) for answer in fields.texts(example, "answer/normalized_aliases")]
    sources = [name for name in ("entity_pages/wiki_context", "search_results/search_context") if _holds(example, name)]
    if not sources:
        fields.value(example, "entity_pages")  # raises the error that names the fields
    for context in [pad_punctuation(one) for name in sources for one in fields.texts(example, name)]:
        for answer in answers:
            if answer in context.lower():
                yield {"inputs": collapse_spaces(f"question: {question} context: {context}"), "targets": answer}


def _holds(example: Example, name: str) -> bool:
    return name in example or name.split("/")[0] in example


def _words(text: str) -> list[str]:
    return _NO_WORD.sub(" ", text).split(" ")
