"""T5X's network and vocabulary as Spanloom's: T5Config's fields, and where the ids come from."""

from dataclasses import replace
from typing import Any, Literal

from spanloom.migration.draft import MigrationError, Parameter
from spanloom.migration.fates import Bindings
from spanloom.migration.gin_statements import Reference
from spanloom.migration.recipe_code import Expression, quoted
from spanloom.model.sizes import published_name
from spanloom.settings.model import Model
from spanloom.settings.vocabulary import Bytes, SentencePiece, Vocabulary

_ACTIVATIONS = ("gelu", "relu", "silu", "linear")
_REMAT: dict[str, Literal["none", "cheap", "full"]] = {"none": "none", "minimal": "cheap", "full": "full"}
_UMT5 = 256384


def model_of(found: Bindings, owner: str) -> Model:
    """The model of a T5Config; what is not bound has T5X's defaults. Raises MigrationError for what is no T5."""
    module = found.reference(owner, "module")
    config = found.reference(module.selector, "config") if module is not None else None
    name = "T5Config" if config is None else config.selector

    def take(argument: str, default: Any) -> Any:
        return found.take(name, argument, default)

    vocab_size = take("vocab_size", None)
    if not isinstance(vocab_size, int):
        raise MigrationError(f"{name}.vocab_size is not set: the rows of the embedding must be known")
    activations = take("mlp_activations", ("relu",))
    if wrong := [one for one in activations if one not in _ACTIVATIONS]:
        raise MigrationError(f"{name}.mlp_activations holds {wrong[0]!r}; Spanloom has {', '.join(_ACTIVATIONS)}")
    scanned = take("scan_layers", False)
    remat = str(take("remat_policy", "none"))
    if remat == "minimal":
        found.note(
            "changed",
            "model.remat cheap is the nearest: products are kept, the rest is computed again",
            name,
            "remat_policy",
        )
    model = Model(
        vocab_size=vocab_size,
        d_model=take("emb_dim", 512),
        d_ff=take("mlp_dim", 2048),
        num_heads=take("num_heads", 8),
        d_kv=take("head_dim", 64),
        num_encoder_layers=take("num_encoder_layers", 6),
        num_decoder_layers=take("num_decoder_layers", 6),
        activations=tuple(activations),
        tie_embeddings=take("logits_via_embedding", False),
        per_layer_position_bias=bool(scanned) and vocab_size == _UMT5,
        dropout=float(take("dropout_rate", 0.1) or 0.0),
        dtype=take("dtype", "float32"),
        remat=_REMAT.get(remat, "none"),
    )
    named = replace(model, name=published_name(model))
    if named.name == "custom":
        # a published size with a vocabulary of one's own is called by the size's name
        for rows in (32128, 250112, 384, _UMT5):
            size = published_name(replace(model, vocab_size=rows))
            if size != "custom":
                return replace(model, name=size)
    return named


def vocabulary_of(found: Bindings, owner: str) -> tuple[Vocabulary | None, tuple[Parameter, ...]]:
    """What the model reads, and the parameter that a file is; None where the bindings do not say."""
    reference = found.reference(owner, "input_vocabulary")
    output = found.reference(owner, "output_vocabulary")
    if reference is not None and output is not None and reference != output:
        raise MigrationError(
            f"{owner} reads with {reference!r} and writes with {output!r}: one model has one vocabulary"
        )
    if reference is None:
        return None, ()
    return _vocabulary(found, reference)


def _vocabulary(found: Bindings, reference: Reference) -> tuple[Vocabulary | None, tuple[Parameter, ...]]:
    name, scope = reference.selector, reference.scope
    extra_ids = found.take(name, "extra_ids", 0, scope) or 0
    if reference.short == "ByteVocabulary":
        return bytes_of(extra_ids), ()
    if reference.short == "SentencePieceVocabulary":
        path = found.take(name, "sentencepiece_model_file", "", scope)
        return sentencepiece_of(str(path), extra_ids, "vocabulary"), (vocabulary_parameter(str(path)),)
    found.note("lost", "Spanloom has bytes and SentencePiece alone", "EncoderDecoderModel", "input_vocabulary")
    return None, ()


def bytes_of(extra_ids: int) -> Bytes:
    """seqio.ByteVocabulary: without extra ids the last bytes serve as sentinels, as ByT5 was trained."""
    return Bytes(sentinels="seqio", extra_ids=extra_ids) if extra_ids else Bytes(sentinels="google")


def sentencepiece_of(path: str, extra_ids: int, code: str) -> SentencePiece:
    """seqio.SentencePieceVocabulary: extra ids are appended, and without any they must be pieces of the model."""
    where = Expression(path, code)
    if extra_ids:
        return SentencePiece(where, sentinels="appended", extra_ids=extra_ids)
    return SentencePiece(where, sentinels="pieces")


def vocabulary_parameter(path: str) -> Parameter:
    """The parameter that names a SentencePiece model."""
    return Parameter("vocabulary", "str", quoted(path), "The SentencePiece model file; fetch it to this machine.")
