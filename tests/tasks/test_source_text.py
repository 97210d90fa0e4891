import sysconfig
from pathlib import Path

import pytest

from spanloom.tasks import source_text
from spanloom.tasks.source_text import source_of

pytestmark = pytest.mark.short

RECIPE = '''"""A recipe."""
import re
from beside import helper
PATTERN = re.compile("a+")
UNUSED = 3
TABLE = {}
TABLE["x"] = 1
for key in "ab":
    TABLE[key] = key
def clean(text):
    return PATTERN.sub("", text)
def other(example):
    return example
@staticmethod
def used(example):
    return {"text": clean(example["text"]), "more": TABLE}
class Made(dict):
    """Text."""
    def __call__(self, example):
        return used(example)
def recipe(steps=10):
    return (used, steps)
if __name__ == "__main__":
    used({})
'''


def of(name, text=RECIPE, path=Path("/nowhere/recipe.py")):
    return source_of(text, name, path)


def test_it_is_what_the_function_uses_and_nothing_else():
    text = of("used")
    for part in (
        "import re",
        "PATTERN =",
        'TABLE["x"] = 1',
        "TABLE[key] = key",
        "def clean",
        "@staticmethod",
        "def used",
    ):
        assert part in text
    for part in ("UNUSED", "def other", "def recipe", "class Made", "A recipe", "from beside"):
        assert part not in text
    assert of("other") == "def other(example):\n    return example\n"
    assert "def used" in of("Made") and "class Made" in of("Made")


@pytest.mark.parametrize(
    "edit", [("a+", "b+"), ('"x"', '"y"'), ('"more"', '"less"'), ("@staticmethod", "@classmethod")]
)
def test_an_edit_of_what_it_uses_is_seen(edit):
    assert of("used", RECIPE.replace(*edit)) != of("used")


@pytest.mark.parametrize("edit", [("steps=10", "steps=20"), ("UNUSED = 3", ""), ("    used({})", "    used({1})")])
def test_an_edit_of_anything_else_is_not(edit):
    assert RECIPE.replace(*edit) != RECIPE
    assert of("used", RECIPE.replace(*edit)) == of("used")


def test_files_beside_it_that_it_uses_count_whole(tmp_path):
    text = "from beside import helper\nimport os\ndef used(example):\n    return helper(example)\n"
    (tmp_path / "beside.py").write_text("def helper(example):\n    return example\n")
    before = source_of(text, "used", tmp_path / "recipe.py")
    assert "def helper" in before
    (tmp_path / "beside.py").write_text("def helper(example):\n    return {}\n")
    assert source_of(text, "used", tmp_path / "recipe.py") != before
    assert "def helper" not in source_of("def used():\n    return 1\n", "used", tmp_path / "recipe.py")


def test_text_that_is_no_python_counts_whole():
    assert of("used", "def (") == "def ("


@pytest.mark.parametrize("line", ["from inside import helper", "from inside.helper import f", "import inside.helper"])
def test_modules_of_a_folder_beside_it_count_too(tmp_path, line):
    text = f"{line}\ndef used(example):\n    return helper.f(inside.helper, f, example)\n"
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "helper.py").write_text("def f():\n    return 1\n")
    before = source_of(text, "used", tmp_path / "recipe.py")
    (tmp_path / "inside" / "helper.py").write_text("def f():\n    return 2\n")
    assert source_of(text, "used", tmp_path / "recipe.py") != before
    if line.startswith("from inside import"):
        (tmp_path / "inside" / "__init__.py").write_text("helper = None\n")
        assert "helper = None" in source_of(text, "used", tmp_path / "recipe.py")


@pytest.mark.parametrize("odd", ["\f", "\u2028", "\x85"])
def test_characters_that_end_no_line_of_python_hide_no_edit(odd):
    text = f'def first():\n    return """{odd}"""\ndef used(example):\n    return 1\n'
    assert of("used", text) == "def used(example):\n    return 1\n"


@pytest.mark.parametrize(
    "files",
    [
        {"beside.py": "from further import helper\n", "further.py": "def helper(example):\n    return 1\n"},
        {
            "beside/__init__.py": "from .inner import helper\n",
            "beside/inner.py": "def helper(example):\n    return 1\n",
        },
        {
            "beside/__init__.py": "from beside.deep.inner import helper\n",
            "beside/deep/__init__.py": "",
            "beside/deep/inner.py": "from ..other import helper\n",
            "beside/other.py": "def helper(example):\n    return 1\n",
        },
        {"beside.py": "import circle\nhelper = circle.helper\n", "circle.py": "import beside\nhelper = lambda e: 1\n"},
    ],
)
@pytest.mark.parametrize("line", ["from beside import helper", "from beside import *"])
def test_what_files_beside_it_import_in_turn_counts_too(tmp_path, line, files):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    text = f"{line}\ndef used(example):\n    return helper(example)\n"
    before = source_of(text, "used", tmp_path / "recipe.py")
    *_, last = files
    (tmp_path / last).write_text(files[last].replace("1", "2") + "# edited\n")
    assert source_of(text, "used", tmp_path / "recipe.py") == before.replace(files[last], (tmp_path / last).read_text())
    assert "# edited" in source_of(text, "used", tmp_path / "recipe.py")


def test_files_of_the_package_that_a_recipe_lies_in_count_too(tmp_path):
    (tmp_path / "mine" / "recipes").mkdir(parents=True)
    for folder in ("mine", "mine/recipes"):
        (tmp_path / folder / "__init__.py").write_text("")
    (tmp_path / "mine" / "common.py").write_text("def helper(example):\n    return 1\n")
    for line in ("from mine.common import helper", "from ..common import helper"):
        text = f"{line}\ndef used(example):\n    return helper(example)\n"
        assert "return 1" in source_of(text, "used", tmp_path / "mine" / "recipes" / "recipe.py")


def test_what_comes_with_python_or_this_package_is_not_looked_at():
    text = "from spanloom.tasks.shown import shown\nimport numpy\ndef used(example):\n    return numpy, shown\n"
    root = Path(source_text.__file__).parents[2]
    assert source_of(text, "used", root / "recipe.py") == text
    site = Path(sysconfig.get_path("purelib"))
    assert source_of("import numpy\ndef used():\n    return numpy\n", "used", site / "single.py").count("import") == 1


@pytest.mark.parametrize(
    "fills",
    [
        'def fill():\n    TABLE["a"] = 1\nfill()\n',
        'def inner():\n    TABLE["a"] = 1\ndef fill():\n    inner()\nfill()\n',
        'if True:\n    TABLE["a"] = 1\n',
        'try:\n    TABLE["a"] = 1\nexcept KeyError:\n    pass\n',
        "def keep(function):\n    TABLE[1] = function\n    return function\n@keep\ndef kept(example):\n    return 1\n",
    ],
)
def test_whatever_fills_a_table_that_it_uses_counts(fills):
    text = f"TABLE = {{}}\n{fills}def used(example):\n    return TABLE\n"
    assert of("used", text) == text
    assert of("used", text.replace("1", "2")) != of("used", text)
