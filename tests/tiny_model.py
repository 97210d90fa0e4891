"""A byte model of random weights that writes something, for tests of what is done with a loaded model."""

import jax

from spanloom.conversion.trained_model import Lineage, TrainedModel
from spanloom.model.params import declare, flatten, initialize, unflatten
from spanloom.settings.model import Model
from spanloom.settings.vocabulary import Bytes

TINY = Model(vocab_size=384, d_model=16, d_ff=16, num_heads=2, d_kv=8, num_encoder_layers=1, num_decoder_layers=1)


def tiny_source(seed: int = 3, model: Model = TINY, end: float = 1.0) -> TrainedModel:
    """Its logits differ by several nats, so that neither order nor rounding decides which token is likeliest.

    `end`: how many times as large the logit of the end of sequence is; with 3 or so, most of what is written ends.
    """
    flat = flatten(initialize(declare(model), jax.random.key(seed)))
    head = "token_embedder/embedding" if model.tie_embeddings else "decoder/logits_dense/kernel"
    flat[head] *= 0.1 if model.tie_embeddings else 3
    if model.tie_embeddings:  # larger ones would outweigh the layers: each token would be followed by itself
        flat["decoder/decoder_norm/scale"] *= 30
    end_of_sequence = (1,) if model.tie_embeddings else (slice(None), 1)
    flat[head] = flat[head].at[end_of_sequence].multiply(end)
    return TrainedModel(model, unflatten(model, flat), Bytes(), Lineage(f"tiny {seed}"))
