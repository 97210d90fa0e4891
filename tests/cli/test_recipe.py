import json
import subprocess
import sys
import textwrap

import pytest

from spanloom import recipes
from spanloom.cli.errors import UsageError
from spanloom.cli.recipe import RecipeError, find
from spanloom.conversion.errors import ConversionError
from spanloom.settings.serialize import SettingsError, to_json

pytestmark = pytest.mark.short

GOOD = '''
"""Mine."""
from spanloom.model.sizes import named
from spanloom.settings.run import Run
from spanloom.settings.task import PythonDocs, Task

def recipe(share: float = 0.1, size: str = "byt5_nano") -> Run:
    """The run.

    Args:
      share: How much is kept out,
        nothing: all is learnt; half: of all there is.
      size: A size.
    """
    return Run(name="mine", task=Task("docs", PythonDocs(share)), model=named(size))
'''


def write(tmp_path, text, name="mine.py"):
    path = tmp_path / name
    path.write_text(textwrap.dedent(text))
    return str(path)


def test_a_file(tmp_path):
    recipe = find(write(tmp_path, GOOD))
    assert (recipe.name, recipe.doc, recipe.source.name) == ("mine", "Mine.", "mine.py")
    assert [(p.name, p.default, p.help) for p in recipe.parameters] == [
        ("share", 0.1, "How much is kept out, nothing: all is learnt; half: of all there is."),
        ("size", "byt5_nano", "A size."),
    ]
    assert recipe.make(share=0.3).task.source.heldout_share == 0.3


def test_a_file_may_import_its_neighbours(tmp_path):
    write(tmp_path, GOOD, "spanloom_test_neighbour.py")
    assert find(write(tmp_path, "from spanloom_test_neighbour import recipe\n", "other.py")).make().name == "mine"


def test_files_beside_a_recipe_do_not_take_the_place_of_pythons_own(tmp_path):
    write(tmp_path, "raise SystemExit('imported in the place of numbers')\n", "numbers.py")
    write(tmp_path, GOOD, "mine.py")
    code = "import sys; sys.path.remove(''); from spanloom.cli.recipe import find; find('mine.py'); import numpy"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", list(recipes.shipped()))
def test_shipped_ones_are_found_with_either_dash(name):
    assert find(name).name == find(name.replace("_", "-")).name == name


def test_a_run_directory(tmp_path):
    run = find(write(tmp_path, GOOD)).make().resolve()
    (tmp_path / "run.json").write_text(json.dumps(to_json(run)))
    for word in (str(tmp_path), str(tmp_path / "run.json")):
        recipe = find(word)
        assert recipe.make() == run
        assert recipe.directory == tmp_path
        assert recipe.parameters == ()


def test_a_broken_run_directory(tmp_path):
    (tmp_path / "run.json").write_text('{"class": "Rum"}')
    with pytest.raises(SettingsError, match=r"run.json: .*did you mean Run"):
        find(str(tmp_path))
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(SettingsError, match=r"run\.json"):
        find(str(tmp_path))


def test_unknown_recipes(tmp_path):
    with pytest.raises(UsageError, match="unknown recipe 'quikstart'; did you mean quickstart"):
        find("quikstart")
    with pytest.raises(UsageError, match="no such file"):
        find(str(tmp_path / "absent.py"))
    with pytest.raises(UsageError, match=r"directory without run.json"):
        find(str(tmp_path))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("def recipe(", "def recpie(", r"mine\.py: no function named `recipe`"),
        ("share: float = 0.1", "share=0.1", r"mine\.py:7: parameter 'share' of recipe\(\) has no type"),
        ("share: float = 0.1", "share: flaot = 0.1", r"mine\.py:7: NameError: name 'flaot'"),
        ("import named", "import nmaed", r"mine\.py:3: ImportError"),
        ("def recipe(", "def recipe((", r"mine\.py:7: "),
        ('name="mine"', 'nmae="mine"', r"mine\.py:15: TypeError: .*did you mean name\?(.|\n)*return Run"),
        ("return Run(", "return str(1) or Run(", r"mine\.py:7: recipe\(\) returned str"),
        ("share: float = 0.1", "*share: float", r"name the parameters one by one"),
        ('"byt5_nano"', '"byt5_nan"', r"mine\.py:15: .*did you mean byt5_nano"),
    ],
)
def test_errors_name_file_and_line(tmp_path, old, new, message):
    assert old in GOOD
    with pytest.raises(RecipeError, match=message):
        find(write(tmp_path, GOOD.replace(old, new))).make()


WRONG = """
from dataclasses import replace
from spanloom.recipes.pretrain import recipe as base

def recipe():
    run = base(text=("a.txt",), model="byt5_tiny")
    return replace(run, {change})
"""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("steps='30'", "steps: must be int, not '30'"),
        ("batch_size=2.5", "batch_size: must be int, not 2.5"),
        ("task=None", "task: must be an object"),
        (
            "task=replace(run.task, source=replace(run.task.source, files='a.txt'))",
            "files: must be a list, not 'a.txt'",
        ),
        ("task=replace(run.task, source=replace(run.task.source, errors='ignore'))", "errors: must be one of strict"),
        ("start=__import__('pathlib').Path('x')", "plain data only, not PosixPath"),
    ],
)
def test_values_of_the_wrong_type_are_named(tmp_path, change, message):
    recipe = find(write(tmp_path, WRONG.format(change=change)))
    with pytest.raises(RecipeError, match=rf"mine\.py:5: recipe\(\) returned a Run .*{message}"):
        recipe.make()


def test_a_list_serves_where_a_tuple_is_meant(tmp_path):
    change = "task=replace(run.task, source=replace(run.task.source, files=['a.txt', 'b.txt']))"
    assert find(write(tmp_path, WRONG.format(change=change))).make().task.source.files == ("a.txt", "b.txt")


def test_a_recipe_that_ends_the_process_is_an_error(tmp_path):
    with pytest.raises(RecipeError, match=r"mine\.py:1: SystemExit: 0"):
        find(write(tmp_path, "raise SystemExit(0)"))
    with pytest.raises(RecipeError, match=r"mine\.py:2: SystemExit"):
        find(write(tmp_path, "def recipe():\n    raise SystemExit\n")).make()


def test_a_class_is_no_recipe(tmp_path):
    with pytest.raises(RecipeError, match="returned recipe, and must return"):
        find(write(tmp_path, "class recipe: pass")).make()


def test_an_empty_name_is_no_recipe():
    with pytest.raises(UsageError, match="the recipe is empty"):
        find("")


def test_a_damaged_start_folder_is_no_matter_of_the_command_line(tmp_path):
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ConversionError, match=r"config\.json: is not valid JSON"):
        find("finetune").make(data=("a.tsv",), start=str(tmp_path))
    with pytest.raises(UsageError, match="no model size is called 'byt5_tinny'"):
        find("pretrain").make(text=("a.txt",), model="byt5_tinny")


def test_a_folder_of_a_run_names_the_run(tmp_path):
    (tmp_path / "checkpoints" / "3").mkdir(parents=True)
    (tmp_path / "run.json").touch()
    for inside in ("checkpoints", "checkpoints/3"):
        with pytest.raises(UsageError, match=f"inside the run directory {tmp_path}: name that one"):
            find(str(tmp_path / inside))


def test_a_damaged_run_file_says_where_a_copy_is(tmp_path):
    for content in (b"", b"{", b"\xff\xfe", b"[]", b"{}"):
        (tmp_path / "run.json").write_bytes(content)
        with pytest.raises(SettingsError, match=r"run\.json: .*checkpoint\.json in its place"):
            find(str(tmp_path))


def test_a_file_that_is_no_recipe_says_what_it_may_be_for(tmp_path):
    (tmp_path / "a.txt").write_text("text")
    with pytest.raises(UsageError, match=r"is a file, but no recipe.*spanloom pretrain --text .*a\.txt"):
        find(str(tmp_path / "a.txt"))


@pytest.mark.parametrize(
    "content", [b"[" * 200_000, b'{"class": ["Run"]}', b'{"class": {}}', b"3", b'"x"', b"1" * 5000]
)
def test_a_run_file_of_any_content_is_met(tmp_path, content):
    (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(SettingsError, match=r"run\.json: .*checkpoint\.json in its place"):
        find(str(tmp_path))
