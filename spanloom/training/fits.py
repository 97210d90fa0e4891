"""Whether a compiled step fits into memory: asked before it runs, since a machine that swaps says nothing."""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax

from spanloom.settings.run import Run

_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_GB = 1e9


class DoesNotFitError(RuntimeError):
    """A training step needs more memory than there is. The message says how much, and what would fit."""


def check_fits(compiled: jax.stages.Compiled, run: Run, available: int | None) -> None:
    """Raise DoesNotFitError if one step of `run` takes more than `available` bytes; None: nobody knows.

    The compiler tells what it needs: weights and optimizer, which stay, and what a step takes besides, which grows
    with the sequences of a batch.
    """
    stays, passes = _needs(compiled)
    if available is None or stays + passes <= available:
        return
    sequences = _sequences(run.batch_size, stays, passes, available)
    ways = [f"--batch-size {sequences} (which may want another learning rate)"] if sequences else []
    if run.model.dtype != "bfloat16":
        ways.append("--model.dtype bfloat16")
    ways += ["shorter inputs", "a smaller --model", "a machine with more memory"]
    raise DoesNotFitError(
        f"a step of {run.batch_size} sequences takes {(stays + passes) / _GB:.1f} GB ({stays / _GB:.1f} of it for "
        f"weights and optimizer), and there are {available / _GB:.1f} GB. What helps: {'; '.join(ways)}"
    )


def check_heldout_fits(
    compiled: jax.stages.Compiled, run: Run, available: int | None, beside: Iterable[jax.Array]
) -> None:
    """Likewise for one held-out batch, while the arrays `beside` it (the optimizer's) are in memory, too."""
    stays, passes = _needs(compiled)
    stays += sum(array.nbytes for array in beside)
    if available is None or stays + passes <= available:
        return
    asked = run.eval.batch_size or run.batch_size
    sequences = max(run.batch_size, _sequences(asked, stays, passes, available))  # a training batch was found to fit
    raise DoesNotFitError(
        f"a held-out batch of {asked} sequences takes {(stays + passes) / _GB:.1f} GB ({stays / _GB:.1f} of it for "
        f"weights and optimizer), and there are {available / _GB:.1f} GB. What helps: --eval.batch-size {sequences}"
    )


def _needs(compiled: jax.stages.Compiled) -> tuple[int, int]:
    """Bytes that stay and bytes that a step takes besides; none where the compiler does not tell."""
    memory: Any = compiled.memory_analysis()
    if memory is None:
        return 0, 0
    stays = memory.argument_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes
    return stays, memory.temp_size_in_bytes


def _sequences(asked: int, stays: int, passes: int, available: int) -> int:
    """How many of the `asked` sequences would fit."""
    return max(0, int((available - stays) / passes * asked)) if passes else 0


def available_memory(device: jax.Device) -> int | None:
    """Bytes that a step may take on `device`: its own limit, on CPU the machine's memory or that of its container."""
    if stats := device.memory_stats():
        return stats.get("bytes_limit")
    if device.platform != "cpu":
        return None
    try:
        limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    except (ValueError, AttributeError, OSError):
        return None  # not a system that says so
    for path in map(Path, _CGROUP_LIMITS):
        with contextlib.suppress(OSError, ValueError):  # no such container, or one without a limit ("max")
            limits.append(int(path.read_text()))
    return min(limits)
