"""Checkpoints of Mesh TensorFlow, under T5X's names. Its arrays have T5X's shapes: nothing is turned."""

import re
from pathlib import Path

from spanloom.conversion import tensor_bundle
from spanloom.conversion.errors import ConversionError
from spanloom.conversion.stored import Stored

_SLOTS = {"_slot_vr": "v_row", "_slot_vc": "v_col", "_slot_v": "v", "_slot_m": "m"}
_STEP = "global_step"
_BLOCK = re.compile(r"(encoder|decoder)/block_(\d+)/layer_(\d+)/(.+)")
_MATRIX = re.compile(r"(SelfAttention|EncDecAttention)/([qkvo])|DenseReluDense/(wi|wi_0|wi_1|wo)/kernel")
_PROJECTIONS = {"q": "query", "k": "key", "v": "value", "o": "out"}
_ATTENTION = {
    ("encoder", "SelfAttention"): "attention",
    ("decoder", "SelfAttention"): "self_attention",
    ("decoder", "EncDecAttention"): "encoder_decoder_attention",
}
_NORMS = {
    "encoder": ("pre_attention_layer_norm", "pre_mlp_layer_norm"),
    "decoder": ("pre_self_attention_layer_norm", "pre_cross_attention_layer_norm", "pre_mlp_layer_norm"),
}
_WHOLE = {
    "shared/embedding": "token_embedder/embedding",
    "decoder/logits/kernel": "decoder/logits_dense/kernel",
    **{
        f"{stack}/{norm}/scale": f"{stack}/{stack}_norm/scale"
        for stack in ("encoder", "decoder")
        for norm in ("final_layer_norm", "rms_norm")
    },
}
_TABLE = "SelfAttention/relative_attention_bias"


def read_arrays(index: Path) -> dict[str, Stored]:
    """The arrays by T5X's name, "target/..." and "state/...", as `t5x_msgpack.read_arrays` has them.

    Raises ConversionError, naming the file, where it is damaged, or has a variable that no T5 has.
    """
    found = tensor_bundle.read_arrays(index)
    # a table in every block is one of its own, as later models have it; in the first alone it is the stack's
    per_layer = any(_TABLE in name and "/block_000/" not in name for name in found)
    arrays = {}
    for name, array in found.items():
        if name == _STEP:
            arrays["state/step"] = array
            continue
        variable, slot = _slot(name)
        theirs = t5x_name(variable, per_layer=per_layer)
        if theirs is None:
            raise ConversionError(index, f"holds {name}, which is no variable of an encoder-decoder T5")
        arrays[f"state/param_states/{theirs}/{slot}" if slot else f"target/{theirs}"] = array
    return arrays


def t5x_name(name: str, *, per_layer: bool = False) -> str | None:
    """T5X's name of a variable ("encoder/block_000/layer_000/SelfAttention/q"); None where T5 has no such."""
    if name in _WHOLE:
        return _WHOLE[name]
    if not (block := _BLOCK.fullmatch(name)):
        return None
    stack, number, layer, rest = block[1], int(block[2]), int(block[3]), block[4]
    place = f"{stack}/layers_{number}"
    if rest == _TABLE:
        return f"{place if per_layer else stack}/relpos_bias/rel_embedding"
    if rest in ("layer_norm/scale", "rms_norm/scale"):
        return f"{place}/{_NORMS[stack][layer]}/scale" if layer < len(_NORMS[stack]) else None
    if not (matrix := _MATRIX.fullmatch(rest)):
        return None
    if matrix[3]:
        return f"{place}/mlp/{matrix[3]}/kernel"
    attention = _ATTENTION.get((stack, matrix[1]))
    return None if attention is None else f"{place}/{attention}/{_PROJECTIONS[matrix[2]]}/kernel"


def _slot(name: str) -> tuple[str, str]:
    """The variable that a slot belongs to, and T5X's name of the slot; the variable itself and "" where it is none."""
    for suffix, slot in _SLOTS.items():
        if name.endswith(suffix):
            return name.removesuffix(suffix), slot
    return name, ""
