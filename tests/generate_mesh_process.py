"""Writes and scores on simulated devices in several meshes; prints tokens and numbers as JSON.

XLA_FLAGS=--xla_force_host_platform_device_count=8 python tests/generate_mesh_process.py "MESHES" [PROCESS OF PORT]

MESHES is a JSON list; null is one device. With PROCESS, the devices are those of several processes, which meet there.
"""

import json
import sys
from dataclasses import replace

import jax
from tiny_model import TINY, tiny_source

from spanloom.evaluation.loaded import LoadedModel
from spanloom.settings.mesh import Mesh

TEXTS = ["a line", "another one, a little longer", "x"]


def answers(mesh: dict | None) -> dict:
    model = LoadedModel(tiny_source(model=replace(TINY, num_heads=4)), None if mesh is None else Mesh(**mesh))
    written = model.generate(TEXTS, max_length=6, beams=3, outputs=3)
    drawn = model.generate(TEXTS, max_length=6, temperature=0.8, outputs=2)
    outputs = [output for one in (*written, *drawn) for output in one.outputs]
    scores = model.score([(text, "a target") for text in TEXTS])
    return {
        "tokens": [output.tokens.tolist() for output in outputs],
        "numbers": [*(output.score for output in outputs), *(score.log_prob for score in scores)],
        "largest_share": model.params.decoder.layers.mlp.wo.kernel.addressable_shards[0].data.size
        / model.params.decoder.layers.mlp.wo.kernel.size,
    }


if __name__ == "__main__":
    meshes, *crew = sys.argv[1:]
    if crew:
        process, processes, port = map(int, crew)
        jax.distributed.initialize(f"127.0.0.1:{port}", processes, process, cluster_detection_method="deactivate")
    print(json.dumps([answers(mesh) for mesh in json.loads(meshes)]))
