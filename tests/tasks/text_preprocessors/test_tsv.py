import pytest

from spanloom.tasks.templates import FieldError
from spanloom.tasks.text_preprocessors import ParseTsv, PreprocessTsv


@pytest.mark.short
def test_columns_by_name():
    assert ParseTsv()('a "b\tc\td') == ParseTsv()({"text": 'a "b\tc'}) == {"inputs": 'a "b', "targets": "c"}
    assert ParseTsv(("x", "y"), ",", (0, 2))("1,2,3") == {"x": "1", "y": "3"}
    with pytest.raises(FieldError, match=r"a line of 1 columns, not 2 or more, where '\\t' parts them"):
        ParseTsv()("a")
    with pytest.raises(ValueError, match="in ascending order"):
        ParseTsv(("x", "y"), field_columns=(2, 0))
    with pytest.raises(ValueError, match="2 field_names, but 1 field_columns"):
        ParseTsv(("x", "y"), field_columns=(2,))


@pytest.mark.short
def test_formats_of_columns():
    assert PreprocessTsv("q: {1}", "{0}")("6\t7") == {"inputs": "q: 7", "targets": "6"}
    named = PreprocessTsv("{b} / {a}", "= {c}", ",", field_names=("c", "a", "b"))
    assert named("6,7,42") == {"inputs": "42 / 7", "targets": "= 6"}
    with pytest.raises(FieldError, match="a line of 3 columns, not 2"):
        PreprocessTsv()("a\tb\tc")
    with pytest.raises(FieldError, match="no field 'd'"):
        PreprocessTsv("{d}")("6\t7")
