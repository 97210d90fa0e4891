"""Optimizers and learning-rate schedules as settings. `spanloom.optim.build` turns them into optax."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from spanloom.settings.nearest import nearest


@dataclass(frozen=True)
class Adafactor:
    """Adafactor as T5X and Mesh TensorFlow have it (Shazeer and Stern 2018); layers are updated one by one."""

    learning_rate: float = 1.0
    """Base learning rate; the schedule multiplies it, and so does each parameter's RMS."""
    decay_rate: float = 0.8
    """Second-moment decay is 1 - (t + 1)^-decay_rate."""
    step_offset: int = 0
    """Subtracted from the step in the decay."""
    clipping_threshold: float | None = 1.0
    """Updates whose RMS exceeds this are scaled down."""
    beta1: float | None = None
    """Momentum; none as released T5, 0.9 for umT5-XXL."""
    factored: bool = True
    """Keep second moments of matrices as one row and one column."""
    min_dim_size_to_factor: int = 128
    """Matrices whose smaller side is below this keep full second moments."""
    multiply_by_parameter_scale: bool = True
    """Scale the step by the parameter's RMS."""
    epsilon1: float = 1e-30
    """Added to squared gradients."""
    epsilon2: float = 1e-3
    """Least parameter scale."""
    max_parameter_scale: float | None = None
    """Largest parameter scale."""
    weight_decay: float | None = None
    """Decay a step, not multiplied by the learning rate."""
    decayed: tuple[str, ...] = ("all",)
    """What decays: matrices, all, or parameters by name (* is any letters); with ! before it what does not; of several
    that match a parameter the last decides."""
    weight_decay_lr_exponent: float | None = None
    """If set, decay is multiplied by learning_rate ^ exponent."""
    global_norm_clip: float | None = None
    """Clip the gradient to this global norm first; None: do not."""
    skip_nan_updates: bool = False
    """Leave elements whose update is NaN as they are; a run then ends only after more than 10 such steps in a row."""
    factor_rules: Literal["heuristic", "logical"] = "heuristic"
    """heuristic: each layer as T5X's unscanned form; logical: T5X's rules for scanned layers, by axis name."""


@dataclass(frozen=True)
class AdamW:
    """AdamW (Loshchilov and Hutter 2019)."""

    learning_rate: float = 1e-3
    """Base learning rate; the schedule multiplies it."""
    beta1: float = 0.9
    """Decay of the first moment."""
    beta2: float = 0.999
    """Decay of the second moment."""
    epsilon: float = 1e-8
    """Added to the root of the second moment."""
    weight_decay: float = 0.0
    """Decoupled decay, multiplied by the learning rate."""
    decayed: tuple[str, ...] = ("matrices",)
    """What decays: matrices, all, or parameters by name (* is any letters); with ! before it what does not; of several
    that match a parameter the last decides."""
    global_norm_clip: float | None = 1.0
    """Clip the gradient to this global norm first; None: do not."""


@dataclass(frozen=True)
class AdamWRMS:
    """AdamW whose step for each parameter is scaled by its RMS, layer by layer (nanoT5)."""

    learning_rate: float = 2e-2
    """Base learning rate, relative to a parameter's RMS."""
    beta1: float = 0.9
    """Decay of the first moment."""
    beta2: float = 0.999
    """Decay of the second moment."""
    epsilon: float = 1e-6
    """Added to the root of the second moment."""
    weight_decay: float = 0.0
    """Decoupled decay, multiplied by the learning rate."""
    decayed: tuple[str, ...] = ("matrices",)
    """What decays: matrices, all, or parameters by name (* is any letters); with ! before it what does not; of several
    that match a parameter the last decides."""
    min_scale: float = 1e-3
    """Least parameter RMS."""
    global_norm_clip: float | None = 1.0
    """Clip the gradient to this global norm first; None: do not."""


@dataclass(frozen=True)
class Lion:
    """Lion: the sign of a momentum (Chen et al. 2023); half of AdamW's memory."""

    learning_rate: float = 1e-4
    """Base learning rate, which is how far each weight moves a step; a third to a tenth of AdamW's."""
    beta1: float = 0.9
    """Share of the momentum in what the sign is taken of."""
    beta2: float = 0.99
    """Decay of the momentum."""
    weight_decay: float = 0.0
    """Decoupled decay, multiplied by the learning rate; three to ten times AdamW's."""
    decayed: tuple[str, ...] = ("matrices",)
    """What decays: matrices, all, or parameters by name (* is any letters); with ! before it what does not; of several
    that match a parameter the last decides."""
    global_norm_clip: float | None = 1.0
    """Clip the gradient to this global norm first; None: do not."""


@dataclass(frozen=True)
class Muon:
    """Muon (Jordan 2024): the layers' matrices move by an orthogonal matrix near their momentum, each layer's by its
    own; embeddings, head, norms and position tables by AdamW."""

    learning_rate: float = 1e-3
    """Base learning rate of both: steps of matrices are scaled to be as large as AdamW's."""
    momentum: float = 0.95
    """Decay of the matrices' momentum."""
    nesterov: bool = True
    """Look ahead: add the gradient itself to the momentum once more."""
    newton_schulz_steps: int = 5
    """Iterations that make the momentum orthogonal."""
    update_rms: float = 0.2
    """RMS of a matrix's step at learning rate 1; 0.2 is about AdamW's (Liu et al. 2025)."""
    beta1: float = 0.9
    """AdamW's decay of the first moment."""
    beta2: float = 0.95
    """AdamW's decay of the second moment."""
    epsilon: float = 1e-8
    """Added to AdamW's root of the second moment."""
    weight_decay: float = 0.0
    """Decoupled decay, multiplied by the learning rate."""
    decayed: tuple[str, ...] = ("matrices",)
    """What decays: matrices, all, or parameters by name (* is any letters); with ! before it what does not; of several
    that match a parameter the last decides."""
    global_norm_clip: float | None = 1.0
    """Clip the gradient to this global norm first; None: do not."""


@dataclass(frozen=True)
class ScheduleFree:
    """Schedule-free AdamW (Defazio et al. 2024): averages the weights in place of lowering the rate; wants the schedule
    constant, with a warm-up. Evaluated, exported and kept as the model are the averaged weights."""

    learning_rate: float = 2.5e-3
    """Base learning rate; one to ten times AdamW's with a schedule."""
    beta1: float = 0.9
    """Share of the averaged weights in those that gradients are taken at; 0.95 or 0.98 for long runs."""
    beta2: float = 0.999
    """Decay of the second moment."""
    epsilon: float = 1e-8
    """Added to the root of the second moment."""
    weight_decay: float = 0.0
    """Decoupled decay, multiplied by the learning rate."""
    decayed: tuple[str, ...] = ("matrices",)
    """What decays: matrices, all, or parameters by name (* is any letters); with ! before it what does not; of several
    that match a parameter the last decides."""
    weight_power: float = 2.0
    """A step counts in the average by the highest learning rate so far, to this power."""
    global_norm_clip: float | None = 1.0
    """Clip the gradient to this global norm first; None: do not."""


Optimizer = Adafactor | AdamW | AdamWRMS | Lion | Muon | ScheduleFree


@dataclass(frozen=True)
class Rsqrt:
    """1 / sqrt(max(step, warmup_steps)), T5's pretraining schedule."""

    warmup_steps: int = 10_000
    """Steps before the decay begins; the rate is constant until then."""
    step_offset: int = 0
    """Subtracted from the step first."""


@dataclass(frozen=True)
class Constant:
    """The base rate, after a linear warm-up."""

    warmup_steps: int = 0
    """Steps of linear warm-up."""


@dataclass(frozen=True)
class Linear:
    """Linear warm-up, then linear decay."""

    warmup_steps: int = 0
    """Steps of linear warm-up."""
    decay_steps: int | None = None
    """Step at which the end is reached; unset: the run's steps."""
    end_factor: float = 0.0
    """Share of the base rate at the end."""


@dataclass(frozen=True)
class Cosine:
    """Linear warm-up, then half a cosine."""

    warmup_steps: int = 0
    """Steps of linear warm-up."""
    decay_steps: int | None = None
    """Step at which the end is reached; unset: the run's steps."""
    end_factor: float = 0.0
    """Share of the base rate at the end."""


@dataclass(frozen=True)
class WSD:
    """Warm-up, stable, then decay by 1 - sqrt (Haegele et al. 2024)."""

    warmup_steps: int = 0
    """Steps of linear warm-up."""
    decay_steps: int | None = None
    """Step at which the end is reached; unset: the run's steps."""
    decay_share: float = 0.2
    """Share of the steps spent decaying."""
    end_factor: float = 0.0
    """Share of the base rate at the end."""


@dataclass(frozen=True)
class Factors:
    """A T5X factor string, such as 'constant * linear_warmup * rsqrt_decay'."""

    factors: str = "constant * linear_warmup * rsqrt_decay"
    """Names joined by '*': constant, linear_warmup, linear_decay, rsqrt_decay, rsqrt_normalized_decay,
    decay_every, cosine_decay."""
    warmup_steps: int = 1000
    """Steps of warm-up."""
    decay_factor: float = 0.5
    """Factor of decay_every; slope of linear_decay."""
    steps_per_decay: int = 20_000
    """Period of decay_every."""
    steps_per_cycle: int = 100_000
    """Period of cosine_decay."""
    step_offset: int = 0
    """Subtracted from the step first."""
    min_learning_rate: float = 1e-8
    """Floor of the result."""


FACTOR_PERIODS: dict[str, str | None] = {
    "constant": None,
    "linear_warmup": "warmup_steps",
    "linear_decay": "warmup_steps",
    "rsqrt_decay": "warmup_steps",
    "rsqrt_normalized_decay": "warmup_steps",
    "decay_every": "steps_per_decay",
    "cosine_decay": "steps_per_cycle",
}
"""The factors that `Factors` may name, each with the setting it divides by, which must be 1 or more."""


def factor_problems(settings: Factors) -> Iterator[str]:
    """What is wrong with a factor string: unknown names, with the nearest known one, and periods of 0 steps."""
    for name in dict.fromkeys(name.strip() for name in settings.factors.split("*")):
        if name not in FACTOR_PERIODS:
            near = nearest(name, FACTOR_PERIODS, count=1, likeness=0.0)[0]
            hint = f"did you mean {near!r}? " if name else "names are joined by single '*'; "
            yield (
                f"unknown factor {name!r} in schedule factors {settings.factors!r}: {hint}"
                f"Known: {', '.join(FACTOR_PERIODS)}"
            )
            continue
        period = FACTOR_PERIODS[name]
        if period is not None and getattr(settings, period) < 1:
            yield (
                f"factor {name!r} needs {period} of at least 1, not {getattr(settings, period)}; "
                "set it, or leave the factor out"
            )


Decaying = Linear | Cosine | WSD
"""Schedules that end: at decay_steps, with end_factor of the rate."""

Schedule = Rsqrt | Constant | Decaying | Factors


def zero_from(schedule: Schedule) -> int | None:
    """The step from which on the learning rate is 0; None: it never is, or decay_steps is not filled in yet."""
    return schedule.decay_steps if isinstance(schedule, Decaying) and not schedule.end_factor else None
