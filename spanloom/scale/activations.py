"""About how many bytes a training step keeps between its forward and its backward pass, by formula.

For devices that nothing here compiles for, and to choose what is worth compiling. A compiler fuses, recomputes and
copies as it sees fit: this is right within a third or so, as compared with TPU's.
"""

from dataclasses import dataclass

from spanloom.model.remat import KEPT, MIXED, PROJECTIONS, UP
from spanloom.settings.model import Model

_HEAD_CHUNK = 2**27  # bytes of logits that the loss holds at a time, and about as many of their gradient


@dataclass(frozen=True)
class Rows:
    """What one device computes at a time."""

    number: float
    """Sequences."""
    encoder: int
    """Encoder positions of each."""
    decoder: int
    """Decoder positions of each."""
    tensor: int = 1
    """Devices that divide heads, feed-forward layers and the vocabulary."""


def activation_bytes(model: Model, rows: Rows) -> float:
    """Bytes of what one step keeps on a device: of each layer what its rematerialisation policy says."""
    encoder, decoder = _encoder_layer(model, rows), _decoder_layer(model, rows)
    if model.remat == "none":
        return model.num_encoder_layers * encoder + model.num_decoder_layers * decoder + _head(model, rows)
    kept = model.num_encoder_layers * _kept(model, rows, rows.encoder, 0)
    kept += model.num_decoder_layers * _kept(model, rows, rows.decoder, rows.encoder)
    return kept + max(encoder, decoder) + _head(model, rows)  # one layer is at work, with all that it needs


def _encoder_layer(model: Model, rows: Rows) -> float:
    """Inputs of norms, projections, attention's weights, and of the feed-forward layer all that gradients need."""
    return _dense(model, rows, rows.encoder, blocks=2) + _weights(model, rows, rows.encoder, rows.encoder)


def _decoder_layer(model: Model, rows: Rows) -> float:
    inner = model.num_heads * model.d_kv / rows.tensor
    cross = rows.number * _size(model) * (2 * rows.encoder + 2 * rows.decoder) * inner
    own = _dense(model, rows, rows.decoder, blocks=3) + _weights(model, rows, rows.decoder, rows.decoder)
    return own + cross + _weights(model, rows, rows.decoder, rows.encoder)


def _dense(model: Model, rows: Rows, length: int, blocks: int) -> float:
    """Of a layer with so many blocks: the residual stream before and after each norm, q, k, v, o, feed-forward."""
    inner, wide = model.num_heads * model.d_kv / rows.tensor, model.d_ff / rows.tensor
    width = 2 * blocks * model.d_model + 4 * inner + 2 * len(model.activations) * wide
    return rows.number * length * width * _size(model)


def _kept(model: Model, rows: Rows, length: int, encoded: int) -> float:
    """A layer's input and what its policy keeps beside it; `encoded` positions are attended to, too, if there are."""
    inner, wide = model.num_heads * model.d_kv / rows.tensor, model.d_ff / rows.tensor
    kept, numbers = KEPT[model.remat], float(length * model.d_model)
    if PROJECTIONS in kept:
        numbers += 3 * length * inner + (length + 2 * encoded) * inner * bool(encoded)
    if MIXED in kept:
        numbers += length * inner * (2 if encoded else 1)
    if UP in kept:
        numbers += length * wide
    return rows.number * numbers * _size(model)


def _weights(model: Model, rows: Rows, queries: int, keys: int) -> float:
    return rows.number * model.num_heads / rows.tensor * queries * keys * _size(model)


def _head(model: Model, rows: Rows) -> float:
    """Logits of a chunk and their gradient in float32, and that of the head's weights."""
    logits = rows.number * rows.decoder * model.vocab_size / rows.tensor * 4
    return 2 * min(logits, _HEAD_CHUNK) + 4 * model.vocab_size * model.d_model / rows.tensor


def _size(model: Model) -> int:
    return 2 if model.dtype == "bfloat16" else 4
