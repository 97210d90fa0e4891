import pytest

from spanloom.tasks.templates import FieldError
from spanloom.tasks.text_preprocessors import Rekey, Summarize, lm


@pytest.mark.short
def test_rekey_lm_and_summarize():
    example = {"text": "long", "title": "short"}
    assert Rekey({"inputs": None, "targets": "text", "t": ""})(example) == {"inputs": "", "targets": "long", "t": ""}
    assert Rekey()(example) == example
    assert lm(example) == {"inputs": "", "targets": "long"}
    assert Summarize("text", "title")(example) == {"inputs": "summarize: long", "targets": "short"}
    with pytest.raises(FieldError, match=r"no field 'txt'; .* did you mean 'text'\?"):
        Rekey({"targets": "txt"})(example)
    with pytest.raises(FieldError, match="no field 'article'"):
        Summarize()(example)
