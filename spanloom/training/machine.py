"""What a run computes on: versions and devices, which decide the last bits, and the measured speed of a matmul."""

import functools
import hashlib
import os
import platform
import time
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax

import spanloom

MEASURED_ROUNDS = 3
LONG_ENOUGH = 0.02  # seconds a timed product must last, so that its launch does not count
LARGEST_MATRIX = 8192
_JAX_SETTINGS = (
    "jax_default_matmul_precision",
    "jax_default_prng_impl",
    "jax_enable_x64",
    "jax_threefry_partitionable",
)
"""Those that change what a program computes, and which numbers are drawn."""


def describe_machine() -> dict[str, Any]:
    """What must be equal for two runs to agree to the last bit; JSON types only, written into every checkpoint."""
    devices = jax.devices()
    return {
        "spanloom": spanloom.__version__,
        "python": platform.python_version(),
        "jax": jax.__version__,
        "jaxlib": _jaxlib_version(),
        "numpy": np.__version__,
        "optax": optax.__version__,
        "devices": f"{len(devices)} x {devices[0].device_kind}",
        "cpu_count": cpu_count(),
        "processor": processor(),
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        **{name: getattr(jax.config, name) for name in _JAX_SETTINGS},
    }


def differences(saved: dict[str, Any], here: dict[str, Any]) -> list[str]:
    """Lines such as 'jax: 0.10.1 in the checkpoint, 0.10.2 here', one for each difference; empty if there is none.

    What an older checkpoint does not say cannot differ.
    """
    return [
        f"{name}: {value} in the checkpoint, {here.get(name, 'not said')} here"
        for name, value in saved.items()
        if value != here.get(name, "not said")
    ]


def cpu_count() -> int:
    """CPUs this process may use; XLA splits sums over that many threads."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache
def processor() -> str:
    """Name of the CPU and a short hash of its features; XLA compiles for the features, so they decide rounding."""
    name, flags = platform.machine(), ""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                name = value.strip()
            elif key.strip() in ("flags", "Features"):
                flags = " ".join(sorted(value.split()))
                break
    except OSError:
        pass  # not Linux: the machine's name must do
    return f"{name} ({hashlib.sha256(flags.encode()).hexdigest()[:8]})"


@functools.cache
def measured_peak(dtype: Literal["float32", "bfloat16"]) -> float:
    """What `measure_peak` found when it was asked first."""
    return measure_peak(dtype)


def measure_peak(dtype: Literal["float32", "bfloat16"]) -> float:
    """FLOP/s of the best of a few square matmuls in `dtype` over all local devices; takes under a second.

    Simulated devices of a CPU share its cores, all of which one product uses: they count once. MFU is given against
    this measured figure: data sheets of CPUs name none, and those of GPUs are not reached. Whatever else the machine
    computes meanwhile makes it look slower.
    """
    size, best = 1024, 0.0
    multiply = jax.jit(jnp.matmul)
    started = time.perf_counter()
    while True:
        with jax.transfer_guard_host_to_device("allow"):
            square = jnp.ones((size, size), dtype)
        multiply(square, square).block_until_ready()  # compile
        seconds = min(_timed(multiply, square) for _ in range(MEASURED_ROUNDS))
        best = max(best, 2 * size**3 / seconds)
        # The next size takes eight times as long for each product.
        too_slow = (time.perf_counter() - started) + 8 * (MEASURED_ROUNDS + 1) * seconds > 0.8
        if seconds > LONG_ENOUGH or too_slow or size >= LARGEST_MATRIX:
            return best * (1 if jax.local_devices()[0].platform == "cpu" else jax.local_device_count())
        size *= 2


def _timed(multiply: Any, square: jax.Array) -> float:
    started = time.perf_counter()
    multiply(square, square).block_until_ready()
    return time.perf_counter() - started


def _jaxlib_version() -> str:
    from importlib.metadata import version

    return version("jaxlib")
