"""Classification of one or two sentences as text to text: GLUE and SuperGLUE in the form of T5.

'rte sentence1: ... sentence2: ...' -> 'entailment' (Raffel et al. 2020, section 2.4 and appendix D).
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from spanloom.settings.nearest import did_you_mean
from spanloom.tasks.text_preprocessors import fields
from spanloom.tasks.text_preprocessors.fields import Example
from spanloom.tasks.text_preprocessors.labels import kept_id, label_name
from spanloom.tasks.text_preprocessors.record import record
from spanloom.tasks.text_preprocessors.winograd import wsc


@dataclass(frozen=True)
class Glue:
    """'<benchmark> <feature>: <text> ...' -> the label's name."""

    benchmark_name: str
    label_names: Sequence[str]
    """Names of label 0, 1, ...; -1 is '<unk>'."""
    feature_names: Sequence[str] | None = None
    """Fields in the inputs, in order; None: all but label and id, sorted."""
    id_key: str | None = "idx"
    """Field that is kept; one with fields inside is kept as '<id>/<field>'. None: no id is kept."""

    def __call__(self, example: Example) -> dict[str, Any]:
        """Raises FieldError for missing fields, and for a label without a name."""
        names = self.feature_names
        if names is None:
            names = sorted(name for name in example if name not in ("label", self.id_key))
        parts = [self.benchmark_name]
        for name in names:
            parts += [f"{name}:", fields.text(example, name)]
        inputs = " ".join(parts)
        if self.benchmark_name == "multirc":
            inputs = inputs.replace("<br>", " ").replace("<b>", "").replace("</b>", "")
        kept = kept_id(example, self.id_key) if self.id_key else {}
        return {**kept, "inputs": inputs, "targets": label_name(example, self.label_names)}


def stsb(example: Example) -> dict[str, Any]:
    """How alike two sentences are, 0 to 5, as text in steps of 0.2: 'stsb sentence1: ... sentence2: ...' -> '3.8'.

    Rounded in float32 and half to even, as T5's. Raises FieldError for missing fields.
    """
    fifths = round(_float32(_float32(fields.number(example, "label")) * 5))
    first, second = fields.text(example, "sentence1"), fields.text(example, "sentence2")
    inputs = f"stsb sentence1: {first} sentence2: {second}"
    return {"inputs": inputs, "targets": f"{fifths / 5:.1f}", **kept_id(example, "idx")}


_FORMS: dict[str, tuple[str, tuple[str, ...] | None]] = {
    "glue/cola": ("cola", None), "glue/sst2": ("sst2", None), "glue/mrpc": ("mrpc", None), "glue/qqp": ("qqp", None),
    "glue/mnli": ("mnli", None), "glue/mnli_matched": ("mnli", None), "glue/mnli_mismatched": ("mnli", None),
    "glue/ax": ("mnli", None), "glue/qnli": ("qnli", None), "glue/rte": ("rte", None), "glue/wnli": ("wnli", None),
    "super_glue/boolq": ("boolq", None), "super_glue/cb": ("cb", None), "super_glue/copa": ("copa", None),
    "super_glue/multirc": ("multirc", ("question", "answer", "paragraph")), "super_glue/rte": ("rte", None),
    "super_glue/wic": ("wic", ("sentence1", "sentence2", "word")),
    "super_glue/axb": ("rte", None), "super_glue/axg": ("rte", None),
}  # fmt: skip


def glue_preprocessor(config: str, label_names: Sequence[str] = ()) -> Callable[[Example], Any]:
    """What T5 uses for a part of GLUE or SuperGLUE: glue_preprocessor("glue/rte", ["entailment", "not_entailment"]).

    Raises ValueError for a part that does not exist, or label names that it needs.
    """
    others: dict[str, Callable[[Example], Any]] = {
        "glue/stsb": stsb, "super_glue/record": record, "super_glue/wsc": wsc, "super_glue/wsc.fixed": wsc,
    }  # fmt: skip
    if config in others:
        return others[config]
    if config not in _FORMS:
        raise ValueError(f"no part {config!r} of GLUE or SuperGLUE{did_you_mean(config, [*_FORMS, *others])}")
    if not label_names:
        raise ValueError(f"{config} needs the names of its labels, in the order of their numbers")
    name, feature_names = _FORMS[config]
    return Glue(name, tuple(label_names), feature_names)


def _float32(number: float) -> float:
    """The nearest float32."""
    return float(struct.unpack("f", struct.pack("f", number))[0])
