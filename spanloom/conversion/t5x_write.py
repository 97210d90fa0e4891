"""T5X's own checkpoints, version 3, written: one msgpack index, and a zarr folder for each weight (see `t5x_msgpack`).

    DST/checkpoint_STEP/checkpoint      the index: optimizer/target, and optimizer/state with step and Adafactor's slots
    DST/checkpoint_STEP/target.NAME/    one zarr array for each weight; state.param_states.NAME.SLOT/ for whole moments
    DST/config.gin                      T5X's T5Config
    DST/spiece.model                    the vocabulary, unless it is bytes
    DST/spanloom.json                   vocabulary, sentinels and lineage, by which Spanloom knows it again

Where T5X keeps an array, and in which chunks, is as T5X does it: factored moments and unused slots in the index.
"""

import gzip
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgpack
import numpy as np

from spanloom.conversion import zarr_write
from spanloom.conversion.convert import Format, Output
from spanloom.conversion.hf_tokenizer import SPIECE_NAME
from spanloom.conversion.hf_vocabulary import resolve
from spanloom.conversion.huggingface import spiece_content, write_mark
from spanloom.conversion.stored_model import Memory, StoredModel
from spanloom.conversion.t5x import stored_t5x
from spanloom.conversion.t5x_gin import NAMES
from spanloom.conversion.t5x_msgpack import INDEX
from spanloom.conversion.t5x_places import LAYERS, Layout, Place, as_theirs, places, theirs_of
from spanloom.conversion.weights import Dtype, Weight, checked, written_type
from spanloom.conversion.zarr_write import ChunkWriter, chunk_shape
from spanloom.model.params import declare, flatten
from spanloom.optim.adafactor import SLOTS
from spanloom.settings.model import Model
from spanloom.settings.vocabulary import SentencePiece

VERSION = 3
_COMPRESSOR = {"id": "gzip", "level": 1}
_UNUSED = np.zeros(1, np.float32)
_IN_THE_INDEX = ("v_row", "v_col")
_FIXED = {"relative_position_buckets": 32, "relative_position_max_distance": 128, "norm_epsilon": 1e-6}
"""What T5X's network has no setting for."""
_ALONE = (
    "T5X evaluates and infers from these weights as they are; to train from them there, set "
    "RestoreCheckpointConfig.assignment_map = (('state.*', None),) and fallback_to_scratch = True, because they come "
    "without an optimizer's memory"
)


def write_t5x(
    folder: Path, source: StoredModel, output: Output, chunk_bytes: int = zarr_write.CHUNK_BYTES
) -> tuple[str, ...]:
    """Write a checkpoint of T5X, its configuration and the vocabulary into the empty `folder`.

    Adafactor's memory is written where the source has it. Layers are one array each, or scanned where T5X had them so,
    where every layer has a position table, or where the memory follows T5X's logical rules. Gives what the user should
    know; ValueError for a model that T5X has no settings for.
    """
    for name, value in _FIXED.items():
        if (ours := getattr(source.model, name)) != value:
            raise ValueError(f"T5X has {name} = {value} and no setting for it; this model has {ours}")
    layout = layout_of(source)
    memory, step = source.memory, source.lineage.step or 0
    if memory is not None:
        step = memory.count
    vocabulary = source.vocabulary
    if isinstance(vocabulary, SentencePiece):
        vocabulary = resolve(vocabulary)
        (folder / SPIECE_NAME).write_bytes(spiece_content(vocabulary) or b"")
    (folder / NAMES[0]).write_text(_gin(source.model, layout), encoding="utf-8")
    place = folder / f"checkpoint_{step}"
    place.mkdir()
    tree = _write_arrays(place, source, layout, output.dtype, chunk_bytes, output.done)
    tree["state/step"] = _packed(np.asarray(step, np.int32))
    if memory is None:
        tree["state/param_states"] = {}
    index = msgpack.packb({"version": VERSION, "optimizer": _nested(tree)})
    (place / INDEX).write_bytes(index)
    write_mark(folder, source, vocabulary)
    return (_ALONE,) if memory is None else ()


def layout_of(source: StoredModel) -> Layout:
    """T5X's layout of a model: what it was, where it comes from there."""
    if source.layout is not None:
        return source.layout
    rules = source.memory is not None and source.memory.rules == "logical"
    return Layout(scanned=True, heads_apart=True) if rules or source.model.per_layer_position_bias else Layout()


def _write_arrays(
    place: Path, source: StoredModel, layout: Layout, dtype: Dtype, chunk_bytes: int, done: Callable[[int], None]
) -> dict[str, Any]:
    """Writes what has folders; gives the index's leaves by name."""
    leaves: dict[str, Any] = {}
    specs = flatten(declare(source.model))
    # Framed as gzip, which T5X expects, but not pressed: that makes weights 7 % smaller and takes three times as long
    # as all else.
    with ChunkWriter(lambda content: gzip.compress(content.data, 0, mtime=0)) as writer:

        def in_folder(name: str, array: np.ndarray) -> None:
            leaves[name] = _write_zarr(place, name.replace("/", "."), array, chunk_bytes, writer)

        for one in places(source.model, layout):
            axes = specs[one.ours].axes
            array = _theirs(source.weights[one.ours], one, axes, dtype, source.model)
            in_folder(f"target/{one.name}", array)
            done(array.size)
            for slot, moments in _slots(source.memory, one, source.model):
                name = f"state/param_states/{one.name}/{slot}"
                if moments is None:
                    leaves[name] = _packed(_UNUSED)
                elif slot in _IN_THE_INDEX:
                    leaves[name] = _packed(moments)
                else:
                    in_folder(name, moments)
    return leaves


def _slots(memory: Memory | None, place: Place, model: Model) -> list[tuple[str, np.ndarray | None]]:
    """Each slot of a parameter as T5X has it; None where it is not in use."""
    if memory is None:
        return []
    found = {slot: memory.slots[slot].get(place.ours) for slot in SLOTS}
    return [
        (slot, None if one is None else _theirs(one.weight, place, one.axes, "float32", model))
        for slot, one in found.items()
    ]


def _theirs(weight: Weight, place: Place, axes: Sequence[str], dtype: Dtype, model: Model) -> np.ndarray:
    """One of T5X's arrays. Of a scanned stack all layers are in memory."""
    theirs = theirs_of(place, axes)
    if LAYERS not in axes:
        return as_theirs(checked(weight, None, dtype), axes, theirs, model)
    if place.layer is not None:
        inner = [axis for axis in axes if axis != LAYERS]
        return as_theirs(checked(weight, place.layer, dtype), inner, theirs, model)
    stacked = np.empty(weight.shape, np.dtype(written_type(weight.dtype, dtype)))
    for layer in weight.parts:
        stacked[layer] = checked(weight, layer, dtype)
    return as_theirs(stacked, axes, theirs, model)


def _write_zarr(place: Path, name: str, array: np.ndarray, chunk_bytes: int, writer: ChunkWriter) -> dict[str, Any]:
    """Writes the chunks; gives what the index says of the array, a spec of TensorStore."""
    folder, dtype = place / name, str(array.dtype)
    chunks = chunk_shape(array.shape, max(1, chunk_bytes // array.dtype.itemsize))
    folder.mkdir()
    put = lambda key, content: (folder / key).write_bytes(content)  # noqa: E731
    zarr_write.put_metadata(put, array.shape, chunks, dtype, _COMPRESSOR)
    writer.write(array, chunks, put)
    return {
        "driver": "zarr",
        "dtype": dtype,
        "kvstore": {"driver": "file", "path": f"{name}/"},
        "metadata": {"chunks": list(chunks), "compressor": _COMPRESSOR, "shape": list(array.shape)},
    }


def _packed(array: np.ndarray) -> msgpack.ExtType:
    """An array in Flax's msgpack."""
    content = np.ascontiguousarray(array).reshape(array.shape).tobytes()
    return msgpack.ExtType(1, msgpack.packb([list(array.shape), array.dtype.name, content]))


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Leaves by name as a tree, names of each level in order, as JAX has them."""
    nested: dict[str, Any] = {}
    for name in sorted(flat, key=lambda name: name.split("/")):
        *parents, last = name.split("/")
        place = nested
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = flat[name]
    return nested


def _gin(model: Model, layout: Layout) -> str:
    """T5X's configuration of the network."""
    network = "scalable_t5" if layout.scanned or layout.heads_apart else "t5"
    fields = {
        "vocab_size": model.vocab_size,
        "dtype": model.dtype,
        "emb_dim": model.d_model,
        "num_heads": model.num_heads,
        "num_encoder_layers": model.num_encoder_layers,
        "num_decoder_layers": model.num_decoder_layers,
        "head_dim": model.d_kv,
        "mlp_dim": model.d_ff,
        "mlp_activations": tuple(model.activations),
        "dropout_rate": model.dropout,
        "logits_via_embedding": model.tie_embeddings,
        **({"scan_layers": layout.scanned} if network == "scalable_t5" else {}),
    }
    lines = [f"network.T5Config.{name} = {value!r}" for name, value in fields.items()]
    return "\n".join(
        [
            "# The network of the checkpoint beside this file, for T5X to include.",
            "from __gin__ import dynamic_registration",
            f"from t5x.examples.{network} import network",
            "",
            *lines,
            "",
        ]
    )


T5X = Format("a T5X checkpoint", write_t5x, stored_t5x)
