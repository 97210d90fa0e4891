"""A small model in each format that is read, made here; and all of a reader's work on one folder."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from conversion.test_mesh_tensorflow import their_name
from safetensors.numpy import load_file
from t5x_files import random_weights, write_t5x
from tensor_bundles import write_bundle
from tiny_training import write_vocabulary
from torch_files import write_old_torch, write_torch

from spanloom.conversion.detect import detect
from spanloom.conversion.huggingface import import_hf, read_lineage, write_folder
from spanloom.conversion.stored_model import as_stored
from spanloom.conversion.t5x import model_from_t5x
from spanloom.conversion.t5x_names import from_t5x
from spanloom.conversion.trained_model import Lineage, TrainedModel
from spanloom.model.params import unflatten
from spanloom.settings.model import Model
from spanloom.settings.vocabulary import Bytes, SentencePiece, Vocabulary
from spanloom.training.inspected import inspect

MODEL = Model(vocab_size=384, d_model=8, d_ff=12, num_heads=2, d_kv=3, num_encoder_layers=1, num_decoder_layers=1)
GIN = "T5Config.mlp_activations = ('gelu', 'linear')\nT5Config.num_heads = 2\n"


def hugging_face(folder: Path, vocabulary: Vocabulary | None = None, shard: int | None = 20_000) -> None:
    source = TrainedModel(MODEL, unflatten(MODEL, from_t5x(random_weights(MODEL))), vocabulary or Bytes(), Lineage("a"))
    write_folder(folder, as_stored(source), name="x", max_shard_bytes=shard)


def pieces(folder: Path) -> None:
    hugging_face(folder, SentencePiece(str(write_vocabulary(folder / "own.model")), "appended", 100))
    (folder / "own.model").unlink()


def pytorch(folder: Path, write: Callable[[Path, Mapping[str, np.ndarray]], object] = write_torch) -> None:
    hugging_face(folder, shard=None)
    write(folder / "pytorch_model.bin", load_file(folder / "model.safetensors"))
    (folder / "model.safetensors").unlink()
    (folder / "spanloom.json").unlink()


def t5x(folder: Path) -> None:
    arrays = {"state/step": np.asarray(7, np.int32), **random_weights(MODEL)}
    write_t5x(folder / "checkpoint_7", arrays, inline=lambda name: "layers_0" in name)
    (folder / "config.gin").write_text(GIN)


def orbax(folder: Path, *, database: bool = True) -> None:
    import orbax.checkpoint as ocp

    tree: dict = {"state": {"step": np.asarray(7, np.int32)}}
    for name, array in random_weights(MODEL).items():
        *parents, last = name.split("/")
        place = tree
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = array
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=database)) as writer:
        writer.save(folder / "checkpoint_7" / "state", ocp.args.PyTreeSave(tree))
    (folder / "config.gin").write_text(GIN)


def mesh_tensorflow(folder: Path) -> None:
    arrays = {
        their_name(name.removeprefix("target/"), "layer_norm"): one for name, one in random_weights(MODEL).items()
    }
    write_bundle(folder / "model.ckpt-7", arrays | {"global_step": np.asarray(7, np.int64)})
    (folder / "operative_config.gin").write_text(GIN)


FOLDERS: dict[str, Callable[[Path], None]] = {
    "safetensors": hugging_face,
    "pieces": pieces,
    "pytorch": pytorch,
    "old pytorch": lambda folder: pytorch(folder, write_old_torch),
    "t5x": t5x,
    "orbax": orbax,
    "orbax folders": lambda folder: orbax(folder, database=False),
    "mesh tensorflow": mesh_tensorflow,
}


def read(folder: Path) -> None:
    """What inspect, convert and --start read of it."""
    inspect(folder)
    if detect(folder) == "huggingface":
        import_hf(folder)
        read_lineage(folder)
    else:
        model_from_t5x(folder)
