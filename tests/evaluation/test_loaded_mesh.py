import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parent.parent / "generate_mesh_process.py"
MESHES = {"data": {"data": 8}, "all": {"data": 2, "fsdp": 2, "tensor": 2}}


def test_every_mesh_writes_and_scores_the_same():
    env = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
    meshes = [json.dumps(mesh) for mesh in (None, *MESHES.values())]
    done = subprocess.run([sys.executable, str(SCRIPT), *meshes], capture_output=True, text=True, env=env, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    alone, *others = json.loads(done.stdout)
    for name, found in zip(MESHES, others, strict=True):
        assert found["tokens"] == alone["tokens"], name
        np.testing.assert_allclose(found["numbers"], alone["numbers"], atol=1e-4, err_msg=name)
    assert others[1]["largest_share"] == pytest.approx(1 / 4)
