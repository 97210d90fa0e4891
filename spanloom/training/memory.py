"""What becomes of memory that compiling and each training step free. Imports nothing heavy."""

import ctypes
import sys
from typing import Any

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # glibc's malloc.h
_LARGEST_INT = 2**31 - 1


def return_freed_memory() -> None:
    """Give memory that was freed back to the operating system (glibc on Linux; elsewhere nothing happens).

    Compiling takes some 0.4 GiB in small pieces, which the C library would keep for the rest of the run.
    """
    if (trim := _c_function("malloc_trim")) is not None:
        trim(0)


def keep_freed_memory() -> None:
    """Have what a step frees kept for the next step (glibc on Linux; elsewhere nothing happens).

    XLA's CPU client allocates a step's buffers anew each time. By default glibc hands them back to the operating
    system, which clears the pages it gives out again: of small models a third of the CPU time, as measured. Only its
    main arena can grow in one piece, hence one for all threads: call it before any is started, so before JAX, Orbax or
    PyArrow are imported.
    """
    if (mallopt := _c_function("mallopt")) is not None:
        mallopt(_ARENA_MAX, 1)
        # glibc before 2.35 refuses more than 32 MiB, and would otherwise be left with a threshold that no longer grows.
        mallopt(_MMAP_THRESHOLD, _LARGEST_INT) or mallopt(_MMAP_THRESHOLD, 2**25)
        mallopt(_TRIM_THRESHOLD, _LARGEST_INT)


def _c_function(name: str) -> Any:
    """A function of the C library; None where there is none of that name."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
