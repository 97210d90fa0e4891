"""Lines of text or JSON as what a model is asked: what to write, or what to score."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from spanloom.evaluation.loaded import LoadedModel
from spanloom.evaluation.sequences import check_sequences
from spanloom.evaluation.writing import Request, check_request, settings_with
from spanloom.settings.generation import Generation
from spanloom.settings.model import Model

Record = dict[str, Any]
_FEWEST = 64  # tokens that are always tried
_SCORE_BYTES = 4 * 4  # float32, and the encoder was seen to hold a little over three of them at once


class BadLineError(ValueError):
    """A line that cannot be answered; the message says why, the caller which."""


@dataclass(frozen=True)
class Lines:
    """How lines are read."""

    field: str = "inputs"
    """Field of a JSON line that holds the input."""
    inputs_eos: bool = True
    """Whether an end of sequence follows the inputs."""
    most_tokens: int | None = None
    """The longest input that memory takes; None: nobody knows."""


def most_tokens(model: Model, available: int | None) -> int | None:
    """The longest input that so many bytes can hope to encode: attention grows with the square. None: unknown."""
    return None if available is None else max(_FEWEST, math.isqrt(available // (_SCORE_BYTES * model.num_heads)))


def record_of(line: str, field: str) -> Record:
    """A line as a record: a JSON object as it is, text under `field`. Raises BadLineError."""
    try:
        line.encode("utf-8")
    except UnicodeEncodeError as error:
        bad = ascii(error.object[error.start])[1:-1]
        before = error.object[max(error.start - 20, 0) : error.start]
        raise BadLineError(
            f"is not UTF-8 ({bad} after {before!r}); convert the file, for example: iconv -f latin1 -t utf-8"
        ) from None
    if not line.strip():
        raise BadLineError("is empty")
    if not line.lstrip().startswith("{"):
        return {field: line}
    try:
        record = json.loads(line)
        json.dumps(record, ensure_ascii=False).encode("utf-8")  # JSON may hold half characters as \ud800
    except UnicodeEncodeError:
        raise BadLineError("holds half a character, such as \\ud800; write whole ones") from None
    except (json.JSONDecodeError, RecursionError) as error:
        raise BadLineError(f"begins like JSON, but is not: {error}") from None
    except ValueError:  # not JSON is wrong, but Python's limit
        raise BadLineError("holds a number of thousands of digits; write it as a string") from None
    return dict(record)


def request_of(
    record: Mapping[str, Any], number: int, settings: Generation, lines: Lines, model: LoadedModel
) -> Request:
    """What line `number` asks to be written. Raises BadLineError.

    "settings" are the line's own, "prefix" and "choices" what `Request` has, as text. Without a seed of its own, a line
    draws with the common seed plus its number.
    """
    own = record.get("settings", {})
    choices = record.get("choices", [])
    if not isinstance(own, dict):
        raise BadLineError('"settings" must be an object, such as {"temperature": 0.7}')
    if not isinstance(choices, list) or not all(isinstance(choice, str) for choice in choices):
        raise BadLineError('"choices" must be a list of strings')
    if "choices" in record and not choices:
        raise BadLineError('"choices" is empty: give some, or leave it out, and anything may be written')
    inputs = text_in(record, lines.field)
    ids = model.encode(inputs, eos=lines.inputs_eos)
    check_length(len(ids), lines)
    common = replace(settings, seed=(settings.seed + number) % 2**32)
    prefix = model.vocabulary.encode(text_in(record, "prefix")) if "prefix" in record else ()
    try:
        request = Request(
            ids, settings_with(common, own), prefix, [model.vocabulary.encode(choice) for choice in choices]
        )
        check_request(request)
        check_sequences(request.settings, model.model, model.available)
    except ValueError as error:
        raise BadLineError(str(error)) from None
    return request


def pair_of(record: Mapping[str, Any], lines: Lines, model: LoadedModel) -> list[tuple[Any, Any]]:
    """Ids of the input and of each target: of "targets", a string or a list of them. Raises BadLineError."""
    targets = record.get("targets")
    texts = [targets] if isinstance(targets, str) else targets
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        why = 'needs a field "targets" that holds a string, or a list of strings'
        example = f'; lines are JSON: {{"{lines.field}": ..., "targets": ...}}'
        raise BadLineError(why if record.keys() - {lines.field} else why + example)
    ids = model.encode(text_in(record, lines.field), eos=lines.inputs_eos)
    check_length(len(ids), lines)
    pairs = [(ids, model.encode(text)) for text in texts]
    check_length(max(len(target) for _, target in pairs), lines, "a target ")
    return pairs


def check_length(length: int, lines: Lines, what: str = "") -> None:
    """Raises BadLineError for an input that has no tokens, or, as a target may have, more than memory takes."""
    if not length:
        raise BadLineError("the input has no tokens")
    if lines.most_tokens is not None and length > lines.most_tokens:
        raise BadLineError(f"{what}has {length:,} tokens, and memory takes about {lines.most_tokens:,}; cut it")


def text_in(record: Mapping[str, Any], field: str) -> str:
    """The text in a field. Raises BadLineError."""
    if not isinstance(record.get(field), str):
        raise BadLineError(f'needs a field "{field}" that holds a string')
    return str(record[field])
