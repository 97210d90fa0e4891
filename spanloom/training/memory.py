"""How much memory is in use, and what becomes of what compiling and each step free. Imports nothing heavy."""

import ctypes
import os
import platform
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

TUNABLES = "GLIBC_TUNABLES"
HUGE_PAGES = "glibc.malloc.hugetlb=1"
OFFERED = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def return_freed_memory() -> None:
    """Give memory that was freed back to the operating system (glibc on Linux; elsewhere nothing happens).

    Compiling takes some 0.4 GiB in small pieces, which the C library would keep for the rest of the run.
    """
    if (trim := _c_function("malloc_trim")) is not None:
        trim(0)


def memory_of(devices: Iterable[Any]) -> dict[str, float]:
    """Bytes in use and at their peak (memory_in_use, memory_peak): of the fullest of JAX's `devices` where they tell,
    of this process where they share its memory, as CPUs do. What nobody tells is left out.
    """
    told = [stats for device in devices if (stats := device.memory_stats())]
    if not told:
        return _of_process()
    names = {"memory_in_use": "bytes_in_use", "memory_peak": "peak_bytes_in_use"}
    found = {name: [stats[key] for stats in told if key in stats] for name, key in names.items()}
    return {name: float(max(sizes)) for name, sizes in found.items() if sizes}


def _of_process() -> dict[str, float]:
    found: dict[str, float] = {}
    with suppress(OSError, ValueError, AttributeError):
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        found["memory_in_use"] = float(pages * os.sysconf("SC_PAGE_SIZE"))
    with suppress(ImportError):
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        peak = float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)
        found["memory_peak"] = max(
            peak, found.get("memory_in_use", 0.0)
        )  # the kernel brings it up to date now and then
    return found


def use_huge_pages() -> None:
    """Start this very command again, in this process, with the C library asking for pages of 2 MiB where they are
    offered: call it first of all. Nothing happens where they are not, or where the user has decided about them.

    XLA's CPU client allocates a step's buffers anew each time, and the operating system clears the pages it gives out
    again, 4 KiB at a time by default: a fifth of the CPU time of training small models, as measured.
    glibc reads this setting only when a process begins.
    """
    tunables = os.environ.get(TUNABLES, "")
    if _offered() and "glibc.malloc.hugetlb" not in tunables:
        os.environ[TUNABLES] = f"{tunables}:{HUGE_PAGES}" if tunables else HUGE_PAGES
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _offered() -> bool:
    """Whether the system gives huge pages to those who ask; what it gives to all or to none needs no asking."""
    library, version = platform.libc_ver()
    if sys.platform != "linux" or library != "glibc" or tuple(map(int, version.split(".")[:2])) < (2, 35):
        return False
    try:
        return "[madvise]" in OFFERED.read_text()
    except OSError:
        return False


def _c_function(name: str) -> Any:
    """A function of the C library; None where there is none of that name."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
