"""What a model is: the numbers that fix its architecture. Published sizes by name are in `spanloom.model.sizes`."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Model:
    """Architecture of a T5-family encoder-decoder.

    The defaults are T5 1.1's: gated GELU, untied head, no dropout, one relative-position table a stack.
    """

    vocab_size: int
    """Rows of the embedding, padding rows included (384 for bytes, 32128 for T5, 250112 for mT5)."""
    d_model: int
    """Width of the residual stream."""
    d_ff: int
    """Width of the feed-forward layers."""
    num_heads: int
    """Attention heads."""
    d_kv: int
    """Width of one head; num_heads * d_kv need not equal d_model."""
    num_encoder_layers: int
    """Layers of the encoder."""
    num_decoder_layers: int
    """Layers of the decoder."""
    activations: tuple[Literal["gelu", "relu", "silu", "linear"], ...] = ("gelu", "linear")
    """Activations of the feed-forward layer; two of them make it gated (T5 1.1), ("relu",) is T5 1.0."""
    tie_embeddings: bool = False
    """Share the embedding with the output head, logits divided by sqrt(d_model) (T5 1.0)."""
    per_layer_position_bias: bool = False
    """One relative-position table for every layer (umT5) instead of one a stack."""
    relative_position_buckets: int = 32
    """Buckets of the relative-position bias."""
    relative_position_max_distance: int = 128
    """Distance from which all positions share the last bucket."""
    norm_epsilon: float = 1e-6
    """Added to the mean square in RMS layer normalisation."""
    dropout: float = 0.0
    """Dropout rate: 0 for pretraining, 0.1 for most fine-tuning."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of the activations; softmax and loss are always float32, and weights are kept as weights.dtype says."""
    scan_layers: bool = True
    """Run the layers as one scanned loop, which compiles faster and needs less memory; False unrolls them."""
    remat: Literal["none", "cheap", "feed_forward", "full"] = "none"
    """What the backward pass computes again instead of keeping it, each a step smaller in memory: none; cheap (norms,
    activations, attention's output and one of two feed-forward products: about 8 % more FLOPs, the one to try first);
    feed_forward (that and all of the feed-forward layer: 15 %); full (all but each layer's input: 30 %)."""
    attention: Literal["auto", "einsum", "cudnn", "pallas"] = "auto"
    """How attention is computed: einsum, which every device can do; cudnn, NVIDIA's fused kernel for bfloat16 (flash
    attention: no weights in memory); pallas, our kernel for TPUs of v4 or later in bfloat16 (no weights in memory, for
    rows of up to 512 tokens, 1,024 from v5e on); auto takes cudnn on a GPU and pallas on a TPU where they fit, einsum
    elsewhere."""
    name: str = "custom"
    """The published name, for reports and model cards; decides nothing."""


HOW_COMPUTED = ("dropout", "dtype", "scan_layers", "remat", "attention")
"""Fields that are no part of the architecture: a published model is the same whatever they are."""
