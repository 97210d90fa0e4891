"""Lines with masked spans, and what a model puts there: text or JSON records in, records out."""

import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from spanloom.evaluation.fill import spans_of
from spanloom.model.decoding import greedy
from spanloom.settings.model import Model
from spanloom.vocabularies.vocabulary import Int32Array, Vocabulary

BATCH = 32
"""Lines that are read before any is filled, and the most that are decoded together."""
_MULTIPLE = 64  # widths are rounded up to this, so that few shapes are compiled
_TOGETHER = BATCH * 1024**2  # attention scores of a head: fewer lines than BATCH where they are longer than 1024
_SCORE_BYTES = 4 * 4  # float32, and the encoder was seen to hold a little over three of them at once
_FEW = 3  # words, or characters, that make a line worth showing
_MOST_DIGITS = 9  # of a sentinel's number
_MASK = re.compile(r"<mask>|<extra_id_(\d+)>|<([1-9]\d*)>")

Predict = Callable[[list[Int32Array]], list[Int32Array]]
"""Target tokens for encoder tokens, at most BATCH of both; int32, the former perhaps with padding."""


class LineError(ValueError):
    """A line that cannot be filled; the message names it and says what to change."""


def fill_lines(
    lines: Iterable[str],
    vocabulary: Vocabulary,
    predict: Predict,
    first_line: int = 1,
    most_tokens: int | None = None,
) -> Iterator[dict[str, Any]]:
    """The records of lines with masks, in order, with `filled` (the text) and `spans` (one for each mask, in order).

    Spans are found by their sentinels, see `spans_of`: a mask for which the model wrote nothing stays empty (and two
    blanks around it become one), and two masks with the same number get the same text. Raises LineError for a line
    without a mask, with a sentinel that the vocabulary lacks, of more than `most_tokens` tokens, or that is no record
    with a text.
    """
    numbered = ((number, line.rstrip("\r\n")) for number, line in enumerate(lines, first_line))
    records = (_record(number, line) for number, line in numbered)
    while block := list(itertools.islice(records, BATCH)):
        targets = predict([masked_ids(number, record["text"], vocabulary, most_tokens) for number, record in block])
        for (_, record), target in zip(block, targets, strict=True):
            spans = spans_of(target, vocabulary)
            texts = [
                vocabulary.decode(spans.get(vocabulary.sentinels[index], [])) for index, _ in _masks(record["text"])
            ]
            yield {**record, "filled": _put_in(record["text"], texts), "spans": texts}


def text_of(number: int, line: str) -> str:
    """The text of a line, which may be a JSON record. Raises LineError, naming the line, where there is none."""
    return str(_record(number, line.rstrip("\r\n"))[1]["text"])


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


def masked_ids(number: int, text: str, vocabulary: Vocabulary, most_tokens: int | None = None) -> Int32Array:
    """Encoder tokens of a text with masks, end of sequence included, (n,) int32. Raises LineError, naming the line."""
    masks = _masks(text)
    if not masks:
        raise LineError(f"line {number}: no <mask> (or <1>, or <extra_id_0>) in {text[:60]!r}")
    parts, end = [], 0
    for index, match in masks:
        if index >= len(vocabulary.sentinels):
            count = len(vocabulary.sentinels)
            raise LineError(
                f"line {number}: sentinel {_number_of(match, index)} of {count} that the vocabulary has, "
                "numbered from 0; write fewer masks"
            )
        parts += [vocabulary.encode(text[end : match.start()]), np.array([vocabulary.sentinels[index]], np.int32)]
        end = match.end()
    parts += [vocabulary.encode(text[end:]), np.array([vocabulary.eos_id], np.int32)]
    tokens = np.concatenate(parts).astype(np.int32)
    if most_tokens is not None and len(tokens) > most_tokens:
        raise LineError(
            f"line {number}: has {len(tokens):,} tokens, and memory takes about {most_tokens:,}; split it, or cut it "
            "to what stands around its masks"
        )
    return tokens


def predictor(params: Any, model: Model, vocabulary: Vocabulary, max_length: int) -> Predict:
    """What the model writes for some lines, greedily, at most `max_length` tokens each; long ones few at a time."""

    def write(inputs: list[Int32Array], rows: int, width: int) -> list[Int32Array]:
        tokens_BxS = np.zeros((rows, width), np.int32)
        for row, tokens in zip(tokens_BxS, inputs, strict=False):
            row[: len(tokens)] = tokens
        written_BxT = np.asarray(greedy(params, model, tokens_BxS, max_length, eos_id=vocabulary.eos_id).tokens)
        return list(written_BxT[: len(inputs)])

    def predict(inputs: list[Int32Array]) -> list[Int32Array]:
        longest_first = sorted(range(len(inputs)), key=lambda place: -len(inputs[place]))
        written: dict[int, Int32Array] = {}
        while longest_first:
            width = -(-len(inputs[longest_first[0]]) // _MULTIPLE) * _MULTIPLE
            rows = rows_together(width)
            places, longest_first = longest_first[:rows], longest_first[rows:]
            written |= zip(places, write([inputs[place] for place in places], rows, width), strict=True)
        return [written[place] for place in range(len(inputs))]

    return predict


def rows_together(width: int) -> int:
    """How many lines of so many tokens are decoded together: a power of two up to BATCH, so that few are compiled."""
    return 1 << (min(BATCH, max(1, _TOGETHER // width**2)).bit_length() - 1)


def most_tokens(model: Model, available: int | None) -> int | None:
    """The longest line that one can hope to fill in so many bytes: attention grows with the square. None: unknown."""
    return None if available is None else max(_MULTIPLE, math.isqrt(available // (_SCORE_BYTES * model.num_heads)))


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


def _record(number: int, line: str) -> tuple[int, dict[str, Any]]:
    record = _parsed(number, line)
    try:
        line.encode("utf-8")
        json.dumps(record, ensure_ascii=False).encode("utf-8")  # JSON may hold half characters as \ud800
    except UnicodeEncodeError as error:
        bad = ascii(error.object[error.start])[1:-1]
        raise LineError(
            f"line {number}: is not UTF-8 text ({bad} after {error.object[max(error.start - 20, 0) : error.start]!r}); "
            "convert the file, for example: iconv -f latin1 -t utf-8"
        ) from None
    return number, record


def _parsed(number: int, line: str) -> dict[str, Any]:
    if not line.lstrip().startswith("{"):
        return {"text": line}
    try:
        record = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise LineError(f"line {number}: begins like JSON, but is not: {error}") from None
    except ValueError:  # not JSON is wrong, but Python's limit
        raise LineError(f"line {number}: holds a number of thousands of digits; write it as a string") from None
    if not isinstance(record, dict) or not isinstance(record.get("text"), str):
        raise LineError(f'line {number}: a JSON line needs a field "text" that holds a string')
    return record
