import pytest

from spanloom.tasks.templates import FieldError
from spanloom.tasks.text_preprocessors import CedillaToComma, Lowercase, NormalizeUnicode


@pytest.mark.short
def test_one_way_to_write_a_character():
    example = {"inputs": "e\u0301 ﬁ", "targets": "ŞşŢţ s\u0327T\u0327 çș"}
    assert NormalizeUnicode()(example)["inputs"] == "é ﬁ"
    assert NormalizeUnicode("NFKC", ("inputs",))(example) == {"inputs": "é fi", "targets": example["targets"]}
    assert CedillaToComma()(example)["targets"] == "ȘșȚț șȚ çș"
    assert Lowercase(("targets",))({"targets": "ȘÄ"}) == {"targets": "șä"}
    with pytest.raises(FieldError, match="field 'inputs' is int"):
        Lowercase()({"inputs": 3})
