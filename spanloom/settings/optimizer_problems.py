"""What contradicts in how a run's weights are kept, moved and averaged."""

from collections.abc import Iterator

from spanloom.settings.optimizer import Constant, Factors, ScheduleFree
from spanloom.settings.run import Run
from spanloom.settings.weights import dtype_problem


def optimizer_problems(run: Run) -> Iterator[str]:
    """One line for each contradiction: the setting and the fix."""
    weights = run.weights
    for name, value in (("model.dtype", run.model.dtype), ("weights.dtype", weights.dtype)):
        if problem := dtype_problem(name, value):
            yield problem
    if weights.rounding not in ("stochastic", "kahan"):
        yield f"weights.rounding is {weights.rounding!r}: must be stochastic or kahan"
    elif weights.rounding == "kahan" and weights.dtype == "float32":
        yield (
            "weights.rounding is 'kahan', which is for bfloat16 weights, and weights.dtype is float32, in which steps "
            "are hardly rounded: give --weights.dtype bfloat16, or unset it"
        )
    if isinstance(run.optimizer, ScheduleFree):
        yield from _schedule_free_problems(run, run.optimizer)


def _schedule_free_problems(run: Run, optimizer: ScheduleFree) -> Iterator[str]:
    if not isinstance(run.schedule, Constant | Factors):
        yield (
            f"the schedule {type(run.schedule).__name__} lowers the learning rate, and optimizer schedule-free "
            "averages weights in place of that: give --schedule constant (with --schedule.warmup-steps)"
        )
    if optimizer.beta1 <= 0:
        yield f"optimizer.beta1 is {optimizer.beta1}: schedule-free needs more than 0, or its average has no trace"
    if run.weights.ema_decay is not None:
        yield "weights.ema_decay is set, and optimizer schedule-free keeps averaged weights of its own: unset one"
    if run.weights.dtype == "bfloat16":
        yield (
            "weights.dtype is bfloat16, and optimizer schedule-free computes its average from small differences of the "
            "weights, in which roundings would pile up: keep them float32"
        )
