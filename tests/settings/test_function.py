import functools
import json
from pathlib import Path

import pytest
import task_functions
from hypothesis import given
from hypothesis import strategies as st

from spanloom.settings.feature import Feature
from spanloom.settings.function import Function, FunctionError, as_function
from spanloom.settings.objectives import Supervised
from spanloom.settings.serialize import SettingsError, from_json, to_json
from spanloom.settings.task import PairFiles, Task, TextFiles, uses_rows
from spanloom.settings.vocabulary import Bytes
from spanloom.tasks.text_preprocessors import RankClassification, Rekey, Translate, lm

pytestmark = pytest.mark.short
HERE = str(Path(task_functions.__file__).resolve())
PACKAGE = "spanloom.tasks.text_preprocessors"


def test_what_is_installed_is_named_by_its_module_and_a_users_own_by_its_file():
    assert as_function(lm) == Function(f"{PACKAGE}.rekeying:lm")
    assert as_function(task_functions.prefixed) == Function(f"{HERE}:prefixed")
    assert as_function(json.dumps).name == "json:dumps"
    assert as_function(len).name == "builtins:len"


def test_arguments_are_those_of_a_partial_or_of_an_instance():
    assert as_function(functools.partial(task_functions.joined, between="-")).arguments == {"between": "-"}
    twice = functools.partial(functools.partial(task_functions.joined, between="-"), between="+")
    assert as_function(twice).arguments == {"between": "+"}
    assert as_function(task_functions.Cut(3)).arguments == {"most": 3, "fields": ("inputs",)}
    assert as_function(Rekey({"inputs": "a", "targets": None})).arguments == {
        "key_map": {"inputs": "a", "targets": None}
    }
    inner = as_function(RankClassification(lm, lm, task_functions.prefixed)).arguments
    assert inner["inputs_fn"] == Function(f"{PACKAGE}.rekeying:lm")
    assert inner["is_correct_fn"] == Function(f"{HERE}:prefixed")


def local():
    def inside(example):
        return example

    return inside


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (lambda example: example, "a lambda has no name by which other processes could find it: define it with `def`"),
        (local(), "is defined inside of another function"),
        (functools.partial(task_functions.joined, {}), "fill in partial's arguments by name"),
        (task_functions.Plain().method, "is a bound method"),
        (task_functions.Plain(), "an object of class Plain"),
        (task_functions.Cut, "Cut is a class: give an instance of it"),
        (task_functions.Loose(), r"make it @dataclass\(frozen=True\)"),
        ({"inputs": "a"}, "is no function: give the function itself"),
        (functools.partial(task_functions.joined, between={1, 2}), "argument 'between' .* is of type set"),
        (functools.partial(task_functions.joined, between={1: "a"}), "keys that are no texts"),
        (functools.partial(task_functions.joined, between=lambda: 0), "argument 'between' .* a lambda"),
        (Function, "Function is a class"),
    ],
)
def test_what_no_other_process_could_find_is_refused_with_the_way_out(code, said):
    with pytest.raises(FunctionError, match=said):
        as_function(code)


def test_what_the_running_script_defines_is_refused(monkeypatch):
    monkeypatch.setattr(task_functions.prefixed, "__module__", "__main__")
    with pytest.raises(FunctionError, match="move it to a module beside it"):
        as_function(task_functions.prefixed)


def test_a_task_names_itself_and_the_place():
    with pytest.raises(FunctionError, match="preprocessors of task 'words': a lambda"):
        Task("words", TextFiles(), preprocessors=(lambda x: x,))
    with pytest.raises(FunctionError, match="postprocess of task 'words': a lambda"):
        Task("words", TextFiles(), postprocess=lambda x: x)
    with pytest.raises(FunctionError, match=r"must be a list of functions, even if it is one: \(prefixed,\)"):
        Task("words", TextFiles(), metrics=task_functions.prefixed)


TASK = Task(
    "words",
    PairFiles(("a.tsv",)),
    objective=Supervised(),
    preprocessors=[
        Translate("en", "de"),
        task_functions.prefixed,
        functools.partial(task_functions.joined, between="-"),
    ],
    features=(Feature("targets", Bytes("google"), add_eos=False), Feature("inputs"), Feature("label", dtype="int64")),
    deduplicate=("inputs",),
    postprocess=task_functions.with_input,
    metrics=[RankClassification(lm, lm, lm)],
)


def test_a_task_comes_back_from_its_json_as_it_was():
    text = json.dumps(to_json(TASK))
    again = from_json(json.loads(text), Task)
    assert again == TASK
    assert hash(again) == hash(TASK)
    assert json.dumps(to_json(again)) == text


def test_arguments_that_are_no_code_are_an_error_that_names_the_field():
    data = to_json(TASK)
    data["preprocessors"][0]["name"] = "no colon"
    with pytest.raises(SettingsError, match=r"preprocessors\[0\]: function 'no colon': a name is"):
        from_json(data, Task)
    data["preprocessors"][0] = {"class": "Function", "name": "a:b", "arguments": [1]}
    with pytest.raises(SettingsError, match=r"preprocessors\[0\].arguments: must be an object"):
        from_json(data, Task)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
)


@given(st.dictionaries(st.text(), PLAIN))
def test_arguments_of_any_plain_kind_come_back(arguments):
    function = Function("a.b:c", arguments)
    again = from_json(json.loads(json.dumps(to_json(function))), Function)
    assert again == function
    assert repr(again) == repr(function)


def test_rows_are_used_where_something_is_made_of_each():
    text = Task("words", TextFiles())
    assert not uses_rows(text)
    assert uses_rows(Task("words", TextFiles(), preprocessors=(lm,)))
    assert uses_rows(Task("words", TextFiles(), features=(Feature("text"),)))
