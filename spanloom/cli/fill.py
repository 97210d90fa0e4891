"""`spanloom fill CHECKPOINT`: lines with masked spans in, JSONL with what the model puts there out."""

import contextlib
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from spanloom.cli.errors import CommandError
from spanloom.cli.line_job import STDOUT_CLOSED, as_utf8, without_mark
from spanloom.cli.line_output import LineOutput
from spanloom.cli.parsing import options
from spanloom.pipeline.durable import write_file

if TYPE_CHECKING:
    from spanloom.evaluation.masked_lines import Predict
    from spanloom.vocabularies.vocabulary import Vocabulary

ABOUT = """Lines with masked spans in, JSONL with what the model puts there out.

A masked span is written <mask>, or <1>, <2> and so on, or <extra_id_0>, <extra_id_1> and so on. A line is text, or a
JSON object with a field "text". Each line of the output holds "text", "filled" and "spans" (and the other fields of a
JSON line). An output file that holds the first lines already is continued by the same model and settings, which stand
beside it in OUTPUT.by.json.

    spanloom fill runs/quickstart "This function <1> a list of <2>."
    spanloom fill runs/a --input masked.jsonl --output filled.jsonl
"""


def main(argv: Sequence[str]) -> int:
    """Run the command; the exit code."""
    from tyro.conf import Positional, arg

    @dataclass(frozen=True)
    class Options:
        checkpoint: Annotated[Positional[str], arg(metavar="CHECKPOINT")]
        """A run directory, one of its checkpoints/STEP, or a Hugging Face folder."""
        text: tuple[str, ...] = ()
        """Lines given here instead of in a file; words after the checkpoint are such lines, too."""
        input: str | None = None
        """File of lines or JSONL; unset: standard input."""
        output: str | None = None
        """JSONL file to write or to continue; unset: standard output."""
        which: str = "last"
        """Checkpoint of a run: last, best, or a step."""
        max_length: int = 128
        """Most tokens written for a line."""

    chosen = options(Options, argv, "spanloom fill", "CHECKPOINT [LINE ...] [flags]", ABOUT, rest="text")
    if chosen.max_length < 1:
        raise CommandError(f"--max-length {chosen.max_length}: must be 1 or more")
    if chosen.output is None and sys.__stdout__ is None:
        raise CommandError(STDOUT_CLOSED)
    alone = LineOutput(Path(chosen.output)).alone() if chosen.output is not None else contextlib.nullcontext()
    with _open_lines(chosen.text, chosen.input) as lines, alone:
        done, rest = _begin_output(chosen.output), without_mark(lines)
        _skip_done(rest, done, chosen.output)
        from spanloom.evaluation.masked_lines import fill_lines

        filler = _load(chosen.checkpoint, chosen.which, chosen.max_length)
        if filler.warning:
            print(f"warning: {filler.warning}", file=sys.stderr)
        if chosen.output is not None:
            _sign(Path(chosen.output), filler.made_by, continued=bool(done))
        records = fill_lines(rest, filler.vocabulary, filler.predict, len(done) + 1, filler.most_tokens)
        if chosen.output is None:
            as_utf8(sys.stdout)
            _write(records, sys.stdout)
        else:
            with open(chosen.output, "a", encoding="utf-8") as file:
                _write(records, file)
    return 0


@dataclass(frozen=True)
class Filler:
    """What fills masks."""

    predict: "Predict"
    """The model."""
    vocabulary: "Vocabulary"
    """Its vocabulary."""
    made_by: dict[str, Any]
    """All that decides what it writes."""
    most_tokens: int | None = None
    """The longest line that memory takes; None: nobody knows."""
    warning: str = ""
    """What the user should know of it."""


@contextlib.contextmanager
def _open_lines(texts: Sequence[str], path: str | None) -> Iterator[Iterable[str]]:
    """Lines from the command line, a file or standard input."""
    if texts and path is not None:
        raise CommandError("give --text or --input, not both")
    if texts:
        yield texts
    elif path is None:
        if sys.stdin is None:
            raise CommandError("standard input is closed: give --text LINE or --input FILE")
        as_utf8(sys.stdin, errors="surrogateescape")
        yield sys.stdin
    else:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:  # bad bytes are refused line by line
            yield file


def _begin_output(path: str | None) -> list[str]:
    """Texts of the lines that an output file holds already; half a last line, left by a kill, is cut off.

    Raises CommandError for a file that `fill` did not write, which stays as it is.
    """
    if path is None:
        return []
    if not Path(path).exists():
        return []
    content = Path(path).read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    texts = [_text_of(path, number, line) for number, line in enumerate(whole.splitlines(), 1)]
    if len(whole) < len(content):
        if not content[len(whole) :].startswith(b"{"):
            raise _foreign(path, len(texts) + 1)
        with open(path, "r+b") as file:
            file.truncate(len(whole))
    return texts


def _text_of(path: str, number: int, line: bytes) -> str:
    try:
        record = json.loads(line)
        if isinstance(record["text"], str) and "filled" in record:
            return str(record["text"])
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    raise _foreign(path, number)


def _foreign(path: str, number: int) -> CommandError:
    return CommandError(
        f"{path}: line {number} is none that `spanloom fill` wrote; the file stays as it is: name another --output"
    )


def _skip_done(lines: Iterator[str], done: Sequence[str], output: str | None) -> None:
    """Passes over the lines that were filled before. Raises CommandError where the output was made from other ones."""
    from spanloom.evaluation.masked_lines import text_of

    for number, text in enumerate(done, 1):
        line = next(lines, None)
        if line is None or text_of(number, line) != text:
            there = "ends before that" if line is None else "has another text there"
            raise CommandError(
                f"{output}: line {number} was filled for {text[:60]!r}, but the input {there}: name another --output"
            )
    if done:
        print(f"{output}: {len(done):,} lines were there already", file=sys.stderr)


def _sign(output: Path, made_by: dict[str, Any], continued: bool) -> None:
    """Note beside an output what makes it. Raises CommandError where something else made the lines that it holds."""
    note = output.with_name(output.name + ".by.json")
    if not continued:
        try:
            write_file(note, lambda file: file.write(json.dumps(made_by, indent=1).encode()))
        except OSError as error:
            why = f"nothing can be written beside it ({error.strerror})"
            raise CommandError(f"{output}: {why}; name an --output elsewhere") from error
        return
    other = "name another --output to begin anew"
    try:
        before = json.loads(note.read_bytes())
        model, max_length = before["model"], before["max_length"]
        if before["fingerprint"] != made_by["fingerprint"]:
            here = made_by["model"]
            raise CommandError(f"{output} was begun with the model {model}, which is not {here}: use that, or {other}")
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise CommandError(f"{output} holds lines, but {note} does not say what made them: {other}") from None
    if max_length != made_by["max_length"]:
        raise CommandError(f"{output} was begun with --max-length {max_length}: go on with that, or {other}")


def _write(records: Iterable[dict[str, Any]], file: Any) -> None:
    for record in records:
        file.write(json.dumps(record, ensure_ascii=False) + "\n")
        file.flush()


def _load(checkpoint: str, which: str, max_length: int) -> Filler:
    """What fills masks with the model of a checkpoint."""
    import jax

    from spanloom.evaluation.masked_lines import most_tokens, predictor
    from spanloom.settings.kinds import kind_name
    from spanloom.settings.objectives import Supervised, writes_masks
    from spanloom.training.fits import available_memory
    from spanloom.training.read_model import read_model
    from spanloom.vocabularies.build import build

    source = read_model(Path(checkpoint), which)
    vocabulary = build(source.vocabulary)
    run, warning = source.lineage.run, ""
    objectives = [task.objective for task in run.tasks] if run is not None else []
    if run is not None and not any(map(writes_masks, objectives)):
        kinds = sorted({kind_name(type(objective)) for objective in objectives})
        pairs = all(isinstance(objective, Supervised) for objective in objectives)
        learned = "pairs of inputs and targets" if pairs else " and ".join(kinds)
        warning = f"{checkpoint} learned {learned} last ({run.task.name}), not to fill masked spans"
    return Filler(
        predictor(source.params, source.model, vocabulary, max_length),
        vocabulary,
        {"model": source.lineage.origin, "fingerprint": source.fingerprint(), "max_length": max_length},
        most_tokens(source.model, available_memory(jax.devices()[0])),
        warning,
    )
