"""The table at the start of a run: what was decided, by settings, data and devices together.

A plan, which has neither data nor devices, has the rows of it that settings alone decide.
"""

from collections.abc import Iterator
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from spanloom.model.flops import train_flops
from spanloom.pipeline.data import Data
from spanloom.scale.mesh import Layout
from spanloom.settings.kinds import kind_name
from spanloom.settings.optimizer import Adafactor, Decaying, Rsqrt
from spanloom.settings.packing import Packed
from spanloom.settings.run import Run
from spanloom.settings.vocabulary import SentencePiece
from spanloom.training.loggers import METRICS_FILE
from spanloom.training.origin import FROM_THE_BEGINNING, Origin, rate_of_step
from spanloom.training.progress import Display, amount, times
from spanloom.training.trackers import asked_for
from spanloom.vocabularies.pieces import pieces_of
from spanloom.vocabularies.vocabulary import Vocabulary, padded

_MUCH = 1024  # rows
_ADAFACTOR_UNDER_RSQRT = 0.01  # what T5 was trained with: 1 / sqrt(10,000) at most


def say_decided(
    display: Display,
    run: Run,
    data: Data,
    layout: Layout,
    parameters: int,
    directory: Path,
    origin: Origin = FROM_THE_BEGINNING,
) -> None:
    """The table, line by line, and what is remarkable about it. `parameters`: how many numbers the model has."""
    highest = highest_rate(run, origin)
    for label, text in _rows(run, data, layout, parameters, directory, highest):
        display.say(f"{label + ':':<10} {text}")
    _say_schedule(display, run, origin)
    _warn_of_rsqrt(display, run, highest)


def settled(run: Run, parameters: int, vocabulary: Vocabulary | None, highest: float | None) -> dict[str, str]:
    """The rows that settings decide, whatever data and devices there are, by label.

    `vocabulary`: None where its file is not there to be read; `highest`: the highest rate of a step, None where nobody
    knows how far the run before this one will have come.
    """
    model, keep, log = run.model, run.checkpoint, run.log
    optimizer = f"{kind_name(type(run.optimizer))}, learning rate {run.optimizer.learning_rate:g}"
    rate = "going on from where the run before it stands"
    if highest is not None:
        rate = f"at most {highest:.2g} in these steps"
    return {
        "model": f"{model.name}, {amount(parameters)} parameters; {model.num_encoder_layers} + "
        f"{model.num_decoder_layers} layers, d_model {model.d_model}, d_ff {model.d_ff}, {model.num_heads} heads of "
        f"{model.d_kv}, V = {model.vocab_size}",
        "ids": _ids(run, vocabulary),
        "precision": _precision(run),
        "optimizer": f"{optimizer}, dropout {model.dropout:g}",
        "schedule": f"{kind_name(type(run.schedule))}, warm-up of {run.schedule.warmup_steps:,} steps, {rate}",
        "every": f"{run.eval.every:,} steps the held-out loss, {keep.every:,} a checkpoint (kept: the last "
        f"{keep.keep}, the best {keep.keep_best}), {log.every:,} a line of {METRICS_FILE}",
    }


def _rows(
    run: Run, data: Data, layout: Layout, parameters: int, directory: Path, highest: float
) -> Iterator[tuple[str, str]]:
    rows, log = settled(run, parameters, data.vocabulary, highest), run.log
    yield from ((label, rows[label]) for label in ("model", "ids", "precision"))
    yield "devices", _devices(layout)
    yield from ((label, rows[label]) for label in ("optimizer", "schedule"))
    yield "batch", _batch(run, data)
    yield "steps", _amounts(run, data)
    flops = train_flops(run.model, run.batch_size, data.lengths["encoder"], data.lengths["decoder"])
    yield "compute", f"{amount(flops)}FLOP a step, {amount(flops * run.steps)}FLOP in all"
    yield "every", rows["every"]
    also = ["tensorboard"] * log.tensorboard + [f"{name} (project {named})" for name, named in asked_for(run).items()]
    yield "output", f"{directory}{'; logged to ' if also else ''}{', '.join(also)}"


def _ids(run: Run, vocabulary: Vocabulary | None) -> str:
    """What the rows of the embedding stand for; a SentencePiece file need not hold sentinels."""
    settings, rows = run.vocabulary, run.model.vocab_size
    if vocabulary is None:
        of = f" of {settings.path}" if isinstance(settings, SentencePiece) else ""
        return f"those{of}, which is not there to be read; {rows:,} rows"
    sentinels = vocabulary.sentinels
    shown = f" ({', '.join(map(str, sentinels[:2]))}, ...)" if sentinels else ""
    what = "bytes"
    if isinstance(settings, SentencePiece):
        own = len(pieces_of(next(iter(vocabulary.files().values()))))
        inside = own == vocabulary.size
        what = f"{own - inside * len(sentinels):,} pieces of {settings.path}"
        if sentinels:
            shown = f" in it{shown}" if inside else f", which the file has none of, appended after them{shown}"
    enough = padded(vocabulary.size)
    idle = f", of which {rows - vocabulary.size:,} are never used: --model.vocab-size {enough} has fewer"
    hint = idle if rows - enough >= _MUCH else ""
    count = f"{len(sentinels)} sentinels" if sentinels else "no sentinels"
    return f"{vocabulary.size:,}, {what} and {count}{shown}; {rows:,} rows{hint if run.start is None else ''}"


def _precision(run: Run) -> str:
    kept = run.weights
    how = f", {kept.rounding} rounding" if kept.dtype != "float32" else ""
    average = f", with an average (decay {kept.ema_decay:g})" if kept.ema_decay else ""
    return (
        f"computes in {run.model.dtype}, keeps weights in {kept.dtype}{how}{average}; attention {run.model.attention}, "
        f"remat {run.model.remat}"
    )


def _devices(layout: Layout) -> str:
    """How many there are, and which axes of the mesh divide what."""
    kind = layout.mesh.devices.flat[0].device_kind
    if layout.mesh.size == 1:
        return f"1 x {kind}, nothing divided"
    sizes = layout.sizes

    def along(*axes: str) -> str:
        return " x ".join(f"{axis} {sizes[axis]}" for axis in axes if sizes[axis] > 1)

    shards = layout.batch_shards
    parts = [f"the batch in {shards} parts ({along('replica', 'data', 'fsdp')})" if shards > 1 else "the batch whole"]
    pieces = sizes["fsdp"] * sizes["tensor"]
    parts += [f"weights in {pieces} ({along('fsdp', 'tensor')})" if pieces > 1 else "weights whole on each"]
    if sizes["data"] > 1:
        parts += [f"gradients and moments in {pieces * sizes['data']} ({along('data', 'fsdp', 'tensor')})"]
    return f"{layout.mesh.size} x {kind}: {', '.join(parts)}"


def _batch(run: Run, data: Data) -> str:
    encoder, decoder = data.lengths["encoder"], data.lengths["decoder"]
    unit = "rows" if isinstance(run.packing, Packed) else "sequences"
    parts = f", {run.microbatches} microbatches of {run.at_a_time}" if run.microbatches > 1 else ""
    return (
        f"{run.batch_size:,} {unit} of {encoder:,} + {decoder:,} tokens{parts}: {run.batch_size * encoder:,} + "
        f"{run.batch_size * decoder:,} tokens a step"
    )


def _amounts(run: Run, data: Data) -> str:
    tokens = run.steps * run.batch_size * sum(data.lengths.values())
    draws = run.steps * run.batch_size * data.train.examples_per_row
    taken = f"{draws:,.0f} examples of a stream"
    if not data.train.is_stream:
        taken = f"{times(draws / data.train.num_examples)} epochs"
    return f"{run.steps:,}, {amount(tokens)} tokens with padding, {taken}"


def highest_rate(run: Run, origin: Origin) -> float:
    """The highest learning rate of a step: a schedule may be far below the rate that the optimizer names."""
    steps = np.unique(np.linspace(0, max(run.steps - 1, 0), 1001).astype(np.int32))
    return float(np.max(rate_of_step(run, origin)(jnp.asarray(steps))))


def _say_schedule(display: Display, run: Run, origin: Origin) -> None:
    """That the learning rate is at its end before the run is."""
    schedule = run.schedule
    if not isinstance(schedule, Decaying) or not schedule.decay_steps:
        return
    if (end := max(schedule.decay_steps - origin.schedule, 0)) < run.steps:
        display.say(
            f"schedule: it ends at step {end:,} of {run.steps:,}; from there on the learning rate "
            f"stays at {run.optimizer.learning_rate * schedule.end_factor:g}. To lower it over all steps: "
            f"--schedule.decay-steps {origin.schedule + run.steps} (in a run that has begun with --accept-change "
            "schedule.decay_steps)"
        )


def _warn_of_rsqrt(display: Display, run: Run, highest: float) -> None:
    """That T5's schedule, which is made for Adafactor's rate of 1, leaves another rate next to nothing."""
    if not isinstance(run.schedule, Rsqrt):
        return
    optimizer = run.optimizer
    usual = _ADAFACTOR_UNDER_RSQRT if isinstance(optimizer, Adafactor) else type(optimizer)().learning_rate
    if highest < min(usual, optimizer.learning_rate) / 20:
        display.warn(
            f"the schedule rsqrt is made for Adafactor and a learning rate of 1: of {kind_name(type(optimizer))}'s "
            f"{optimizer.learning_rate:g} it leaves {highest:.2g}, and {usual:g} is usual. --schedule constant, or "
            "cosine, begins at the whole of it (in a run that has begun with --accept-change schedule)"
        )
