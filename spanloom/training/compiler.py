"""How the training step is compiled, and what compiling leaves behind."""

import ctypes
import sys

import jax


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
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
