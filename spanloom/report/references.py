"""Curves that others have published, to be seen beside one's own, with where they come from.

Losses compare only where data, vocabulary, masking and batch are alike; what must be so is said with each.
"""

from dataclasses import dataclass

import numpy as np

from spanloom.report.metrics import Curve
from spanloom.settings.objectives import SpanCorruption
from spanloom.settings.run import Run


@dataclass(frozen=True)
class Reference:
    """One published curve."""

    name: str
    """What it is called in a chart."""
    curve: Curve
    """Training loss in nats a target token over steps."""
    note: str
    """Source, and what it compares with."""


_NANOT5 = "nanoT5 (github.com/PiotrNawrot/nanoT5, T5 1.1 base on C4, 65,536 steps of 128 x 512; read off its plot)"
_STEPS = np.array([10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60, 65]) * 1000.0

NANOT5 = (
    Reference(
        "nanoT5, AdamW-RMS, cosine",
        Curve(_STEPS, np.array([2.76, 2.58, 2.46, 2.37, 2.29, 2.21, 2.14, 2.08, 2.02, 1.99, 1.96, 1.96])),
        f"Dashed: training losses of {_NANOT5}.",
    ),
    Reference(
        "nanoT5, Adafactor, inverse square root",
        Curve(np.delete(_STEPS, 7), np.array([3.03, 2.67, 2.50, 2.39, 2.31, 2.26, 2.21, 2.15, 2.11, 2.08, 2.00])),
        "",
    ),
)
"""nanoT5 (Nawrot 2023), assets/pt_loss.png at commit 1375b38: with T5's vocabulary of 32,128 and spans of 3 at 15 %."""

REFERENCES = {"nanot5": NANOT5}
"""By the names that the command takes."""


def fitting(run: Run | None) -> tuple[Reference, ...]:
    """The references whose losses a run's compare with, as far as its settings tell: those of base on English C4 do not
    compare with other sizes, vocabularies, lengths, batches or masks.
    """
    if run is None or len(run.tasks) != 1 or run.start is not None:
        return ()
    task, model = run.tasks[0], run.model
    masks = task.objective
    alike = (
        isinstance(masks, SpanCorruption)
        and (masks.inputs_length, masks.mean_span_length, masks.noise_density) == (512, 3.0, 0.15)
        and (model.d_model, model.d_ff, model.num_encoder_layers, model.num_decoder_layers) == (768, 2048, 12, 12)
        and 32_000 <= model.vocab_size <= 32_256
        and run.batch_size == 128
    )
    return NANOT5 if alike and "c4" in task.name.lower() else ()
