"""When the loss or the weights stop being numbers: what is said, and the check that keeps NaN out of checkpoints."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from spanloom.settings.optimizer import Adafactor
from spanloom.settings.run import Run
from spanloom.training.checkpoint_paths import latest
from spanloom.training.skipped import most_skipped


class DivergedError(RuntimeError):
    """The loss or the weights became NaN or infinite; the message names the step and what to do."""


def diverged(step: int, what: str, run: Run, directory: Path) -> DivergedError:
    """The error for `what` (such as 'the loss is nan') at `step`, with the last good checkpoint and the ways on."""
    good = latest(directory)
    rate = run.optimizer.learning_rate
    advice = [f"lower the learning rate (--optimizer.learning-rate {rate / 3:.2g}; it was {rate:g})"]
    if run.optimizer.global_norm_clip is None:
        advice.append("clip the gradient (--optimizer.global-norm-clip 1.0)")
    advice.append("warm up longer (--schedule.warmup-steps)")
    if not most_skipped(run):
        advice.append("if it is a rare batch, leave such updates out (--stopping.nonfinite skip)")
    if run.model.dtype != "float32":
        advice.append("compute in float32 (--model.dtype float32)")
    if isinstance(run.optimizer, Adafactor) and run.loss.z_loss == 0:
        advice.append("keep the logits small (--loss.z-loss 1e-4)")
    where = (
        f"The last good checkpoint is {good}, and nothing was saved after it. To go on from it with other settings, "
        "add --fork NEW_DIR to the command, or --accept-change NAME for each setting changed."
        if good
        else "No checkpoint was written before that step, so begin again."
    )
    return DivergedError(f"training diverged at step {step}: {what}. {where} What helps: {'; '.join(advice)}.")


@jax.jit
def _all_finite(tree: Any) -> jax.Array:
    return jnp.all(jnp.array([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]))


def all_finite(tree: Any) -> bool:
    """Whether every number of a tree of arrays is finite. A step's loss tells only of the weights before it."""
    return bool(_all_finite(tree))
