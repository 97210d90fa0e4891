"""Tokens that a folder's tokenizer has and the vocabulary read from it has not. No jax.

Users add tokens to a tokenizer of transformers, which SentencePiece models and bytes know nothing of; and a
SentencePiece model may be another than the tokenizer beside it was made from. Either way text would come to other ids
than the model was trained with.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from spanloom.conversion import hf_tokenizer, safetensors_file
from spanloom.conversion.errors import ConversionError
from spanloom.conversion.spiece import Spiece
from spanloom.tasks.shown import shown

# where sentinels are has rules of its own: tokenizers of bytes and of mT5 name others than those trained with
_SENTINEL = re.compile("\u2581?<extra_id_[0-9]+>")
_BYTE = re.compile("<0x([0-9A-F]{2})>")
_UNUSED = re.compile("<unused_[0-9]+>")

Known = Callable[[int, str], bool]
"""Whether a vocabulary has this token as this id."""


def known_pieces(model: Spiece) -> Known:
    """Of a SentencePiece model: its pieces. The special ids may be called anything."""
    special = {0, model.eos_id, model.unk_id}

    def known(token: int, text: str) -> bool:
        return token in special or (0 <= token < len(model.pieces) and model.pieces[token].text == text)

    return known


def known_bytes(token: int, text: str) -> bool:
    """Of bytes, also under the names that our files give to ids of none. The special ids may be called anything."""
    byte = _BYTE.fullmatch(text)
    return 0 <= token < 3 or bool(_UNUSED.fullmatch(text)) or (byte is not None and int(byte[1], 16) + 3 == token)


def refuse_others(folder: Path, known: Known, vocabulary: str, fix: str = "") -> None:
    """Raise ConversionError, naming the file and the tokens, where the folder's tokenizer has others than `known`.

    `vocabulary` is what the vocabulary is called; `fix` what is to be done where texts need these tokens.
    """
    for file, tokens in _listed(folder):
        others = [(token, text) for token, text in tokens if not _SENTINEL.fullmatch(text) and not known(token, text)]
        if others:
            named = ", ".join(f"{shown(text)} (id {token})" for token, text in others[:3])
            more = f" and {len(others) - 3:,} more" if len(others) > 3 else ""
            raise ConversionError(
                file,
                f"has tokens that {vocabulary} has not: {named}{more}, so text would come to other ids. {fix}Where no "
                "text needs them, take them out of the tokenizer's files",
            )


def _listed(folder: Path) -> Iterator[tuple[Path, list[tuple[int, str]]]]:
    """Each file of a tokenizer that is there, with its tokens."""
    for name, tokens in _READERS.items():
        if (folder / name).is_file():
            yield folder / name, list(tokens(safetensors_file.read_json(folder / name)))


def _of_config(content: dict[str, Any]) -> Iterator[tuple[int, str]]:
    added = content.get("added_tokens_decoder")
    for token, one in added.items() if isinstance(added, dict) else ():
        text = one.get("content") if isinstance(one, dict) else one
        if token.isdecimal() and isinstance(text, str):
            yield int(token), text


def _of_table(content: dict[str, Any]) -> Iterator[tuple[int, str]]:
    return ((token, text) for text, token in content.items() if isinstance(token, int))


def _of_fast(content: dict[str, Any]) -> Iterator[tuple[int, str]]:
    model = content.get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocab, dict):
        yield from _of_table(vocab)
    elif isinstance(vocab, list):  # pairs of piece and score
        yield from ((token, str(one[0])) for token, one in enumerate(vocab) if isinstance(one, list) and one)
    added = content.get("added_tokens")
    for one in added if isinstance(added, list) else ():
        if isinstance(one, dict) and isinstance(one.get("id"), int) and isinstance(one.get("content"), str):
            yield one["id"], one["content"]


_READERS: dict[str, Callable[[dict[str, Any]], Iterator[tuple[int, str]]]] = {
    "tokenizer_config.json": _of_config,
    "added_tokens.json": _of_table,
    hf_tokenizer.FAST_NAME: _of_fast,
}
