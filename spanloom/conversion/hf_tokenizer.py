"""Tokenizer files for Hugging Face, such that AutoTokenizer gives our ids. No jax, no transformers.

Bytes: ByT5Tokenizer counts sentinels from 259 upwards; every other convention is written as `added_tokens_decoder`,
which that class obeys. SentencePiece: a `tokenizer.json` that repeats the model's own normalisation, loaded as it
stands by the generic class, because T5Tokenizer of transformers 5 rebuilds it with rules of its own.
"""

import base64
import json
import re
from typing import Any

from spanloom.conversion import spiece
from spanloom.conversion.spiece import Spiece
from spanloom.settings.vocabulary import Bytes, SentencePiece, Vocabulary
from spanloom.vocabularies.bytes import ByteVocabulary

SPIECE_NAME = "spiece.model"
FAST_NAME = "tokenizer.json"
_SENTINEL = re.compile(r"(\u2581?)<extra_id_(\d+)>")
_FIXED = {
    # transformers 4 lets its generic class make token types, too, which generate refuses of a T5
    "model_input_names": ["input_ids", "attention_mask"],
    # transformers 4 takes spaces before punctuation out of what it decodes unless told not to
    "clean_up_tokenization_spaces": False,
    "model_max_length": 1_000_000_000,
}
_SPECIAL = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}


def tokenizer_class(vocabulary: Vocabulary) -> str:
    """The transformers class that reads our files."""
    return "ByT5Tokenizer" if isinstance(vocabulary, Bytes) else "PreTrainedTokenizerFast"


def tokenizer_files(
    vocabulary: Vocabulary, spiece_model: bytes | None = None, *, model_type: str = "t5"
) -> dict[str, bytes]:
    """File name -> content. `spiece_model` is the content of the SentencePiece file, unused for bytes.

    Raises ValueError where Hugging Face's tokenizers cannot do what the model does.
    """
    if isinstance(vocabulary, Bytes):
        files = _byte_files(vocabulary)
        # for this type transformers 5 always takes the generic class, whatever tokenizer_config.json says
        return files | ({FAST_NAME: to_json(fast_byte_tokenizer(vocabulary))} if model_type == "umt5" else {})
    if spiece_model is None:
        raise ValueError(f"the content of the SentencePiece model {vocabulary.path} is needed to write a tokenizer")
    return _spiece_files(vocabulary, spiece_model)


def eos_id(vocabulary: Vocabulary, spiece_model: bytes | None) -> int:
    """The id that ends a sequence."""
    if isinstance(vocabulary, Bytes) or spiece_model is None:
        return ByteVocabulary.eos_id
    return spiece.parse(spiece_model, vocabulary.path).eos_id


def spiece_sentinels(vocabulary: SentencePiece, model: Spiece) -> dict[int, int]:
    """Number of a sentinel -> its id, from the model's own pieces or appended after them (last one first)."""
    own = {
        int(match[2]): index for index, piece in enumerate(model.pieces) if (match := _SENTINEL.fullmatch(piece.text))
    }
    if vocabulary.sentinels == "pieces" or (vocabulary.sentinels == "auto" and own):
        return own
    size = len(model.pieces) + vocabulary.extra_ids
    return {number: size - 1 - number for number in range(vocabulary.extra_ids)}


def _byte_files(vocabulary: Bytes) -> dict[str, bytes]:
    names = [f"<extra_id_{number}>" for number in range(len(ByteVocabulary(vocabulary).sentinels))]
    added = _byte_added_tokens(vocabulary)
    config = {
        "tokenizer_class": "ByT5Tokenizer",
        **_SPECIAL,
        "extra_ids": len(names),
        "additional_special_tokens": names,
        # the first three strip spaces, as ByT5Tokenizer itself declares them
        "added_tokens_decoder": {str(index): _added(text, strip=index < 3) for index, text in sorted(added.items())},
        **_FIXED,
    }
    return {"tokenizer_config.json": to_json(config), "special_tokens_map.json": to_json(_special_tokens_map(names))}


def _byte_added_tokens(vocabulary: Bytes) -> dict[int, str]:
    # ids beyond the bytes need some name: ByT5Tokenizer fails when it decodes one without
    unused = {index: f"<unused_{index}>" for index in range(259, 259 + vocabulary.extra_ids)}
    sentinels = {index: f"<extra_id_{number}>" for number, index in enumerate(ByteVocabulary(vocabulary).sentinels)}
    return {0: "<pad>", 1: "</s>", 2: "<unk>"} | unused | sentinels


def fast_byte_tokenizer(vocabulary: Bytes) -> dict[str, Any]:
    """The content of tokenizer.json for bytes: a vocabulary without any character, so that all fall back to bytes."""
    added = _byte_added_tokens(vocabulary)
    vocab = {f"<0x{byte:02X}>": byte + 3 for byte in range(256)}
    vocab = {text: index for text, index in vocab.items() if index not in added}
    vocab |= {text: index for index, text in added.items()}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": index, **_added(text, strip=index < 3)} for index, text in sorted(added.items())],
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": _append_eos(ByteVocabulary.eos_id),
        "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
        "model": {"type": "BPE", "unk_token": "<unk>", "byte_fallback": True, "vocab": vocab, "merges": []},
    }


def _spiece_files(vocabulary: SentencePiece, content: bytes) -> dict[str, bytes]:
    model = spiece.parse(content, vocabulary.path)
    sentinels = spiece_sentinels(vocabulary, model)
    fast = fast_tokenizer(model, sentinels)
    # whatever is listed here becomes an added token, so sentinels that must stay pieces are left out
    added = {token["content"] for token in fast["added_tokens"]}
    names = [name for number in sorted(sentinels) if (name := f"<extra_id_{number}>") in added]
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **_SPECIAL,
        "extra_ids": sum(index >= len(model.pieces) for index in sentinels.values()),
        "additional_special_tokens": names,
        "added_tokens_decoder": {
            str(token["id"]): {key: value for key, value in token.items() if key != "id"}
            for token in fast["added_tokens"]
        },
        **_FIXED,
    }
    return {
        SPIECE_NAME: content,
        FAST_NAME: to_json(fast),
        "tokenizer_config.json": to_json(config),
        "special_tokens_map.json": to_json(_special_tokens_map(names)),
    }


def fast_tokenizer(model: Spiece, sentinels: dict[int, int]) -> dict[str, Any]:
    """The content of tokenizer.json for a SentencePiece model and the ids of its sentinels."""
    if model.whitespace_as_suffix:
        raise ValueError("a SentencePiece model with whitespace as suffix has no Hugging Face form")
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added_tokens(model, sentinels),
        "normalizer": _normalizer(model),
        # spaces become U+2581 here; the text already begins with one
        "pre_tokenizer": {**_metaspace("never"), "split": model.split_by_whitespace},
        "post_processor": _append_eos(model.eos_id),
        "decoder": _decoder(model),
        "model": _algorithm(model, _piece_names(model, sentinels)),
    }


def _decoder(model: Spiece) -> dict[str, Any]:
    """Pieces back to text: bytes become characters before spaces are made."""
    if not model.byte_fallback:
        return _metaspace("always")
    return {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, _metaspace("always")]}


def _piece_names(model: Spiece, sentinels: dict[int, int]) -> list[tuple[str, float]]:
    """Pieces as Hugging Face names them: sentinels without U+2581, as its users write them."""
    names = [(piece.text, piece.score) for piece in model.pieces]
    names += [("", 0.0)] * (max(sentinels.values(), default=0) + 1 - len(names))
    for text, index in _special_ids(model).items():
        names[index] = (text, names[index][1])
    for number, index in sentinels.items():
        names[index] = (f"<extra_id_{number}>", 0.0)
    return names


def _special_ids(model: Spiece) -> dict[str, int]:
    """Ids by Hugging Face's names."""
    return {"<pad>": 0, "</s>": model.eos_id, "<unk>": model.unk_id}


def _added_tokens(model: Spiece, sentinels: dict[int, int]) -> list[dict[str, Any]]:
    """Specials, and sentinels whose piece begins a word.

    A `normalized` token is itself normalised before it is looked for, so that it is found with the space before it,
    like the piece with U+2581. A sentinel without U+2581 stays an ordinary piece: only so are the ids those of
    SentencePiece.
    """
    tokens = [{"id": index, **_added(text)} for text, index in _special_ids(model).items()]
    for _, index in sorted(sentinels.items(), key=lambda item: item[1]):
        piece = model.pieces[index].text if index < len(model.pieces) else "\u2581"
        if piece.startswith("\u2581"):
            number = next(n for n, i in sentinels.items() if i == index)
            tokens.append({"id": index, **_added(f"<extra_id_{number}>"), "normalized": True})
    return tokens


def _normalizer(model: Spiece) -> dict[str, Any]:
    steps: list[dict[str, Any]] = []
    if model.charsmap:
        charsmap = base64.b64encode(model.charsmap).decode("ascii")
        steps.append({"type": "Precompiled", "precompiled_charsmap": charsmap})
    if model.remove_extra_whitespaces:
        for pattern, content in (("\\A +", ""), (" +\\z", ""), (" {2,}", " ")):
            steps.append({"type": "Replace", "pattern": {"Regex": pattern}, "content": content})
    if model.add_dummy_prefix:
        steps.append({"type": "Prepend", "prepend": " "})
    return {"type": "Sequence", "normalizers": steps}


def _algorithm(model: Spiece, names: list[tuple[str, float]]) -> dict[str, Any]:
    if model.algorithm == "unigram":
        vocab = [[text, score] for text, score in names]
        return {"type": "Unigram", "unk_id": model.unk_id, "vocab": vocab, "byte_fallback": model.byte_fallback}
    if model.algorithm == "bpe":
        return {
            "type": "BPE",
            "unk_token": "<unk>",
            "fuse_unk": True,
            "byte_fallback": model.byte_fallback,
            "vocab": {text: index for index, (text, _) in enumerate(names)},
            "merges": _merges(names),
        }
    raise ValueError(f"a SentencePiece model of type {model.algorithm} has no Hugging Face form; train unigram or bpe")


def _merges(names: list[tuple[str, float]]) -> list[list[str]]:
    """Every way to make a piece out of two; earlier pieces of a BPE model merge first."""
    ids = {text: index for index, (text, _) in enumerate(names)}
    merges = []
    for text, index in ids.items():
        parts = ((text[:cut], text[cut:]) for cut in range(1, len(text)))
        found = [(ids[left], ids[right], left, right) for left, right in parts if left in ids and right in ids]
        merges += [(-names[index][1], index, *entry) for entry in sorted(found)]
    return [[left, right] for *_, left, right in sorted(merges)]


def _append_eos(eos_id: int) -> dict[str, Any]:
    eos = {"SpecialToken": {"id": "</s>", "type_id": 0}}
    first, second = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    return {
        "type": "TemplateProcessing",
        "single": [first, eos],
        "pair": [first, eos, second, eos],
        "special_tokens": {"</s>": {"id": "</s>", "ids": [eos_id], "tokens": ["</s>"]}},
    }


def _metaspace(scheme: str) -> dict[str, Any]:
    return {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": True}


def _added(text: str, *, strip: bool = False) -> dict[str, Any]:
    flags = {"lstrip": strip, "rstrip": strip, "normalized": False, "single_word": False, "special": True}
    return {"content": text, **flags}


def _special_tokens_map(names: list[str]) -> dict[str, Any]:
    return {**_SPECIAL, "additional_special_tokens": names} if names else dict(_SPECIAL)


def to_json(value: Any) -> bytes:
    """Readable UTF-8 JSON with a final newline."""
    indent = None if isinstance(value, dict) and "model" in value else 2
    return (json.dumps(value, ensure_ascii=False, indent=indent) + "\n").encode("utf-8")
