"""`spanloom inspect SRC`: what a checkpoint is."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from spanloom.cli.parsing import options

ABOUT = """What a checkpoint is: format, architecture, step, optimizer, vocabulary and sentinels.

SRC may be a run directory, one of its checkpoints/STEP, a Hugging Face folder, or a checkpoint of T5X (msgpack and
zarr, or Orbax) or Mesh TensorFlow, or a folder of them. Every array is accounted for; nothing is written.

    spanloom inspect runs/quickstart
    spanloom inspect t5_1_1_base/checkpoint_1000000
"""


def main(argv: Sequence[str]) -> int:
    """Run the command; the exit code."""
    from tyro.conf import Positional, arg

    @dataclass(frozen=True)
    class Options:
        source: Annotated[Positional[str], arg(metavar="SRC")]
        """A run directory, one of its checkpoints/STEP, a T5X checkpoint, or a Hugging Face folder."""
        which: str = "last"
        """Checkpoint of a run: last, best, or a step; of T5X last or a step."""
        vocabulary: str | None = None
        """Vocabulary of a T5X checkpoint, or of a Hugging Face folder without one: its SentencePiece model, or bytes;
        unset: found beside it."""
        activations: str | None = None
        """Activations of a T5X checkpoint, gelu,linear or relu, where neither its config.gin nor its sizes tell."""
        json: bool = False
        """Print JSON in place of a table."""

    chosen = options(Options, argv, "spanloom inspect", "SRC [flags]", ABOUT)
    from spanloom.training.inspected import inspect

    found = inspect(Path(chosen.source).expanduser(), chosen.which, chosen.vocabulary, chosen.activations)
    if chosen.json:
        print(json.dumps(dict(found.rows) | {"notes": list(found.notes)}, indent=2, ensure_ascii=False))
        return 0
    width = max(len(name) for name, _ in found.rows)
    for name, value in found.rows:
        print(f"{name:<{width}}  {value}")
    for note in found.notes:
        print(f"note: {note}")
    return 0
