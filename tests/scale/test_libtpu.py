"""What libtpu is told where no TPU is, and that a machine that may have one is left alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from libtpu_here import needs_libtpu

from spanloom.scale.libtpu import may_have_tpu, quiet_libtpu

NAMES = ("TPU_WORKER_HOSTNAMES", "TPU_ACCELERATOR_TYPE", "TPU_SKIP_MDS_QUERY", "ALLOW_MULTIPLE_LIBTPU_LOAD")


def machine(root: Path, vendor: str = "", kind: str = "", devices: tuple[str, ...] = ()) -> Path:
    """A machine with one PCI device and some files of devices."""
    pci = root / "sys/bus/pci/devices/0000:00:05.0"
    pci.mkdir(parents=True)
    (pci / "vendor").write_text(f"{vendor}\n")
    (pci / "class").write_text(f"{kind}\n")
    for name in devices:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


@pytest.mark.parametrize(
    ("vendor", "kind", "devices", "found"),
    [
        ("0x1ae0", "0x120000", (), True),  # Google's, and neither disk nor network card
        ("0x1ae0", "0x020000", (), False),  # the network card of Google's machines
        ("0x1ae0", "0x010802", (), False),  # their disk
        ("0x10de", "0x030200", ("dev/vfio/vfio",), False),  # a GPU
        ("", "", ("dev/accel0",), True),
        ("", "", ("dev/vfio/0",), True),
    ],
)
def test_what_may_be_a_tpu(tmp_path, monkeypatch, vendor, kind, devices, found):
    for name in (*NAMES, "JAX_FORCE_TPU_INIT"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    root = machine(tmp_path, vendor, kind, devices)
    assert may_have_tpu(root) == found
    quiet_libtpu(root)
    assert all((name in os.environ) != found for name in NAMES)


@pytest.mark.parametrize("forced", [False, True])
def test_what_the_user_set_stays(tmp_path, monkeypatch, forced):
    for name in NAMES:
        monkeypatch.setenv(name, "mine")
    monkeypatch.delenv("TPU_ACCELERATOR_TYPE")
    if forced:
        monkeypatch.setenv("JAX_FORCE_TPU_INIT", "1")
    quiet_libtpu(tmp_path)
    assert [os.environ.get(name) for name in NAMES] == ["mine", None if forced else "v5e-4", "mine", "mine"]


@needs_libtpu
@pytest.mark.skipif(may_have_tpu(), reason="a TPU may be here")
def test_looking_for_devices_says_nothing():
    """A process of the command, with libtpu installed and no TPU; another may hold libtpu's lock, as here."""
    code = "import sys; sys.argv = ['spanloom', '--version']; from spanloom.cli.main import main; main()\n"
    code += "import jax; print(jax.default_backend())"
    clean = {name: value for name, value in os.environ.items() if name not in (*NAMES, "JAX_PLATFORMS")}
    environment = {**clean, "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split()[-1] in {"cpu", "gpu"} and done.stderr == ""
