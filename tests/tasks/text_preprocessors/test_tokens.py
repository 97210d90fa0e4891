import numpy as np
import pytest

from spanloom.tasks.templates import FieldError
from spanloom.tasks.text_preprocessors import AppendEos, AppendEosAfterTrim, TrimTokensAtFront, TruncateInputsLeft

EXAMPLE = {"inputs": np.array([5, 6, 7], np.int32), "targets": [8], "other": "x"}


@pytest.mark.short
def test_end_of_sequence():
    assert AppendEos()(EXAMPLE) == {"inputs": [5, 6, 7, 1], "targets": [8, 1], "other": "x"}
    assert AppendEos(("targets",), eos_id=2)(EXAMPLE)["targets"] == [8, 2]
    assert AppendEosAfterTrim({"inputs": 3, "targets": 3})(EXAMPLE) == {
        "inputs": [5, 6, 1],
        "targets": [8, 1],
        "other": "x",
    }
    assert AppendEosAfterTrim({"inputs": None})(EXAMPLE)["inputs"] == [5, 6, 7, 1]
    assert AppendEosAfterTrim({"inputs": 1})(EXAMPLE)["inputs"] == [1]
    with pytest.raises(FieldError, match="field 'other' is str"):
        AppendEos(("other",))(EXAMPLE)


@pytest.mark.short
def test_cut_at_the_left():
    assert TruncateInputsLeft(2)(EXAMPLE)["inputs"] == [6, 7]
    assert TrimTokensAtFront({"inputs": 2, "targets": 5})(EXAMPLE) == {"inputs": [7], "targets": [8], "other": "x"}
    for build in (
        lambda: TruncateInputsLeft(0),
        lambda: AppendEosAfterTrim({"a": 0}),
        lambda: TrimTokensAtFront({"a": 1}),
    ):
        with pytest.raises(ValueError, match="give at least"):
            build()
