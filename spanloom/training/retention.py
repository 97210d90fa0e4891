"""Which checkpoints are kept: the last ones, the best ones, every so many steps. Pure functions."""

from collections.abc import Mapping

from spanloom.settings.run import Checkpoints


def kept(heldout: Mapping[int, float | None], settings: Checkpoints) -> set[int]:
    """The steps to keep of the checkpoints `heldout`: step -> held-out loss measured at that step, or None."""
    steps = sorted(heldout)
    last = steps[-max(settings.keep, 1) :]
    every = [step for step in steps if settings.keep_every and step % settings.keep_every == 0]
    return {*last, *every, *best_steps(heldout)[: settings.keep_best]}


def best_steps(heldout: Mapping[int, float | None]) -> list[int]:
    """Steps with a held-out loss, the lowest first; of equals the earliest first."""
    measured = {step: loss for step, loss in heldout.items() if loss is not None and loss == loss}
    return sorted(measured, key=lambda step: (measured[step], step))
