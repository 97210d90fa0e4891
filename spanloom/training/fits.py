"""Whether a compiled step fits into memory: asked before it runs, since a machine that swaps says nothing."""

import contextlib
import math
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import jax

from spanloom.pipeline.dataset import Dataset
from spanloom.scale.compiled import memory_of
from spanloom.scale.out_of_memory import memory_ran_out
from spanloom.settings.run import Run
from spanloom.training.abstract import device_bytes
from spanloom.training.needs import likely_changes
from spanloom.training.state import TrainState

_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_GB = 1e9


class DoesNotFitError(RuntimeError):
    """A training step needs more memory than there is. The message says how much, and what would fit."""


def check_fits(
    compiled: jax.stages.Compiled,
    run: Run,
    available: int | None,
    lengths: Mapping[str, int] | None = None,
    devices: int = 1,
) -> None:
    """Raise DoesNotFitError if one step of `run` takes more than `available` bytes of a device; None: nobody knows.

    The compiler tells what it needs: weights and optimizer, which stay, and what a step takes besides, which grows
    with the sequences of a batch. `lengths` of rows and how many `devices` there are: to name the smallest change.
    """
    stays, passes = _needs(compiled)
    if available is None or stays + passes <= available:
        return
    sequences = _sequences(run.at_a_time, stays, passes, available)
    ways = [] if lengths is None else _change(run, lengths, devices, stays + passes, available)
    if sequences:
        ways.append(_smaller(run, sequences, ways))
    if run.model.dtype != "bfloat16":
        ways.append("--model.dtype bfloat16")
    ways += ["shorter inputs", "a smaller --model", "a machine with more memory"]
    raise DoesNotFitError(
        f"a step of {run.at_a_time} sequences takes {(stays + passes) / _GB:.1f} GB ({stays / _GB:.1f} of it for "
        f"weights and optimizer), and there are {available / _GB:.1f} GB. What helps: {'; '.join(ways)}"
    )


@contextlib.contextmanager
def explaining_memory(run: Run, lengths: Mapping[str, int], devices: int) -> Iterator[None]:
    """Where memory runs out inside (a step that is compiled, or taken), DoesNotFitError names the smallest change."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if not memory_ran_out(str(error)):
            raise
        available = available_memory(jax.local_devices()[0]) or math.inf
        ways = _change(run, lengths, devices, None, available)
        if run.at_a_time > 1:
            ways.append(_smaller(run, run.at_a_time // 2, ways))
        ways += ["shorter inputs", "a smaller --model", "devices with more memory"]
        raise DoesNotFitError(
            f"memory ran out ({str(error).splitlines()[0]}). What helps: {'; '.join(ways)}"
        ) from error


def _change(run: Run, lengths: Mapping[str, int], devices: int, needed: float | None, available: float) -> list[str]:
    """The flags of the smallest change that should fit, as one way of those that help; none where none is known. They
    are those that `spanloom plan` has, or compiles first.
    """
    change = next(likely_changes(run, lengths, devices, needed, available), None)
    if change is None:
        return []
    return [f"{' '.join(change.flags)} (the same batches; by formula: `spanloom plan` compiles it)"]


def _smaller(run: Run, sequences: int, ways: Sequence[str]) -> str:
    """The flags with which a step would fit that takes so many sequences at a time, but for those in `ways`."""
    parts = next((part for part in range(sequences, 1, -1) if run.batch_size % part == 0), 1)
    split, smaller = f"--microbatch-size {parts} (the same batch in parts)", f"--batch-size {sequences} (another batch)"
    return smaller if any("--microbatch-size" in way for way in ways) else f"{split}, {smaller}"


def check_heldout(
    heldout_step: jax.stages.Wrapped, state: TrainState, run: Run, parts: Collection[Dataset], available: int | None
) -> None:
    """Likewise for a held-out batch, if it has more sequences than a training step takes at a time, which fit."""
    batch_size = run.eval.batch_size or run.batch_size
    if not parts or batch_size <= run.at_a_time:
        return
    widest = max(parts, key=lambda part: part.inputs_length + part.targets_length)
    (rows,) = widest.eval_batches(batch_size, 1)
    compiled = heldout_step.lower(state.params, rows).compile()
    check_heldout_fits(compiled, run, available, device_bytes(state.opt_state))


def check_heldout_fits(compiled: jax.stages.Compiled, run: Run, available: int | None, beside: int) -> None:
    """Raise DoesNotFitError if one held-out batch does not fit while the bytes `beside` it, of what a device keeps of
    the optimizer's state, stay.
    """
    stays, passes = _needs(compiled)
    stays += beside
    if available is None or stays + passes <= available:
        return
    asked = run.eval.batch_size or run.batch_size
    sequences = max(run.at_a_time, _sequences(asked, stays, passes, available))  # a training batch was found to fit
    raise DoesNotFitError(
        f"a held-out batch of {asked} sequences takes {(stays + passes) / _GB:.1f} GB ({stays / _GB:.1f} of it for "
        f"weights and optimizer), and there are {available / _GB:.1f} GB. What helps: --eval.batch-size {sequences}"
    )


def _needs(compiled: jax.stages.Compiled) -> tuple[int, int]:
    """Bytes that stay and bytes that a step takes besides; none where the compiler does not tell."""
    memory = memory_of(compiled)
    return (memory.stays, memory.temporaries) if memory else (0, 0)


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
