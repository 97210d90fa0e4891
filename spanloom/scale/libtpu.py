"""Has libtpu, TPU's compiler, work on machines without a TPU. Imports nothing heavy."""

import contextlib
import os
from pathlib import Path

_SETTINGS = {
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5e-4",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_SKIP_MDS_QUERY": "1",
}
"""Without these libtpu asks a network who it is, and says on stderr that nobody answers; any answer will do."""
_GOOGLE = "0x1ae0"
"""The vendor of TPUs on the PCI bus, and of the disks and network cards of Google's machines."""
_DISKS_AND_NETWORKS = ("0x01", "0x02")
"""How the PCI classes of these begin."""


def prepare_libtpu() -> None:
    """Call it before JAX is imported, or at least before libtpu is used first."""
    os.environ.update(_SETTINGS)


def quiet_libtpu(root: Path = Path("/")) -> None:
    """Where libtpu is installed and no TPU is here, JAX's look for one says nothing; what is set already stays.

    Call it before JAX looks for devices. Nothing changes where a TPU may be, or is asked for by JAX_FORCE_TPU_INIT.
    """
    if "JAX_FORCE_TPU_INIT" in os.environ or may_have_tpu(root):
        return
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)


def may_have_tpu(root: Path = Path("/")) -> bool:
    """Whether the machine below `root` shows a device that may be a TPU, of a kind yet unknown too. Opens none."""
    if any(root.glob("dev/accel[0-9]*")) or any(root.glob("dev/vfio/[0-9]*")):
        return True
    for vendor in root.glob("sys/bus/pci/devices/*/vendor"):
        with contextlib.suppress(OSError):
            if vendor.read_text().strip() == _GOOGLE:
                kind = vendor.with_name("class").read_text()
                if not kind.startswith(_DISKS_AND_NETWORKS):
                    return True
    return False
