import functools
import json
import multiprocessing
import sys

import pytest
import task_functions

from spanloom.settings.function import Function, FunctionError, as_function
from spanloom.tasks.functions import code_file, code_hash, described, parameters_of, resolve
from spanloom.tasks.text_preprocessors import RankClassification, Rekey, lm

pytestmark = pytest.mark.short

FILE = """
from dataclasses import dataclass
import beside
BY = 3
@dataclass(frozen=True)
class Times:
    by: int = 2
    def __call__(self, example):
        return {"n": example["n"] * self.by}
def times(example, by=BY):
    return {"n": example["n"] * by}
def steps():
    return 10
"""


@pytest.fixture
def file(tmp_path):
    (tmp_path / "beside.py").write_text("VALUE = 1\n")
    (tmp_path / "mine.py").write_text(FILE)
    return tmp_path / "mine.py"


def test_modules_are_imported_and_instances_made_again():
    assert resolve(as_function(lm)) is lm
    assert resolve(as_function(Rekey({"inputs": "a"}))) == Rekey({"inputs": "a"})
    ranking = resolve(as_function(RankClassification(lm, lm, lm, mode="train")))
    assert (ranking.inputs_fn, ranking.mode) == (lm, "train")
    assert resolve(as_function(functools.partial(json.dumps, indent=1)))({}) == "{}"


def test_a_file_is_run_once_whatever_is_asked_of_it(file):
    times, made = resolve(Function(f"{file}:times", {"by": 5})), resolve(Function(f"{file}:Times", {"by": 4}))
    assert times({"n": 2}) == {"n": 10} and made({"n": 2}) == {"n": 8}
    assert resolve(Function(f"{file}:times")) is resolve(Function(f"{file}:times"))
    assert resolve(Function(f"{file}:Times")) == resolve(Function(f"{file}:Times"))


def test_a_file_that_changed_is_run_again(file):
    first, hashed = resolve(Function(f"{file}:times")), code_hash(Function(f"{file}:times"))
    file.write_text(FILE.replace("return 10", "return 20"))
    assert code_hash(Function(f"{file}:times")) == hashed  # which says nothing of `times`
    file.write_text(FILE.replace("BY = 3", "BY = 7"))
    assert first({"n": 1}) == {"n": 3} and resolve(Function(f"{file}:times"))({"n": 1}) == {"n": 7}
    assert code_hash(Function(f"{file}:times")) != hashed


def in_a_process(connection, function):
    connection.send(resolve(function)({"n": 1}))


def test_other_processes_find_it_too(file):
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=in_a_process, args=(theirs, Function(f"{file}:times", {"by": 9}))
    )
    process.start()
    assert ours.poll(60) and ours.recv() == {"n": 9}
    process.join()


def test_a_name_does_not_depend_on_the_folder(file, tmp_path):
    other = tmp_path / "deeper" / "mine.py"
    other.parent.mkdir()
    other.write_text(FILE.replace("import beside", ""))
    first, second = described(Function(f"{file}:Times")), described(Function(f"{other}:Times"))
    assert first == second == {"name": "mine.py:Times", "arguments": {}, "code": first["code"]}


def test_functions_among_the_arguments_are_hashed_too(tmp_path):
    (tmp_path / "a.py").write_text("def f(example):\n    return 1\n")
    outer = "spanloom.tasks.text_preprocessors.ranking:RankClassification"
    function = Function(outer, {"inputs_fn": Function(f"{tmp_path}/a.py:f")})
    before = code_hash(function)
    (tmp_path / "a.py").write_text("def f(example):\n    return 2\n")
    assert code_hash(function) != before


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("spanloom.tasks.no_such:f", {}, "cannot be imported .*: install its package, or set PYTHONPATH"),
        ("spanloom.tasks.text_preprocessors:Rekeyy", {}, "has no 'Rekeyy'; did you mean Rekey"),
        ("spanloom.tasks.text_preprocessors:Rekey", {"keymap": {}}, "Rekey.*keymap"),
        ("spanloom.tasks.text_preprocessors:lm", {"keep": 1}, "lm has no parameter 'keep'"),
        ("spanloom.tasks.rows:FORMAT", {}, "is of type int, no function"),
        ("spanloom.tasks.text_preprocessors:Translate", {"source_language": "xx", "target_language": "de"}, "xx"),
        ("/nowhere/at/all.py:f", {}, "/nowhere/at/all.py, whose functions this run uses, cannot be read"),
    ],
)
def test_what_is_not_there_is_said(name, arguments, said):
    with pytest.raises(FunctionError, match=said):
        resolve(Function(name, arguments))


def test_a_file_that_fails_is_named_and_leaves_nothing_behind(tmp_path):
    (tmp_path / "bad.py").write_text("raise ValueError('on purpose')\n")
    before = set(sys.modules)
    with pytest.raises(FunctionError, match=r"bad.py fails: ValueError: on purpose"):
        resolve(Function(f"{tmp_path}/bad.py:f"))
    assert set(sys.modules) == before


def test_parameters_that_are_filled_in_are_not_asked_for():
    assert parameters_of(task_functions.shuffled) == {"example", "rng"}
    assert parameters_of(functools.partial(task_functions.shuffled, rng=1)) == {"example"}
    assert parameters_of(task_functions.Cut(3)) == {"example"}
    assert parameters_of(len) == frozenset()


def test_the_file_of_code_is_found():
    assert code_file(task_functions.shuffled) == task_functions.__file__
    assert code_file(functools.partial(task_functions.joined, between="")) == task_functions.__file__
    assert code_file(task_functions.Cut(3)) == task_functions.__file__
    assert code_file(len) == ""
