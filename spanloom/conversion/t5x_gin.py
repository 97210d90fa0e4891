"""What a gin file beside a T5X checkpoint says of its model: fields of T5Config and of layers, the vocabulary's file.

T5X writes config.gin beside its checkpoints, Mesh TensorFlow operative_config.gin. Only bindings whose
value is written out are read, or a macro of one; the whole language is not needed for that.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spanloom.conversion.errors import ConversionError
from spanloom.conversion.whole_file import read_whole

NAMES = ("config.gin", "operative_config.gin")
_BINDING = re.compile(r"^(?:[\w./]+[./])?(\w+)\.(\w+) *= *(.+)$")
_MACRO = re.compile(r"^(\w+) *= *(.+)$")
_REFERENCE = re.compile(r"^%(?:[\w.]+\.)?(\w+)$")
_COMMENT = re.compile(r"""('[^']*'|"[^"]*")|#.*""")
_MOST_BYTES, _LONGEST = 1 << 22, 10_000
# (class or function, its argument) -> our word, in T5X, Flaxformer and Mesh TensorFlow
_OF_LAYERS = {
    ("DenseReluDense", "activation"): "mlp_activations",
    ("RelativePositionBiases", "num_buckets"): "num_buckets",
    ("RelativePositionBiases", "max_distance"): "max_distance",
    ("SelfAttention", "relative_attention_num_buckets"): "num_buckets",
    ("LayerStack", "norm_epsilon"): "epsilon",
    **{(name, "epsilon"): "epsilon" for name in ("LayerNorm", "T5LayerNorm", "rms_norm", "sublayer_rms_norm")},
}


@dataclass(frozen=True)
class GinFacts:
    """What a file says."""

    path: Path
    """The file."""
    model: Mapping[str, Any]
    """Fields of T5Config by name; with them num_buckets, max_distance and epsilon of layers."""
    vocabulary_files: tuple[str, ...]
    """Paths of SentencePiece models as they are written there."""


def beside(checkpoint: Path) -> GinFacts | None:
    """What the gin file in a checkpoint or in the folder around it says; None where there is none.

    Raises ConversionError where it has two values for what all layers share here.
    """
    folders = (checkpoint, checkpoint.parent) if checkpoint.is_dir() else (checkpoint.parent,)
    found = (folder / name for folder in folders for name in NAMES)
    path = next((path for path in found if path.is_file() and path.stat().st_size <= _MOST_BYTES), None)
    return None if path is None else _read(path)


def _read(path: Path) -> GinFacts:
    lines = list(_statements(read_whole(path, _MOST_BYTES).decode("utf-8-sig", errors="replace")))
    macros = {match[1]: match[2] for line in lines if (match := _MACRO.match(line))}
    model: dict[str, Any] = {}
    files = []
    for line in lines:
        if not (match := _BINDING.match(line)):
            continue
        owner, field, value = match[1], match[2], _value(match[3], macros)
        if owner == "T5Config" and value is not None:
            model[field] = value
        if (known := _OF_LAYERS.get((owner, field))) and value is not None:
            if known == "mlp_activations":
                value = (value,) if isinstance(value, str) else value
            if model.setdefault(known, value) != value:  # encoder and decoder, say
                raise ConversionError(
                    path, f"binds {owner}.{field} to {value!r} and to {model[known]!r}; one value for both is read here"
                )
        if field == "sentencepiece_model_file" and isinstance(value, str):
            files.append(value)
    return GinFacts(path, model, tuple(dict.fromkeys(files)))


def _statements(text: str) -> Iterator[str]:
    """Logical lines: comments away, values that go on over several lines in one."""
    pending = ""
    for line in text.splitlines():
        code = pending + _COMMENT.sub(lambda match: match[1] or "", line).strip()
        open_brackets = sum(code.count(mark) for mark in "([{") - sum(code.count(mark) for mark in ")]}")
        if (open_brackets > 0 or code.endswith(("\\", "="))) and len(code) < _LONGEST:
            pending = code.removesuffix("\\").rstrip() + " "
            continue
        pending = ""
        yield code


def _value(text: str, macros: Mapping[str, str], depth: int = 0) -> Any:
    """The value as Python has it; None for what is no literal."""
    text = text.strip()
    if (reference := _REFERENCE.match(text)) and depth < 8:
        return _value(macros.get(reference[1], ""), macros, depth + 1)
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
