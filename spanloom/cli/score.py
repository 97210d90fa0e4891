"""`spanloom score CHECKPOINT PAIRS`: JSONL of inputs and targets in, JSONL with their log-probabilities out."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from spanloom.cli.errors import UsageError
from spanloom.cli.parsing import options
from spanloom.settings.mesh import Mesh

ABOUT = """JSONL of inputs and targets in, JSONL with how likely the model finds each out, in the same order.

A line is {"inputs": "...", "targets": "..."}, or has a list of targets, which is cheaper than a line for each. An
answer holds the line's number and fields and "scores", one for each target: "log_prob" (natural logarithm of its
probability, end of sequence included), "normalized" (that divided by "tokens") and "tokens"; with --per-token true also
"token_log_probs". A killed command goes on with the first line that has no answer; what makes them stands in
OUTPUT.by.json. --shard I/N as in `spanloom generate`.

    spanloom score runs/a pairs.jsonl --output scores.jsonl
    echo '{"inputs": "So?", "targets": ["yes", "no"]}' | spanloom score runs/a -
"""


def main(argv: Sequence[str]) -> int:
    """Run the command; the exit code."""
    from tyro.conf import Positional, arg

    @dataclass(frozen=True)
    class Options:
        checkpoint: Annotated[Positional[str], arg(metavar="CHECKPOINT")]
        """A run directory, one of its checkpoints/STEP, or a model in any format that `convert` reads."""
        pairs: Annotated[Positional[str], arg(metavar="PAIRS")]
        """File of JSONL; -: standard input."""
        output: str | None = None
        """JSONL file to write or to continue; - or unset: standard output."""
        which: str = "last"
        """Checkpoint of a run: last, best, or a step."""
        field: str = "inputs"
        """Field of a line that holds the input."""
        inputs_eos: Literal["auto", "true", "false"] = "auto"
        """Whether an end of sequence follows the inputs; auto: as in the run's last task, else true."""
        per_token: bool = False
        """Whether the log-probability of each token is written, too."""
        errors: Literal["stop", "keep"] = "stop"
        """What a bad line does: stop says which it is, keep writes an answer with "error" in its place."""
        batch_size: int = 32
        """Inputs that are computed together, at most; fewer where they are long."""
        shard: str | None = None
        """I/N: job I of N, counted from 0."""
        mesh: Mesh = dataclasses.field(default_factory=Mesh)

    chosen = options(Options, argv, "spanloom score", "CHECKPOINT PAIRS [--output FILE] [flags]", ABOUT)
    if chosen.batch_size < 1:
        raise UsageError(f"--batch-size {chosen.batch_size}: must be 1 or more")
    _score(chosen)
    return 0


def _score(chosen: Any) -> None:
    from spanloom.cli.line_job import Job, compiled_programs_kept, load, run, share_from

    share = share_from(chosen.shard, chosen.output)
    job = Job(chosen.pairs, chosen.output, chosen.errors, share, chosen.field, adds=("scores",))
    with compiled_programs_kept():
        source = load(chosen.checkpoint, chosen.which, chosen.mesh)
        from spanloom.evaluation.line_requests import pair_of, record_of

        lines = source.lines(chosen.field, chosen.inputs_eos)
        model = source.model

        def read(number: int, line: str) -> tuple[dict[str, Any], Any]:
            record = record_of(line, lines.field)
            return record, pair_of(record, lines, model)

        def answer(questions: Sequence[Any]) -> list[dict[str, Any]]:
            scores = iter(model.score_ids([pair for pairs in questions for pair in pairs], chosen.batch_size))
            return [{"scores": [_fields(next(scores), chosen.per_token) for _ in pairs]} for pairs in questions]

        made_by = {
            **source.made_by,
            "per_token": chosen.per_token,
            "inputs_eos": lines.inputs_eos,
            "field": lines.field,
        }
        run(job, made_by=made_by, read=read, answer=answer)


def _fields(score: Any, per_token: bool) -> dict[str, Any]:
    each = score.token_log_probs
    fields = {"log_prob": score.log_prob, "normalized": score.normalized, "tokens": len(each)}
    return {**fields, "token_log_probs": list(each)} if per_token else fields
