"""Hugging Face's names and shapes of a T5's weights <-> ours.

Ours are T5X's with layers stacked on axis 0; theirs are one tensor a layer. Their matrices are (out, in), ours
(in, out); only the embedding is the same way round. Position tables are (buckets, heads) there.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from spanloom.conversion.errors import ConversionError
from spanloom.settings.model import Model

_ATTENTION = {"query": "q", "key": "k", "value": "v", "out": "o"}
_ENCODER_PARTS = {
    "pre_attention_layer_norm/scale": "layer.0.layer_norm.weight",
    **{f"attention/{ours}/kernel": f"layer.0.SelfAttention.{theirs}.weight" for ours, theirs in _ATTENTION.items()},
    "relpos_bias/rel_embedding": "layer.0.SelfAttention.relative_attention_bias.weight",
    "pre_mlp_layer_norm/scale": "layer.1.layer_norm.weight",
    **{f"mlp/{part}/kernel": f"layer.1.DenseReluDense.{part}.weight" for part in ("wi", "wi_0", "wi_1", "wo")},
}
_DECODER_PARTS = {
    "pre_self_attention_layer_norm/scale": "layer.0.layer_norm.weight",
    **{
        f"self_attention/{ours}/kernel": f"layer.0.SelfAttention.{theirs}.weight" for ours, theirs in _ATTENTION.items()
    },
    "relpos_bias/rel_embedding": "layer.0.SelfAttention.relative_attention_bias.weight",
    "pre_cross_attention_layer_norm/scale": "layer.1.layer_norm.weight",
    **{
        f"encoder_decoder_attention/{ours}/kernel": f"layer.1.EncDecAttention.{theirs}.weight"
        for ours, theirs in _ATTENTION.items()
    },
    "pre_mlp_layer_norm/scale": "layer.2.layer_norm.weight",
    **{f"mlp/{part}/kernel": f"layer.2.DenseReluDense.{part}.weight" for part in ("wi", "wi_0", "wi_1", "wo")},
}
_WHOLE = {
    "token_embedder/embedding": "shared.weight",
    "encoder/relpos_bias/rel_embedding": "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
    "encoder/encoder_norm/scale": "encoder.final_layer_norm.weight",
    "decoder/relpos_bias/rel_embedding": "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
    "decoder/decoder_norm/scale": "decoder.final_layer_norm.weight",
    "decoder/logits_dense/kernel": "lm_head.weight",
}
EMBEDDING = "shared.weight"
HEAD = "lm_head.weight"
EMBEDDING_COPIES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
"""Names under which some savers repeat the embedding."""
NEVER_USED = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
"""A table in the released T5 1.0 that no version of transformers computes anything with."""


@dataclass(frozen=True)
class Tensor:
    """One of Hugging Face's tensors and where its numbers are with us."""

    name: str
    """Hugging Face's name."""
    shape: tuple[int, ...]
    """Hugging Face's shape."""
    ours: str
    """Our flat name, layers stacked."""
    layer: int | None
    """Row of our stacked array; none where it is not stacked."""
    transposed: bool
    """Whether the two axes are swapped."""


def tensors(model: Model) -> list[Tensor]:
    """Every tensor of a model as Hugging Face has it, in its order: embedding, encoder, decoder, head."""
    from spanloom.model.params import declare, flatten  # imports jax, which readers of settings do without

    result = []
    for ours, spec in flatten(declare(model)).items():
        if "/layers/" not in ours:
            result.append(_tensor(_WHOLE[ours], spec.shape, ours, None))
            continue
        stack, part = ours.split("/layers/")
        theirs = (_ENCODER_PARTS if stack == "encoder" else _DECODER_PARTS)[part]
        for layer in range(spec.shape[0]):
            result.append(_tensor(f"{stack}.block.{layer}.{theirs}", spec.shape[1:], ours, layer))
    return result


def check_layers(names: Iterable[str], model: Model, config: Path) -> None:
    """ConversionError where these tensors are of another number of layers than the config says. No jax."""
    stacks = {
        "encoder": ("num_layers", model.num_encoder_layers),
        "decoder": ("num_decoder_layers", model.num_decoder_layers),
    }
    blocks = {found.group() for name in names if (found := re.match(r"(?:en|de)coder\.block\.\d+", name))}
    for stack, (field, said) in stacks.items():
        there = {block for block in blocks if block.startswith(stack)}
        for number in range(min(said, len(there) + 1)):
            if (block := f"{stack}.block.{number}") not in there:
                raise ConversionError(config, f"{field} is {said}, but the weights lack {block}")
        if len(there) > said:
            raise ConversionError(
                config, f"{field} is {said}, but the weights hold {stack}.block.{said}, which has no place then"
            )


def _tensor(name: str, shape: tuple[int, ...], ours: str, layer: int | None) -> Tensor:
    transposed = len(shape) == 2 and name != EMBEDDING
    return Tensor(name, shape[::-1] if transposed else shape, ours, layer, transposed)
