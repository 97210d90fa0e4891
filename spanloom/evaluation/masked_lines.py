"""Texts with masked spans, and what a model puts there."""

import re
from typing import Any

import numpy as np

from spanloom.evaluation.fill import spans_of
from spanloom.vocabularies.vocabulary import Ids, Int32Array, Vocabulary

_FEW = 3  # words, or characters, that make a line worth showing
_MOST_DIGITS = 9  # of a sentinel's number
_MASK = re.compile(r"<mask>|<extra_id_(\d+)>|<([1-9]\d*)>")


def masked_line(text: str) -> str:
    """A few words of a text, the one in the middle masked (characters, where it has no words); empty if there are none.

    It begins neither like JSON nor like a flag, so that it can be given to `spanloom fill` as it is.
    """
    line = re.sub(r"^\W+", "", max(text.splitlines(), key=len, default=""))
    words, between = line.split()[:-1][:7], " "  # the last may be cut
    if len(words) < _FEW:
        words, between = list(line[:20]), ""
    middle = len(words) // 2
    return between.join([*words[:middle], "<mask>", *words[middle + 1 :]]) if len(words) >= _FEW else ""


def masked_ids(text: str, vocabulary: Vocabulary) -> Int32Array:
    """Encoder tokens of a text with masks, end of sequence included, (n,) int32.

    Raises ValueError for a text without a mask, or with a sentinel that the vocabulary lacks.
    """
    masks = _masks(text)
    if not masks:
        raise ValueError(f"no <mask> (or <1>, or <extra_id_0>) in {text[:60]!r}")
    parts, end = [], 0
    for index, match in masks:
        if index >= len(vocabulary.sentinels):
            count = len(vocabulary.sentinels)
            raise ValueError(
                f"sentinel {_number_of(match, index)} of {count} that the vocabulary has, numbered from 0; write "
                "fewer masks"
            )
        parts += [vocabulary.encode(text[end : match.start()]), np.array([vocabulary.sentinels[index]], np.int32)]
        end = match.end()
    parts += [vocabulary.encode(text[end:]), np.array([vocabulary.eos_id], np.int32)]
    return np.concatenate(parts).astype(np.int32)


def filled(text: str, target: Ids, vocabulary: Vocabulary) -> dict[str, Any]:
    """A text with masks and what a model wrote for it: `filled` (the text) and `spans` (one for each mask, in order).

    Spans are found by their sentinels, see `spans_of`: a mask for which the model wrote nothing stays empty (and two
    blanks around it become one), and two masks with the same number get the same text.
    """
    spans = spans_of(target, vocabulary)
    texts = [vocabulary.decode(spans.get(vocabulary.sentinels[index], [])) for index, _ in _masks(text)]
    return {"filled": _put_in(text, texts), "spans": texts}


def _masks(text: str) -> list[tuple[int, re.Match[str]]]:
    """Masks of a text in order, with the number of the sentinel each stands for; <mask> takes the next number.

    <extra_id_N> is counted from 0, <N> from 1.
    """
    masks, following = [], 0
    for match in _MASK.finditer(text):
        if match[2]:
            number = int(match[2][:_MOST_DIGITS]) - 1
        else:
            number = following if match[1] is None else int(match[1].lstrip("0")[:_MOST_DIGITS] or 0)
        following = number + 1
        masks.append((number, match))
    return masks


def _number_of(match: re.Match[str], index: int) -> str:
    """A sentinel's number as it is shown: as it was written, if that is not long."""
    return f"{match[1][:_MOST_DIGITS]}..." if match[1] and len(match[1]) > _MOST_DIGITS else str(index)


def _put_in(text: str, spans: list[str]) -> str:
    """The text with its masks replaced. Where nothing comes between two blanks, one of them goes."""
    filled, end = "", 0
    for span, (_, match) in zip(spans, _masks(text), strict=True):
        filled += text[end : match.start()] + span
        end = match.end()
        if not span and filled.endswith(" ") and text.startswith(" ", end):
            end += 1
    return filled + text[end:]
