"""How the training step is compiled, and what becomes of the memory that compiling and each step free."""

import ctypes
import sys
from typing import Any

import jax

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # glibc's malloc.h
_LARGEST_INT = 2**31 - 1


def compiler_options() -> dict[str, str]:
    """Options for `jax.jit` on the default device.

    On CPU, XLA's default order of operations favours concurrency and keeps gradients and recomputed activations for
    long: T5 1.1 small at batch 4, 512/114 needs a quarter less memory in the other order, and no more time.
    """
    if jax.default_backend() == "cpu":
        return {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"}
    return {}


def return_freed_memory() -> None:
    """Give memory that was freed back to the operating system (glibc on Linux; elsewhere nothing happens).

    Compiling takes some 0.4 GiB in small pieces, which the C library would keep for the rest of the run.
    """
    if (trim := _c_function("malloc_trim")) is not None:
        trim(0)


def keep_freed_memory() -> None:
    """Have what a step frees kept for the next step (glibc on Linux; elsewhere nothing happens). Call it before JAX
    starts its threads.

    XLA's CPU client allocates a step's buffers anew each time. By default glibc hands them back to the operating
    system, which clears the pages it gives out again: of small models a third of the CPU time, as measured. Only its
    main arena can grow in one piece, hence one for all threads.
    """
    if (mallopt := _c_function("mallopt")) is not None:
        mallopt(_ARENA_MAX, 1)
        mallopt(_MMAP_THRESHOLD, _LARGEST_INT)
        mallopt(_TRIM_THRESHOLD, _LARGEST_INT)


def _c_function(name: str) -> Any:
    """A function of the C library; None where there is none of that name."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
