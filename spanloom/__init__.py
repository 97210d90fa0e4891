"""Spanloom trains T5-family encoder-decoder models, from raw text to a model that Hugging Face loads."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os

    from spanloom.evaluation.loaded import LoadedModel
    from spanloom.settings.mesh import Mesh

__version__ = "0.1.0"


def load(path: "str | os.PathLike[str]", which: str = "last", mesh: "Mesh | None" = None) -> "LoadedModel":
    """The model at `path`, ready to write and to score: a run directory, one of its checkpoints, a Hugging Face folder.

        model = spanloom.load("runs/a")
        model.generate(["translate: Guten Tag"], beams=4)[0].text
        model.score([("question", "yes"), ("question", "no")])[0].log_prob

    `which` chooses among the checkpoints of a run: last, best or a step. `mesh` divides weights and batches among all
    devices; None: the first one has everything. Of several processes that `jax.distributed` connects, all ask the same,
    and each gets all answers. Raises what `spanloom.training.read_model.read_model` raises.
    """
    from pathlib import Path

    import jax

    from spanloom.evaluation.loaded import LoadedModel
    from spanloom.scale.libtpu import quiet_libtpu
    from spanloom.training.fits import available_memory
    from spanloom.training.read_model import read_model

    quiet_libtpu()
    source = read_model(Path(path), which)
    return LoadedModel(source, mesh, available_memory(jax.local_devices()[0]))
