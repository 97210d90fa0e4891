"""`spanloom fill CHECKPOINT`: lines with masked spans in, JSONL with what the model puts there out."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from spanloom.cli.errors import UsageError
from spanloom.cli.parsing import options
from spanloom.settings.mesh import Mesh

if TYPE_CHECKING:
    from spanloom.settings.run import Run

ABOUT = """Lines with masked spans in, JSONL with what the model puts there out.

A masked span is written <mask>, or <1>, <2> and so on, or <extra_id_0>, <extra_id_1> and so on. A line is text, or a
JSON object with a field "text". An answer holds the line's number and fields, "filled", the whole text, and "spans",
one for each mask. A killed command goes on with the first line that has no answer; what makes them stands in
OUTPUT.by.json.

    spanloom fill runs/quickstart "This function <1> a list of <2>."
    spanloom fill runs/a --input masked.jsonl --output filled.jsonl
"""


def main(argv: Sequence[str]) -> int:
    """Run the command; the exit code."""
    from tyro.conf import Positional, arg

    @dataclass(frozen=True)
    class Options:
        checkpoint: Annotated[Positional[str], arg(metavar="CHECKPOINT")]
        """A run directory, one of its checkpoints/STEP, or a model in any format that `convert` reads."""
        text: tuple[str, ...] = ()
        """Lines given here instead of in a file; words after the checkpoint are such lines, too."""
        input: str | None = None
        """File of lines or JSONL; - or unset: standard input."""
        output: str | None = None
        """JSONL file to write or to continue; - or unset: standard output."""
        which: str = "last"
        """Checkpoint of a run: last, best, or a step."""
        max_length: int = 128
        """Most tokens written for a line."""
        errors: Literal["stop", "keep"] = "stop"
        """What a bad line does: stop says which it is, keep writes an answer with "error" in its place."""
        batch_size: int = 32
        """Lines that are computed together, at most; fewer where they are long."""
        shard: str | None = None
        """I/N: job I of N, counted from 0."""
        mesh: Mesh = field(default_factory=Mesh)

    chosen = options(Options, argv, "spanloom fill", "CHECKPOINT [LINE ...] [flags]", ABOUT, rest="text")
    for name in ("max_length", "batch_size"):
        if getattr(chosen, name) < 1:
            raise UsageError(f"--{name.replace('_', '-')} {getattr(chosen, name)}: must be 1 or more")
    if chosen.text and chosen.input is not None:
        raise UsageError("give --text or --input, not both")
    _fill(chosen)
    return 0


def _fill(chosen: Any) -> None:
    from spanloom.cli.line_job import Job, compiled_programs_kept, load, run, share_from

    share, lines = share_from(chosen.shard, chosen.output), chosen.text or chosen.input
    job = Job(lines, chosen.output, chosen.errors, share, "text", adds=("filled", "spans"))
    with compiled_programs_kept():
        source = load(chosen.checkpoint, chosen.which, chosen.mesh)
        from spanloom.evaluation.line_requests import check_length, record_of, text_in
        from spanloom.evaluation.masked_lines import filled, masked_ids
        from spanloom.evaluation.writing import Request
        from spanloom.settings.generation import Generation

        if said := _warning(source.run):
            print(f"warning: {chosen.checkpoint} {said}", file=sys.stderr)
        model, settings = source.model, Generation(max_length=chosen.max_length)
        how = source.lines(job.field, "true")

        def read(number: int, line: str) -> tuple[dict[str, Any], Any]:
            record = record_of(line, job.field)
            text = text_in(record, job.field)
            ids = masked_ids(text, model.vocabulary)
            check_length(len(ids), how)
            return record, (text, ids)

        def answer(questions: Sequence[Any]) -> list[dict[str, Any]]:
            written = model.write([Request(ids, settings) for _, ids in questions], chosen.batch_size)
            return [
                filled(text, outputs[0].tokens, model.vocabulary)
                for (text, _), outputs in zip(questions, written, strict=True)
            ]

        run(job, made_by={**source.made_by, "max_length": chosen.max_length}, read=read, answer=answer)


def _warning(run: "Run | None") -> str:
    """What the user should know of a model that was not trained to fill masks last."""
    from spanloom.settings.kinds import kind_name
    from spanloom.settings.objectives import Supervised, writes_masks

    objectives = [task.objective for task in run.tasks] if run is not None else []
    if run is None or any(map(writes_masks, objectives)):
        return ""
    kinds = sorted({kind_name(type(objective)) for objective in objectives})
    pairs = all(isinstance(objective, Supervised) for objective in objectives)
    learned = "pairs of inputs and targets" if pairs else " and ".join(kinds)
    return f"learned {learned} last ({run.task.name}), not to fill masked spans"
