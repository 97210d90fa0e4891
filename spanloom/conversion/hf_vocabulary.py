"""Which vocabulary a Hugging Face folder was trained with. No jax.

A ByT5 tokenizer always says that sentinels start at 259, also in Google's releases, which were trained with 258
downwards. So the embedding decides, see `spanloom.conversion.sentinel_rows`.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from spanloom.conversion import hf_added_tokens, hf_names, hf_tokenizer, safetensors_file, sentinel_rows, spiece
from spanloom.conversion.errors import ConversionError
from spanloom.conversion.hf_files import WeightTensor
from spanloom.conversion.sentinel_rows import Rows
from spanloom.settings.vocabulary import Bytes, SentencePiece, Vocabulary

MARK_NAME = "spanloom.json"
"""What an export of ours says about itself."""

_OWN_MODEL = "Use the SentencePiece model that has them. "


@dataclass(frozen=True)
class Found:
    """A vocabulary, and how it is known (empty: the folder says so itself)."""

    vocabulary: Vocabulary
    note: str = ""


def read_vocabulary(
    folder: Path, config: Mapping[str, object], entries: Mapping[str, WeightTensor], named: str | None = None
) -> Found:
    """The vocabulary of a Hugging Face folder, checked against the rows of its embedding.

    `named` is what a user gives for one that has none: a SentencePiece file, or "bytes". Raises ConversionError where
    there is no tokenizer, it is of another kind, does not fit, or is named though the folder has one.
    """
    tokenizer_path = folder / "tokenizer_config.json"
    tokenizer = safetensors_file.read_json(tokenizer_path) if tokenizer_path.is_file() else {}
    kind = str(tokenizer.get("tokenizer_class") or config.get("tokenizer_class") or "")
    embedding = entries.get(hf_names.EMBEDDING)
    rows = config.get("vocab_size", 0) if embedding is None else embedding.shape[0] if embedding.shape else 0
    spiece_path = folder / hf_tokenizer.SPIECE_NAME
    is_bytes = kind == "ByT5Tokenizer" or (not spiece_path.is_file() and _is_fast_bytes(folder))
    if named is not None:
        if is_bytes or spiece_path.is_file():
            raise ConversionError(
                folder, "is a Hugging Face folder, which has a vocabulary of its own: leave out --vocabulary"
            )
        is_bytes, spiece_path = named == "bytes", Path(named).expanduser()
        if not is_bytes and not spiece_path.is_file():
            raise ConversionError(spiece_path, 'is no file: name a SentencePiece model, or "bytes"')
    if is_bytes:
        hf_added_tokens.refuse_others(folder, hf_added_tokens.known_bytes, "the vocabulary of bytes")
        found = _bytes(folder, tokenizer, entries)
        size = 259 + found.vocabulary.extra_ids if isinstance(found.vocabulary, Bytes) else 0
    elif spiece_path.is_file():
        check_recorded(folder / MARK_NAME, spiece_path)
        model = spiece.parse(spiece_path.read_bytes(), spiece_path)
        hf_added_tokens.refuse_others(folder, hf_added_tokens.known_pieces(model), spiece_path.name, _OWN_MODEL)
        found = Found(_sentencepiece(spiece_path, tokenizer))
        size = _spiece_size(found.vocabulary, spiece_path)
    else:
        raise ConversionError(
            folder,
            f"holds no {hf_tokenizer.SPIECE_NAME} and no ByT5Tokenizer in tokenizer_config.json"
            + (f" (tokenizer_class is {kind})" if kind else "")
            + f": put the model's SentencePiece file there as {hf_tokenizer.SPIECE_NAME}, or convert the folder with "
            "--vocabulary FILE.model (or bytes)",
        )
    if isinstance(rows, int) and size > rows:
        raise ConversionError(
            folder, f"the tokenizer has {size} ids, but the embedding only {rows} rows: wrong tokenizer?"
        )
    return found


def check_recorded(mark: Path, spiece_path: Path) -> None:
    """Raise ConversionError where the mark of an export of ours says that another SentencePiece model belongs to it."""
    recorded = safetensors_file.read_json(mark).get("spiece_sha256") if mark.is_file() else None
    if recorded is not None and recorded != hashlib.sha256(spiece_path.read_bytes()).hexdigest():
        raise ConversionError(
            spiece_path,
            f"is not the SentencePiece model that was exported with these weights (its hash is not that in "
            f"{mark}): take that one",
        )


def _is_fast_bytes(folder: Path) -> bool:
    """Whether there is a tokenizer.json of bytes, as we write one for umT5."""
    path = folder / hf_tokenizer.FAST_NAME
    model = safetensors_file.read_json(path).get("model") if path.is_file() else None
    vocab = model.get("vocab") if isinstance(model, dict) else None
    return isinstance(vocab, dict) and all(vocab.get(f"<0x{byte:02X}>") == byte + 3 for byte in range(245))


def _bytes(folder: Path, tokenizer: Mapping[str, object], entries: Mapping[str, WeightTensor]) -> Found:
    mark = folder / MARK_NAME
    if mark.is_file():
        recorded = safetensors_file.read_json(mark).get("vocabulary")
        if isinstance(recorded, dict) and str(recorded.get("sentinels")) in sentinel_rows.FIRST:
            google = recorded.get("google_sentinels", Bytes.google_sentinels)
            if type(extra_ids := recorded.get("extra_ids")) is int and type(google) is int:
                return Found(Bytes(recorded["sentinels"], extra_ids, google))
        raise ConversionError(mark, "names no vocabulary of bytes; remove the file to have the sentinels detected")
    extra_ids = tokenizer.get("extra_ids", 125)
    count = extra_ids if type(extra_ids) is int and extra_ids > 0 else 125
    scores = sentinel_scores(entries)
    if scores is None:
        return Found(
            Bytes(extra_ids=count),
            "the weights do not tell where the sentinels are; taken as the tokenizer says, 259 up",
        )
    return Found(*sentinel_rows.decide(scores, count))


def sentinel_scores(entries: Mapping[str, WeightTensor]) -> dict[str, float] | None:
    """The scores of `spanloom.conversion.sentinel_rows`, from the embedding and the head of a folder."""
    matrices = [
        Rows(entry.shape, entry.load_rows)
        for name in (hf_names.EMBEDDING, hf_names.HEAD)
        if (entry := entries.get(name)) is not None
    ]
    return sentinel_rows.scores(matrices)


def _sentencepiece(path: Path, tokenizer: Mapping[str, object]) -> SentencePiece:
    extra_ids = tokenizer.get("extra_ids", 100)
    return resolve(SentencePiece(str(path), extra_ids=extra_ids if type(extra_ids) is int else 100))


def resolve(vocabulary: SentencePiece) -> SentencePiece:
    """The same vocabulary with `auto` decided by the pieces of its model."""
    if vocabulary.sentinels != "auto":
        return vocabulary
    path = Path(vocabulary.path)
    own = hf_tokenizer.spiece_sentinels(replace(vocabulary, extra_ids=0), spiece.parse(path.read_bytes(), path))
    if own:
        return SentencePiece(vocabulary.path, "pieces", extra_ids=0)
    return SentencePiece(vocabulary.path, "appended", vocabulary.extra_ids)


def _spiece_size(vocabulary: Vocabulary, path: Path) -> int:
    model = spiece.parse(path.read_bytes(), path)
    return len(model.pieces) + (vocabulary.extra_ids if vocabulary.sentinels == "appended" else 0)
