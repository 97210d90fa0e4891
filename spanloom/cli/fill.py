"""`spanloom fill CHECKPOINT`: lines with masked spans in, JSONL with what the model puts there out."""

import contextlib
import io
import itertools
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from spanloom.cli.errors import CommandError
from spanloom.cli.parsing import options

if TYPE_CHECKING:
    import numpy as np

    from spanloom.vocabularies.vocabulary import Vocabulary

ABOUT = """Lines with masked spans in, JSONL with what the model puts there out.

A masked span is written <mask>, or <extra_id_0>, <extra_id_1> and so on. A line is text, or a JSON object with a field
"text". Each line of the output holds "text", "filled" and "spans" (and the other fields of a JSON line). An output file
that holds the first lines already is continued.

    spanloom fill runs/quickstart --text "This function <mask> a list of <mask>."
    spanloom fill runs/a --input masked.jsonl --output filled.jsonl
"""
_MASK = re.compile(r"<mask>|<extra_id_(\d+)>")
_BATCH = 32
_MULTIPLE = 64  # widths are rounded up to this, so that few shapes are compiled

Predict = Callable[[list["np.ndarray"]], list["np.ndarray"]]
"""Target tokens for encoder tokens, both without padding."""


def main(argv: Sequence[str]) -> int:
    """Run the command; the exit code."""
    from tyro.conf import Positional, arg

    @dataclass(frozen=True)
    class Options:
        checkpoint: Annotated[Positional[str], arg(metavar="CHECKPOINT")]
        """A run directory, one of its checkpoints/STEP, or a Hugging Face folder."""
        text: tuple[str, ...] = ()
        """Lines given here instead of in a file."""
        input: str | None = None
        """File of lines or JSONL; unset: standard input."""
        output: str | None = None
        """JSONL file to write or to continue; unset: standard output."""
        which: str = "last"
        """Checkpoint of a run: last, best, or a step."""
        max_length: int = 128
        """Most tokens written for a line."""

    chosen = options(Options, argv, "spanloom fill", "CHECKPOINT [--text LINE ...] [flags]", ABOUT)
    if chosen.max_length < 1:
        raise CommandError(f"--max-length {chosen.max_length}: must be 1 or more")
    with _open_lines(chosen.text, chosen.input) as lines:
        done = _begin_output(chosen.output)
        rest = itertools.islice(lines, done, None)
        predict, vocabulary = _load(chosen.checkpoint, chosen.which, chosen.max_length)
        records = fill_lines(rest, vocabulary, predict, first_line=done + 1)
        if chosen.output is None:
            _as_utf8(sys.stdout)
            _write(records, sys.stdout)
        else:
            with open(chosen.output, "a", encoding="utf-8") as file:
                _write(records, file)
    return 0


def fill_lines(
    lines: Iterable[str], vocabulary: "Vocabulary", predict: Predict, first_line: int = 1
) -> Iterator[dict[str, Any]]:
    """The records of lines with masks, in order.

    Raises CommandError, naming the line, for one without a mask, with a sentinel that the vocabulary lacks, or that is
    no record with a text.
    """
    numbered = ((number, line.rstrip("\r\n")) for number, line in enumerate(lines, first_line))
    records = (_record(number, line) for number, line in numbered)
    while block := list(itertools.islice(records, _BATCH)):
        targets = predict([masked_ids(number, record["text"], vocabulary) for number, record in block])
        for (_, record), target in zip(block, targets, strict=True):
            spans = read_spans(target, vocabulary)
            asked = [index for index, _ in _masks(record["text"])]
            yield {
                **record,
                "filled": _put_in(record["text"], spans),
                "spans": [spans.get(index, "") for index in asked],
            }


def masked_ids(number: int, text: str, vocabulary: "Vocabulary") -> "np.ndarray":
    """Encoder tokens of a text with masks, end of sequence included, (n,) int32."""
    import numpy as np

    masks = _masks(text)
    if not masks:
        raise CommandError(f"line {number}: no <mask> (or <extra_id_0>) in {text[:60]!r}")
    parts, end = [], 0
    for index, match in masks:
        if index >= len(vocabulary.sentinels):
            count = len(vocabulary.sentinels)
            raise CommandError(f"line {number}: sentinel {index} of {count} that the vocabulary has; write fewer masks")
        parts += [vocabulary.encode(text[end : match.start()]), np.array([vocabulary.sentinels[index]], np.int32)]
        end = match.end()
    parts += [vocabulary.encode(text[end:]), np.array([vocabulary.eos_id], np.int32)]
    return np.concatenate(parts).astype(np.int32)


def read_spans(tokens: "np.ndarray", vocabulary: "Vocabulary") -> dict[int, str]:
    """Text by number of the sentinel before it; what stands before the first sentinel or after the end is left out."""
    numbers = {token: index for index, token in enumerate(vocabulary.sentinels)}
    found: dict[int, list[int]] = {}
    current: list[int] | None = None
    for token in tokens.tolist():
        if token == vocabulary.eos_id:
            break
        if token in numbers:
            current = found.setdefault(numbers[token], [])
        elif current is not None and token != vocabulary.pad_id:
            current.append(token)
    return {index: vocabulary.decode(ids) for index, ids in found.items()}


def _masks(text: str) -> list[tuple[int, re.Match[str]]]:
    """Masks of a text in order, with the number of the sentinel each stands for; <mask> takes the next number."""
    masks, following = [], 0
    for match in _MASK.finditer(text):
        number = following if match[1] is None else int(match[1])
        following = number + 1
        masks.append((number, match))
    return masks


def _put_in(text: str, spans: dict[int, str]) -> str:
    pieces, end = [], 0
    for index, match in _masks(text):
        pieces += [text[end : match.start()], spans.get(index, "")]
        end = match.end()
    return "".join([*pieces, text[end:]])


def _record(number: int, line: str) -> tuple[int, dict[str, Any]]:
    record = _parsed(number, line)
    try:
        line.encode("utf-8")
        json.dumps(record, ensure_ascii=False).encode("utf-8")  # JSON may hold half characters as \ud800
    except UnicodeEncodeError as error:
        bad = ascii(error.object[error.start])[1:-1]
        raise CommandError(
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
        raise CommandError(f"line {number}: begins like JSON, but is not: {error}") from None
    if not isinstance(record, dict) or not isinstance(record.get("text"), str):
        raise CommandError(f'line {number}: a JSON line needs a field "text" that holds a string')
    return record


def _as_utf8(stream: Any, errors: str = "strict") -> None:
    """Lines and JSON are UTF-8, whatever the locale says."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(encoding="utf-8", errors=errors)


@contextlib.contextmanager
def _open_lines(texts: Sequence[str], path: str | None) -> Iterator[Iterable[str]]:
    """Lines from the command line, a file or standard input."""
    if texts and path is not None:
        raise CommandError("give --text or --input, not both")
    if texts:
        yield texts
    elif path is None:
        _as_utf8(sys.stdin, errors="surrogateescape")
        yield sys.stdin
    else:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:  # bad bytes are refused line by line
            yield file


def _begin_output(path: str | None) -> int:
    """Lines that an output file holds already; half a last line, left by a kill, is cut off."""
    if path is None or not Path(path).exists():
        return 0
    content = Path(path).read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        with open(path, "r+b") as file:
            file.truncate(len(whole))
    return whole.count(b"\n")


def _write(records: Iterable[dict[str, Any]], file: Any) -> None:
    for record in records:
        file.write(json.dumps(record, ensure_ascii=False) + "\n")
        file.flush()


def _load(checkpoint: str, which: str, max_length: int) -> tuple[Predict, "Vocabulary"]:
    import numpy as np

    from spanloom.cli.convert import read_source
    from spanloom.model.decoding import greedy
    from spanloom.vocabularies.build import build

    source = read_source(Path(checkpoint), which)
    vocabulary = build(source.vocabulary)

    def predict(inputs: list[np.ndarray]) -> list[np.ndarray]:
        width = -(-max(map(len, inputs)) // _MULTIPLE) * _MULTIPLE
        tokens_BxS = np.zeros((_BATCH, width), np.int32)
        for row, tokens in zip(tokens_BxS, inputs, strict=False):
            row[: len(tokens)] = tokens
        written = greedy(source.params, source.model, tokens_BxS, max_length, eos_id=vocabulary.eos_id).tokens
        targets_BxT = np.asarray(written)
        return list(targets_BxT[: len(inputs)])

    return predict, vocabulary
