"""From a decoded text to what metrics compare: t5's postprocessors, which a recipe names as data.

Each takes the text, then by name the whole `example` and whether the text is the target's (`is_target`). What a metric
needs to know of an example (its answers, its group) is taken from the example with the target.
"""

from collections.abc import Mapping, Sequence
from typing import Any

_DETERMINERS = {"a", "an", "each", "every", "few", "her", "his", "many", "much", "my", "our", "some", "that", "the"}
_DETERMINERS |= {"their", "these", "this", "those", "which", "whose", "your"}
Example = Mapping[str, Any]


class ExampleError(ValueError):
    """An example lacks a field that its postprocessing needs; the message names it and those that are there."""


def string_to_float(text: str, default: float = -1.0) -> float:
    """The number that a text is, `default` where it is none."""
    try:
        return float(text)
    except ValueError:
        return default


def lower_text(text: str) -> str:
    """In lower case."""
    return text.lower()


def string_label_to_class_id(text: str, label_classes: Sequence[str], default: int = -1) -> int:
    """The place of a label among the classes, exactly as they are written; `default` where it is none of them."""
    return list(label_classes).index(text) if text in label_classes else default


def multirc(text: str, example: Example | None = None, is_target: bool = False) -> dict[str, Any]:
    """'False' and 'True' as `value` 0 and 1, anything else as -1; of a target also its question as `group`."""
    value = string_label_to_class_id(text, ("False", "True"))
    return {"value": value, "group": _of(example, "idx/question")} if is_target else {"value": value}


def record(text: str, example: Example | None = None, is_target: bool = False) -> dict[str, Any]:
    """The text as `value`; of a target all answers, and passage and query as `group`."""
    if not is_target:
        return {"value": text}
    group = (_of(example, "idx/passage"), _of(example, "idx/query"))
    return {"value": list(_of(example, "answers")), "group": group}


def qa(text: str, example: Example | None = None, is_target: bool = False) -> Any:
    """The text; of a target all answers."""
    return list(_of(example, "answers")) if is_target else text


def span_qa(text: str, example: Example | None = None, is_target: bool = False) -> Any:
    """The text; of a target all `answers`, and the `context` in which `span_squad` looks places up."""
    return {"answers": list(_of(example, "answers")), "context": _of(example, "context")} if is_target else text


def wsc_simple(text: str, example: Example | None = None, is_target: bool = False) -> Any:
    """Whether a prediction names the referent, 1 or 0; -1 if it is empty. Of a target the example's label.

    It does where the words of one are among the other's, but for determiners and case, and both or none have an
    apostrophe: 'Bob' is not "Bob's hat".
    """
    if is_target:
        return _of(example, "label")
    said, meant = _bare(text), _bare(_of(example, "targets_pretokenized"))
    if not said:
        return -1
    words, others = set(said.split(" ")), set(meant.split(" "))
    return int(("'" in said) == ("'" in meant) and (words <= others or others <= words))


def rank_classification(
    text: Any, example: Example | None = None, is_target: bool = False, passthrough_feature_keys: Sequence[str] = ()
) -> Any:
    """The score itself; of a target (idx, is_correct, weight, length of the target's tokens), and further fields."""
    if not is_target:
        return text
    weight = example.get("weight", 1.0) if example is not None else 1.0
    target = (_of(example, "idx"), _of(example, "is_correct"), weight, len(_of(example, "targets")))
    return (*target, *(_of(example, key) for key in passthrough_feature_keys))


def grouped(text: str, example: Example | None = None, is_target: bool = False, key: str = "group") -> dict[str, Any]:
    """The text as `value`; of a target also the field `key` as `group`, for `mean_group_metric`: languages, say."""
    return {"value": text, "group": _of(example, key)} if is_target else {"value": text}


def _bare(text: str) -> str:
    return " ".join(word for word in text.strip().lower().split(" ") if word not in _DETERMINERS)


def _of(example: Example | None, key: str) -> Any:
    if example is None or key not in example:
        there = ", ".join(map(str, example or ())) or "none"
        raise ExampleError(f"the example has no field {key!r} (it has: {there}); a preprocessor must keep it")
    return example[key]
