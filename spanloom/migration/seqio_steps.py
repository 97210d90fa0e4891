"""What SeqIO's and t5's preprocessors are here: an objective, a preprocessor of ours, or nothing at all."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from spanloom.settings.function import Function

_HOME = "spanloom.tasks.text_preprocessors"
OBJECTIVES = {"span_corruption", "iid_denoising", "prefix_lm", "full_lm"}
"""Preprocessors of t5 that are objectives here."""
EOS = {"append_eos", "append_eos_after_trim", "tokenize_and_append_eos"}
"""Preprocessors that put an end of sequence after each feature that wants one."""
DONE_ANYWAY: Mapping[str, str] = {
    "tokenize": "text is tokenized by itself",
    "print_dataset": "spanloom show prints examples",
    **dict.fromkeys(EOS, "an end of sequence is appended by itself"),
}
"""Preprocessors that need no counterpart, and why."""


@dataclass(frozen=True)
class _Counterpart:
    """Our preprocessor: its name below spanloom.tasks.text_preprocessors, and our name of each argument."""

    name: str
    arguments: Mapping[str, str]
    is_class: bool = True


def _same(name: str, *arguments: str) -> _Counterpart:
    return _Counterpart(name, {one: one for one in arguments})


_COUNTERPARTS: Mapping[str, _Counterpart] = {
    "rekey": _same("rekeying:Rekey", "key_map"),
    "summarize": _same("rekeying:Summarize", "article_key", "summary_key"),
    "lm": _Counterpart("rekeying:lm", {}, False),
    "translate": _same("translation:Translate", "source_language", "target_language"),
    "multi_translate": _same("translation:MultiTranslate", "source_language", "target_language"),
    "squad": _Counterpart("question_answering:Squad", {"include_context": "include_context"}),
    "squad_span_space_tokenized": _Counterpart("question_answering:squad_span_space_tokenized", {}, False),
    "trivia_qa": _Counterpart("question_answering:trivia_qa", {}, False),
    "glue": _same("glue:Glue", "benchmark_name", "label_names", "feature_names", "id_key"),
    "stsb": _Counterpart("glue:stsb", {}, False),
    "wsc": _Counterpart("winograd:wsc", {}, False),
    "wsc_simple": _same("winograd:WscSimple", "label", "correct_referent_only"),
    "definite_pronoun_resolution_simple": _same("winograd:DefinitePronounResolutionSimple", "label"),
    "record": _Counterpart("record:record", {}, False),
    "pad_nonspaced_languages": _Counterpart("spacing:PadNonspacedLanguages", {"text_key": "text_key"}),
    "parse_tsv": _same("tsv:ParseTsv", "field_names", "field_delim", "field_columns"),
    "preprocess_tsv": _same(
        "tsv:PreprocessTsv", "field_delim", "num_fields", "inputs_format", "targets_format", "field_names"
    ),
    "rank_classification_formatter": _same(
        "ranking:RankClassificationFormatter", "inputs_formats", "targets_formats", "mode", "label_key", "weight_key"
    ),
    "filter_by_string_length": _same("filters:FilterByStringLength", "feature_key", "min_length", "max_length"),
}


class NoCounterpartError(ValueError):
    """A preprocessor that Spanloom does not have, or not with such an argument; the message says which."""


def counterpart(name: str, arguments: Mapping[str, Any]) -> Function:
    """Our preprocessor for one of SeqIO's or t5's, by its short name. Raises NoCounterpartError."""
    found = _COUNTERPARTS.get(name)
    if found is None:
        raise NoCounterpartError(f"Spanloom has no {name}")
    fields = _fields(found)
    given: dict[str, Any] = {}
    for key, value in arguments.items():
        ours = found.arguments.get(key)
        if ours is None or (fields is not None and ours not in fields):
            raise NoCounterpartError(f"{name} has no argument {key} here")
        given[ours] = value
    return Function(f"{_HOME}.{found.name}", given)


def _fields(found: _Counterpart) -> set[str] | None:
    """Names of the arguments that ours takes; None for a function."""
    if not found.is_class:
        return None
    import dataclasses
    import importlib

    module, _, name = found.name.partition(":")
    cls: Callable[..., Any] = getattr(importlib.import_module(f"{_HOME}.{module}"), name)
    return {one.name for one in dataclasses.fields(cls)}  # type: ignore[arg-type]
