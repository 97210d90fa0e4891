"""How many floating-point operations a model's matrix products take: the numerator of model FLOPs utilisation (MFU)."""

from spanloom.settings.model import Model


def forward_flops(config: Model, batch_size: int, encoder_length: int, decoder_length: int) -> float:
    """FLOPs of one forward pass: two for each multiply-add of a matrix product.

    Counts every matrix product of the layers, of attention (in full, also where a mask hides the result) and of the
    head, for all positions, padding included. Norms, softmax, activations and the embedding's gather are not counted,
    nor anything computed twice to save memory.
    """
    encoder_tokens, decoder_tokens = batch_size * encoder_length, batch_size * decoder_length
    inner = config.num_heads * config.d_kv
    projection = config.d_model * inner
    mlp = (1 + len(config.activations)) * config.d_model * config.d_ff
    encoder_layer = encoder_tokens * (4 * projection + mlp + 2 * inner * encoder_length)
    self_attention = decoder_tokens * (4 * projection + 2 * inner * decoder_length)
    # Keys and values of cross-attention are made of the encoder's positions.
    cross_attention = 2 * projection * (decoder_tokens + encoder_tokens) + 2 * inner * decoder_tokens * encoder_length
    decoder_layer = self_attention + cross_attention + decoder_tokens * mlp
    head = decoder_tokens * config.d_model * config.vocab_size
    layers = config.num_encoder_layers * encoder_layer + config.num_decoder_layers * decoder_layer
    return 2.0 * (layers + head)


def train_flops(config: Model, batch_size: int, encoder_length: int, decoder_length: int) -> float:
    """Model FLOPs of one training step, forward and backward.

    The gradient of a matrix product is two products of the same size, so this is three times the forward pass
    (the convention of Chowdhery et al. 2022, PaLM, appendix B). Lengths are in tokens, batch_size in sequences.
    """
    return 3.0 * forward_flops(config, batch_size, encoder_length, decoder_length)
