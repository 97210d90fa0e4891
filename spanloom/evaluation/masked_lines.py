"""Lines with masked spans, and what a model puts there: text or JSON records in, records out."""

import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from spanloom.evaluation.fill import spans_of
from spanloom.model.decoding import greedy
from spanloom.settings.model import Model
from spanloom.vocabularies.vocabulary import Int32Array, Vocabulary

BATCH = 32
"""Lines that are decoded together."""
_MULTIPLE = 64  # widths are rounded up to this, so that few shapes are compiled
_FEW = 3  # words, or characters, that make a line worth showing
_MASK = re.compile(r"<mask>|<extra_id_(\d+)>")

Predict = Callable[[list[Int32Array]], list[Int32Array]]
"""Target tokens for encoder tokens, at most BATCH of both; int32, the former perhaps with padding."""


class LineError(ValueError):
    """A line that cannot be filled; the message names it and says what to change."""


def fill_lines(
    lines: Iterable[str], vocabulary: Vocabulary, predict: Predict, first_line: int = 1
) -> Iterator[dict[str, Any]]:
    """The records of lines with masks, in order, with `filled` (the text) and `spans` (one for each mask, in order).

    Spans are found by their sentinels, see `spans_of`: a mask for which the model wrote nothing stays empty, and two
    masks with the same number get the same text. Raises LineError for a line without a mask, with a sentinel that the
    vocabulary lacks, or that is no record with a text.
    """
    numbered = ((number, line.rstrip("\r\n")) for number, line in enumerate(lines, first_line))
    records = (_record(number, line) for number, line in numbered)
    while block := list(itertools.islice(records, BATCH)):
        targets = predict([masked_ids(number, record["text"], vocabulary) for number, record in block])
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


def masked_ids(number: int, text: str, vocabulary: Vocabulary) -> Int32Array:
    """Encoder tokens of a text with masks, end of sequence included, (n,) int32. Raises LineError, naming the line."""
    masks = _masks(text)
    if not masks:
        raise LineError(f"line {number}: no <mask> (or <extra_id_0>) in {text[:60]!r}")
    parts, end = [], 0
    for index, match in masks:
        if index >= len(vocabulary.sentinels):
            count = len(vocabulary.sentinels)
            raise LineError(f"line {number}: sentinel {index} of {count} that the vocabulary has; write fewer masks")
        parts += [vocabulary.encode(text[end : match.start()]), np.array([vocabulary.sentinels[index]], np.int32)]
        end = match.end()
    parts += [vocabulary.encode(text[end:]), np.array([vocabulary.eos_id], np.int32)]
    return np.concatenate(parts).astype(np.int32)


def predictor(params: Any, model: Model, vocabulary: Vocabulary, max_length: int) -> Predict:
    """What the model writes for a batch, greedily, at most `max_length` tokens each."""

    def predict(inputs: list[Int32Array]) -> list[Int32Array]:
        width = -(-max(map(len, inputs)) // _MULTIPLE) * _MULTIPLE
        tokens_BxS = np.zeros((BATCH, width), np.int32)
        for row, tokens in zip(tokens_BxS, inputs, strict=False):
            row[: len(tokens)] = tokens
        written_BxT = np.asarray(greedy(params, model, tokens_BxS, max_length, eos_id=vocabulary.eos_id).tokens)
        return list(written_BxT[: len(inputs)])

    return predict


def _masks(text: str) -> list[tuple[int, re.Match[str]]]:
    """Masks of a text in order, with the number of the sentinel each stands for; <mask> takes the next number."""
    masks, following = [], 0
    for match in _MASK.finditer(text):
        number = following if match[1] is None else int(match[1])
        following = number + 1
        masks.append((number, match))
    return masks


def _put_in(text: str, spans: list[str]) -> str:
    pieces, end = [], 0
    for span, (_, match) in zip(spans, _masks(text), strict=True):
        pieces += [text[end : match.start()], span]
        end = match.end()
    return "".join([*pieces, text[end:]])


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
    except (ValueError, RecursionError) as error:
        raise LineError(f"line {number}: begins like JSON, but is not: {error}") from None
    if not isinstance(record, dict) or not isinstance(record.get("text"), str):
        raise LineError(f'line {number}: a JSON line needs a field "text" that holds a string')
    return record
