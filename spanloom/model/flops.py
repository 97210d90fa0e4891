"""Floating-point operations of a training step, counted from the architecture: what MFU is a share of.

Matrix products of the model alone, a multiply-add as two, forward once and backward twice (Chowdhery et al. 2022,
appendix B). The embedding is a lookup and costs nothing; norms, softmax, optimizer and recomputation are not counted.
"""

from collections.abc import Mapping
from typing import Any

from spanloom.settings.model import Model


def train_flops(config: Model, batch: Mapping[str, Any]) -> float:
    """FLOPs of one step on a batch: anything with the shapes (B, S) of its inputs and (B, T) of its targets."""
    sequences, inputs = batch["encoder_input_tokens"].shape
    targets = batch["decoder_target_tokens"].shape[1]
    return 3.0 * sequences * forward_flops(config, inputs, targets)


def forward_flops(config: Model, inputs: int, targets: int) -> float:
    """FLOPs of one sequence forward, `inputs` encoder and `targets` decoder positions, padding included."""
    inner = config.num_heads * config.d_kv
    projection = 2 * config.d_model * inner  # query, key, value or out, for one position
    mlp = 2 * config.d_model * config.d_ff * (len(config.activations) + 1)
    encoder = inputs * (4 * projection + 4 * inputs * inner + mlp)
    self_attention = targets * (4 * projection + 4 * targets * inner)
    cross_attention = targets * (2 * projection + 4 * inputs * inner) + inputs * 2 * projection
    decoder = self_attention + cross_attention + targets * mlp
    head = targets * 2 * config.d_model * config.vocab_size
    return float(config.num_encoder_layers * encoder + config.num_decoder_layers * decoder + head)
