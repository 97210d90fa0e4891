import pytest

from spanloom.tasks.templates import FieldError
from spanloom.tasks.text_preprocessors import DefinitePronounResolutionSimple, WscSimple, wsc


def schema(text, span1, index1, span2, index2, label=1):
    spans = {"span1_text": span1, "span1_index": index1, "span2_text": span2, "span2_index": index2}
    return {"text": text, **spans, "label": label, "idx": 0}


@pytest.mark.short
def test_wsc_marks_both_spans_whatever_their_order_and_characters():
    assert wsc(schema("A b c", "c", 2, "A", 0))["inputs"] == "wsc text: # A # b * c *"
    assert wsc(schema("x (b) it", "(b)", 1, "it", 2))["inputs"] == "wsc text: x * (b) * # it #"
    assert wsc(schema("x b it", "other", 1, "it", 2))["inputs"] == "wsc text: x b # it #"
    assert wsc(schema("x", "x", 0, "y", 9, label=-1)) == {"inputs": "wsc text: * x *", "targets": "<unk>", "idx": 0}


@pytest.mark.short
def test_wsc_simple():
    [row] = WscSimple()(schema("Al saw (him) .", "Al", 0, "(him)", 2, label=0))
    assert row == {"inputs": "wsc: Al saw *(him)* .", "targets": "Al", "label": 0, "idx": 0}
    assert list(WscSimple(correct_referent_only=True)(schema("Al saw him", "Al", 0, "him", 2, label=0))) == []
    with pytest.raises(FieldError, match="span2_text 'her' is not at word 2"):
        list(WscSimple()(schema("Al saw him", "Al", 0, "her", 2)))


@pytest.mark.short
def test_definite_pronoun_resolution_simple():
    example = {"sentence": "This is his. Is he?", "pronoun": "he", "candidates": ["Al", "Bo"], "label": 1}
    row = DefinitePronounResolutionSimple("dpr:")(example)
    assert row == {"inputs": "dpr: This is his. Is *he*?", "targets": "Bo"}
    with pytest.raises(FieldError, match="pronoun 'it' is not in the sentence"):
        DefinitePronounResolutionSimple()(example | {"pronoun": "it"})
    with pytest.raises(FieldError, match="label 2 is none of the 2 candidates"):
        DefinitePronounResolutionSimple()(example | {"label": 2})
