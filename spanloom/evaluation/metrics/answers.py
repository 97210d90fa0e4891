"""Metrics of short answers to questions: exact match and F1 of words, the best over the answers of a question, x 100.

As the evaluation scripts of SQuAD 1.1 (Rajpurkar et al. 2016), TriviaQA (Joshi et al. 2017) and CoQA (Reddy et al.
2019) normalise them: lower case, without punctuation and English articles.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from spanloom.evaluation.metrics.numbers import Numbers, check_pairs, field, means

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION_GONE = str.maketrans("", "", string.punctuation)
_PUNCTUATION_SPACE = str.maketrans(dict.fromkeys(string.punctuation + "‘’´`_", " "))


def squad(targets: Sequence[Any], predictions: Sequence[str]) -> Numbers:
    """`em` and `f1` of SQuAD; targets are lists of answers, of which the best counts, or single ones.

    An empty answer that is predicted empty is an exact match, but has F1 0, as T5 has it. Raises ValueError for a
    question without answers; one that has none in SQuAD 2 has the answer ''.
    """
    return _em_and_f1(targets, predictions, lambda text: _plain(text, _PUNCTUATION_GONE))


def trivia_qa(targets: Sequence[Any], predictions: Sequence[str]) -> Numbers:
    """`em` and `f1` of TriviaQA, where punctuation parts words. Otherwise as `squad`."""
    return _em_and_f1(targets, predictions, lambda text: _plain(text, _PUNCTUATION_SPACE))


def span_squad(targets: Sequence[Any], predictions: Sequence[str]) -> Numbers:
    """`squad`, where predictions are places of words, 'start: 3 end: 6', in the target's 'context' (a dict with
    'answers' and 'context'). What is no such text is the answer ''.
    """
    check_pairs(targets, predictions)
    contexts = [_words(field(one, "context", "targets")) for one in targets]
    texts = [_span(context, _words(text)) for context, text in zip(contexts, predictions, strict=True)]
    return squad([field(one, "answers", "targets") for one in targets], texts)


def coqa_f1(targets: Sequence[Any], predictions: Sequence[str]) -> Numbers:
    """`f1` of CoQA: as `squad`, but two answers without a word agree."""
    check_pairs(targets, predictions)
    scores = []
    for number, (target, prediction) in enumerate(zip(targets, predictions, strict=True)):
        words = _plain(prediction, _PUNCTUATION_GONE).split()
        answers = [_plain(one, _PUNCTUATION_GONE).split() for one in _answers(target, number)]
        scores.append(max(1.0 if not words and not one else _word_f1(one, words) for one in answers))
    return means(f1=scores)


def _em_and_f1(targets: Sequence[Any], predictions: Sequence[str], normalise: Callable[[str], str]) -> Numbers:
    check_pairs(targets, predictions)
    exact, scores = [], []
    for number, (target, prediction) in enumerate(zip(targets, predictions, strict=True)):
        answers, text = [normalise(one) for one in _answers(target, number)], normalise(prediction)
        exact.append(text in answers)
        scores.append(max(_word_f1(one.split(), text.split()) for one in answers))
    return means(em=exact, f1=scores)


def _answers(target: Any, number: int) -> Sequence[str]:
    answers = [target] if isinstance(target, str) else target
    if not len(answers):
        raise ValueError(f"question {number} has no answers; one that cannot be answered has the answer ''")
    return answers


def _plain(text: str, punctuation: dict[int, Any]) -> str:
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(punctuation)).split())


def _word_f1(target: list[str], prediction: list[str]) -> float:
    common = sum((Counter(target) & Counter(prediction)).values())
    return 2 * common / (len(target) + len(prediction)) if common else 0.0


def _words(text: str) -> list[str]:
    return re.sub(r"\W", " ", text).split()


def _span(context: list[str], words: list[str]) -> str:
    """The words from the second to the fourth number, 'start: <first> end: <last>'."""
    try:
        return " ".join(context[int(words[1]) : int(words[3]) + 1])
    except (IndexError, ValueError):
        return ""
