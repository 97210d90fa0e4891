import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from crew_process import two_free_ports

SCRIPT = Path(__file__).parent.parent / "generate_mesh_process.py"
SHARES = (
    ({"data": 2, "fsdp": 2, "tensor": 2}, 1 / 4),
    ({"replica": 8}, 1),
    ({"data": 8}, 1),
    ({"fsdp": 8}, 1 / 8),
    ({"tensor": 8}, 1 / 8),
)
"""Meshes of 8 devices, and how much of a weight each device has."""


def start(meshes: list, devices: int, *crew: int) -> subprocess.Popen:
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    env = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    argv = [sys.executable, str(SCRIPT), json.dumps(meshes), *map(str, crew)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)


def answers(*started: subprocess.Popen) -> list[list[dict]]:
    """What each process says; they run side by side."""
    said = [process.communicate(timeout=600) for process in started]
    assert not any(process.returncode for process in started), said
    return [json.loads(out.splitlines()[-1]) for out, _ in said]


def check_same(found: dict, alone: dict, name: str) -> None:
    assert found["tokens"] == alone["tokens"], name
    np.testing.assert_allclose(found["numbers"], alone["numbers"], atol=1e-4, err_msg=name)


def test_every_mesh_and_every_process_writes_and_scores_the_same():
    """All ways of dividing at once, each alone, and a mesh whose rows and weights are divided among two processes."""
    ((alone, *divided),) = answers(start([None, *(mesh for mesh, _ in SHARES)], 8))
    for found, (mesh, share) in zip(divided, SHARES, strict=True):
        check_same(found, alone, str(mesh))
        assert found["largest_share"] == share, mesh
    port = two_free_ports()
    crew = answers(*(start([{"fsdp": 2, "tensor": 2}], 2, process, 2, port) for process in range(2)))
    for process, (found,) in enumerate(crew):
        check_same(found, alone, f"process {process}")
        assert found["largest_share"] == 1 / 4
