"""`spanloom generate CHECKPOINT`: lines or JSONL in, JSONL with what the model writes out."""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from spanloom.cli.errors import UsageError
from spanloom.cli.parsing import options
from spanloom.settings.generation import Generation, check_generation
from spanloom.settings.mesh import Mesh

ABOUT = """Lines or JSONL in, JSONL with what the model writes for each out, in the same order.

A line is text, or a JSON object with a field "inputs"; it may have a "prefix" with which every output begins, "choices"
one of which it must be, and "settings" of its own, such as {"temperature": 0.7, "seed": 5}. An answer holds the line's
number and fields and "outputs", best first: "text", "score" (by which they are ordered) and "log_prob" (summed, end of
sequence included). A killed command goes on with the first line that has no answer; what makes them stands in
OUTPUT.by.json. Of N jobs that are given the same --input and --output and --shard 0/N to N-1/N, each answers every N-th
line in a file of its own, and the last one puts them together.

    spanloom generate runs/a --input lines.txt --output out.jsonl --beams 4
    spanloom generate runs/a --input lines.txt --output out.jsonl --temperature 0.8 --top-p 0.9 --outputs 5
    echo 'A line.' | spanloom generate runs/a
"""


def main(argv: Sequence[str]) -> int:
    """Run the command; the exit code."""
    from tyro.conf import Positional, arg

    @dataclass(frozen=True)
    class Options(Generation):
        checkpoint: Annotated[Positional[str], arg(metavar="CHECKPOINT")] = dataclasses.field(kw_only=True)
        """A run directory, one of its checkpoints/STEP, or a model in any format that `convert` reads."""
        input: str | None = None
        """File of lines or JSONL; - or unset: standard input."""
        output: str | None = None
        """JSONL file to write or to continue; - or unset: standard output."""
        which: str = "last"
        """Checkpoint of a run: last, best, or a step."""
        field: str = "inputs"
        """Field of a JSON line that holds the input."""
        inputs_eos: Literal["auto", "true", "false"] = "auto"
        """Whether an end of sequence follows the inputs; auto: as in the run's last task, else true."""
        errors: Literal["stop", "keep"] = "stop"
        """What a bad line does: stop says which it is, keep writes an answer with "error" in its place."""
        batch_size: int = 32
        """Lines that are computed together, at most; fewer where they are long."""
        shard: str | None = None
        """I/N: job I of N, counted from 0."""
        mesh: Mesh = dataclasses.field(default_factory=Mesh)

    chosen = options(Options, argv, "spanloom generate", "CHECKPOINT [--input FILE] [--output FILE] [flags]", ABOUT)
    settings = Generation(**{one.name: getattr(chosen, one.name) for one in dataclasses.fields(Generation)})
    with _naming_flags():
        check_generation(settings)
    if chosen.batch_size < 1:
        raise UsageError(f"--batch-size {chosen.batch_size}: must be 1 or more")
    _generate(chosen, settings)
    return 0


@contextlib.contextmanager
def _naming_flags() -> Iterator[None]:
    """Inside, a ValueError, which begins with a setting's name, is one of that flag."""
    try:
        yield
    except ValueError as error:
        name, _, wrong = str(error).partition(" ")
        raise UsageError(f"--{name.replace('_', '-')} {wrong}") from None


def _generate(chosen: Any, settings: Generation) -> None:
    from spanloom.cli.line_job import Job, compiled_programs_kept, load, run, share_from

    job = Job(chosen.input, chosen.output, chosen.errors, share_from(chosen.shard, chosen.output), chosen.field)
    with compiled_programs_kept():
        source = load(chosen.checkpoint, chosen.which, chosen.mesh)
        from spanloom.evaluation.line_requests import record_of, request_of
        from spanloom.evaluation.sequences import check_sequences

        lines = source.lines(chosen.field, chosen.inputs_eos)
        model = source.model
        with _naming_flags():
            check_sequences(settings, model.model, model.available)

        def read(number: int, line: str) -> tuple[dict[str, Any], Any]:
            record = record_of(line, lines.field)
            return record, request_of(record, number, settings, lines, model)

        def answer(requests: Sequence[Any]) -> list[dict[str, Any]]:
            return [
                {
                    "outputs": [
                        {"text": one.text, "score": one.score, "log_prob": one.log_prob}
                        for one in model.as_text(outputs).outputs
                    ]
                }
                for outputs in model.write(requests, chosen.batch_size)
            ]

        made_by = {
            **source.made_by,
            **dataclasses.asdict(settings),
            "inputs_eos": lines.inputs_eos,
            "field": lines.field,
        }
        run(job, made_by=made_by, read=read, answer=answer)
