import json

import numpy as np
import pytest

from spanloom.settings.function import Function, FunctionError
from spanloom.settings.model import Model
from spanloom.settings.row_sources import HuggingFaceDataset, PythonExamples
from spanloom.settings.run import Run
from spanloom.settings.serialize import from_json, to_json
from spanloom.settings.task import Task
from spanloom.tasks.read_report import BadInputError, ReadReport
from spanloom.tasks.row_sources import read_row_source, row_source_fingerprint

MODEL = Model(vocab_size=384, d_model=32, d_ff=64, num_heads=2, d_kv=16, num_encoder_layers=1, num_decoder_layers=1)
FILE = """
import itertools


def squares(stop=3, split="train"):
    for n in range(stop):
        yield {"n": n * n, "split": split}

def endless():
    return ({"n": n} for n in itertools.count())

def fails():
    yield {"n": 0}
    raise KeyError("text")

def pairs():
    return [("a", "b")]

def nothing():
    return None

def a_dict():
    return {"text": ["a"]}
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "rows.py"
    path.write_text(FILE)
    return path


def of(file, name, **arguments):
    return PythonExamples(Function(f"{file}:{name}", arguments))


def read(source, split="train"):
    return list(read_row_source(source, split, ReadReport()))


@pytest.mark.short
def test_rows_of_a_function_and_of_the_settings(file):
    assert read(of(file, "squares", stop=2)) == [{"n": 0, "split": "train"}, {"n": 1, "split": "train"}]
    rows = ({"text": "a", "ids": [1, 2]}, {"text": "b", "ids": []})
    assert read(PythonExamples(rows=rows)) == [{"text": "a", "ids": (1, 2)}, {"text": "b", "ids": ()}]


@pytest.mark.short
def test_splits_are_handed_on(file):
    source = PythonExamples(Function(f"{file}:squares", {"stop": 1}), split="dev", heldout_split="test")
    assert read(source) == [{"n": 0, "split": "dev"}]
    assert read(source, "heldout") == [{"n": 0, "split": "test"}]


@pytest.mark.short
def test_a_function_without_end_needs_take(file):
    source = PythonExamples(Function(f"{file}:endless"), take=4)
    assert [row["n"] for row in read(source)] == [0, 1, 2, 3]
    with pytest.raises(BadInputError, match="take: 0 is no number of rows"):
        read(PythonExamples(Function(f"{file}:endless"), take=0))


@pytest.mark.short
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fails", r"rows\.py:fails: fails at row 1: KeyError: 'text'"),
        ("pairs", r"row 0 is a tuple \(\('a', 'b'\)\), not a mapping.*Yield dicts"),
        ("nothing", r"returns a NoneType, not rows"),
        ("a_dict", r"returns a dict, not rows"),
        ("sqares", r"has no 'sqares'; did you mean squares\?"),
    ],
)
def test_what_is_wrong_with_a_function(file, name, message):
    with pytest.raises(BadInputError, match=message):
        read(of(file, name))


@pytest.mark.short
def test_an_argument_that_does_not_exist(file):
    with pytest.raises(BadInputError, match="squares has no parameter 'stp'; did you mean stop"):
        read(of(file, "squares", stp=2))


@pytest.mark.short
def test_settings_can_be_written_down(file):
    source = PythonExamples(Function(f"{file}:squares", {"stop": 2}), take=7)
    rows = PythonExamples(rows=({"a": [1, {"b": None}], "c": 1.5},))
    for one in (source, rows, HuggingFaceDataset("squad", revision="main")):
        run = Run("r", Task("t", one), MODEL)
        assert from_json(json.loads(json.dumps(to_json(run)))) == run


@pytest.mark.short
def test_code_that_cannot_be_written_down_is_refused():
    with pytest.raises(FunctionError, match="a lambda has no name"):
        PythonExamples(lambda: [{}])
    with pytest.raises(FunctionError, match="ndarray"):
        PythonExamples(rows=({"a": np.zeros(3)},))


@pytest.mark.short
def test_the_fingerprint_follows_code_arguments_and_rows(file):
    before = row_source_fingerprint(of(file, "squares"))
    assert row_source_fingerprint(of(file, "squares")) == before
    assert row_source_fingerprint(of(file, "squares", stop=2)) != before
    assert row_source_fingerprint(of(file, "endless")) != before
    file.write_text(FILE.replace("n * n", "n * n * n"))
    assert row_source_fingerprint(of(file, "squares")) != before
    rows = [PythonExamples(rows=({"a": n},)) for n in (1, 2)]
    assert row_source_fingerprint(rows[0]) != row_source_fingerprint(rows[1])


@pytest.mark.short
def test_what_a_function_cannot_be(file):
    both = PythonExamples(Function(f"{file}:squares"), rows=({"a": 1},))
    with pytest.raises(BadInputError, match="both a function and rows are set"):
        read(both)
    with pytest.raises(BadInputError, match="neither a function nor rows are set"):
        read(PythonExamples())


def test_a_data_set_in_memory_comes_from_a_function(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    path = tmp_path / "memory.py"
    path.write_text(
        "import datasets\nROWS = [{'a': n, 'b': ['x']} for n in range(2500)]\n"
        "def table():\n    return datasets.Dataset.from_list(ROWS)\n"
        "def stream():\n    return table().to_iterable_dataset()\n"
        "def splits():\n    return datasets.DatasetDict(train=table(), test=table())\n"
    )
    rows = [{"a": n, "b": ["x"]} for n in range(2500)]
    assert read(of(path, "table")) == rows and read(of(path, "stream")) == rows
    with pytest.raises(BadInputError, match="is a DatasetDict of the splits train, test, not rows"):
        read(of(path, "splits"))
    for make in (HuggingFaceDataset, lambda dataset: Task("t", dataset)):
        with pytest.raises(TypeError, match=r"a Dataset in memory cannot be written down.*PythonExamples a function"):
            make(datasets.Dataset.from_list(rows))
