import json
from itertools import islice

import pytest
import stream_functions

from spanloom.settings.function import Function
from spanloom.settings.row_sources import HuggingFaceDataset, PythonExamples, RowFiles, is_stream
from spanloom.tasks.read_report import BadInputError
from spanloom.tasks.row_streams import open_stream


def functions(name: str, **arguments) -> PythonExamples:
    return PythonExamples(Function(f"stream_functions:{name}", arguments), streaming=True)


@pytest.fixture
def folder(tmp_path):
    for part in range(3):
        rows = (stream_functions.row(number) for number in range(part * 10, part * 10 + 10))
        (tmp_path / f"part-{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return HuggingFaceDataset(str(tmp_path), streaming=True)


def test_which_sources_are_streams(folder):
    assert is_stream(folder) and is_stream(functions("endless"))
    assert not is_stream(HuggingFaceDataset("a/b", streaming=True, take=5)) and not is_stream(HuggingFaceDataset("a/b"))
    assert not is_stream(PythonExamples(rows=({"text": "a"},))) and not is_stream(RowFiles(("a.jsonl",)))


@pytest.mark.parametrize("taken", [0, 1, 9, 10, 17, 29])
@pytest.mark.parametrize("name", ["endless", "skipping", "restoring", "ending", "files"])
def test_a_stream_goes_on_after_any_row(name, taken, folder):
    arguments = {"rows": 30} if name == "ending" else {}
    source = folder if name == "files" else functions(name, **arguments)
    first = open_stream(source)
    before = list(islice(first.rows, taken))
    state = json.loads(json.dumps(first.state())) if taken else None
    assert (state is not None) == (taken > 0 and name in ("restoring", "files"))
    expected = [stream_functions.row(number) for number in range(taken, 30)]
    assert before == [stream_functions.row(number) for number in range(taken)]
    told: list[int] = []
    again = open_stream(source, taken, state, told.append)
    assert list(islice(again.rows, 30 - taken)) == expected
    assert bool(told) == (taken > 0 and name in ("endless", "ending"))
    assert list(islice(open_stream(source, taken).rows, 30 - taken)) == expected or name == "restoring"


def test_a_stream_that_is_shorter_than_before_or_fails_names_the_row(folder):
    with pytest.raises(BadInputError, match="gave 12 rows or more before, and ends after 5 now"):
        open_stream(functions("ending", rows=5), 12)
    with pytest.raises(BadInputError, match="gave 31 rows or more before, and ends after 30 now"):
        next(open_stream(folder, 31).rows)
    with pytest.raises(BadInputError, match="fails at row 3: OSError: the line is dead"):
        list(open_stream(functions("failing", after=3)).rows)


def test_rows_that_stand_in_the_settings_are_a_stream_too():
    source = PythonExamples(rows=({"text": "a"}, {"text": "b"}), streaming=True)
    assert [row["text"] for row in open_stream(source, 1).rows] == ["b"]
