"""Has libtpu, TPU's compiler, work on machines without a TPU. Imports nothing."""

import os

_SETTINGS = {
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5e-4",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_SKIP_MDS_QUERY": "1",
}
"""Without these libtpu asks a network who it is, and says on stderr that nobody answers; any answer will do."""


def prepare_libtpu() -> None:
    """Call it before JAX is imported, or at least before libtpu is used first."""
    os.environ.update(_SETTINGS)
