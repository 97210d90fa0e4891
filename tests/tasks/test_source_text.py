from pathlib import Path

import pytest

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
