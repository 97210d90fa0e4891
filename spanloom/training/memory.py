"""What becomes of memory that compiling and each training step free. Imports nothing heavy."""

import ctypes
import os
import platform
import sys
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


def use_huge_pages() -> None:
    """Start this very command again, in this process, with the C library asking for pages of 2 MiB where they are
    offered: call it first of all. Nothing happens where they are not, or where the user has decided about them.

    XLA's CPU client allocates a step's buffers anew each time, and the operating system clears the pages it gives out
    again, 4 KiB at a time by default: of small models a fifth of the CPU time, as measured. glibc reads this setting
    only when a process begins.
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
