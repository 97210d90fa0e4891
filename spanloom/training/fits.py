"""Whether a compiled step fits into memory: asked before it runs, since a machine that swaps says nothing."""

import contextlib
import os
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
    memory: Any = compiled.memory_analysis()
    if memory is None or available is None:
        return
    stays = memory.argument_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes
    passes = memory.temp_size_in_bytes
    if stays + passes <= available:
        return
    sequences = int((available - stays) / passes * run.batch_size) if passes else 0
    ways = [f"--batch-size {sequences} (which may want another learning rate)"] if sequences >= 1 else []
    if run.model.dtype != "bfloat16":
        ways.append("--model.dtype bfloat16")
    ways += ["shorter inputs", "a smaller --model", "a machine with more memory"]
    raise DoesNotFitError(
        f"a step of {run.batch_size} sequences takes {(stays + passes) / _GB:.1f} GB ({stays / _GB:.1f} of it for "
        f"weights and optimizer), and there are {available / _GB:.1f} GB. What helps: {'; '.join(ways)}"
    )


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
