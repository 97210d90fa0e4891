"""Every template of promptsource's two releases is well-formed, and makes of made-up rows what promptsource makes.

What promptsource makes was written down by scripts/promptsource_values.py.
"""

from collections import Counter
from pathlib import Path

import pytest
from golden_data import shared_dir
from jinja2 import nodes
from prompt_rows import digest_of, made_up_row, middle

from spanloom.tasks.prompts import rendering
from spanloom.tasks.prompts.rendering import Prompt, environment
from spanloom.tasks.prompts.template import shown_data_set
from spanloom.tasks.prompts.template_files import read_collection

RELEASES = {"v0.1.0": (272, 1966), "v0.2.3": (279, 2085)}
NEEDS = {
    "cbt": "titles of several parts",
    "climate_fever": "five pieces of evidence",
    "conv_ai": "a participant who is also in the evaluation",
    "coqa": "an answer that begins and ends within the text",
    "craigslist_bargains": "prices that are numbers",
    "hotpot_qa": "titles that two columns share",
    "discofuse": "a type of discourse that the template lists",
    "scientific_papers": "articles of several lines",
    "selqa": "numbers of answers",
}
"""What no made-up row has, by data set: a template raises an error for it, or leaves a part empty."""
_ONLY_LATER = {"discofuse", "scientific_papers"}  # such templates came with v0.2.3
_IN_SHORT = 20  # one template of so many


@pytest.fixture(autouse=True)
def _no_draws(monkeypatch):
    """promptsource draws by a generator of its own: what both take instead is the item in the middle."""
    monkeypatch.setattr(rendering._Draws, "choice", staticmethod(middle))


def written(release: str) -> dict[str, list[str]]:
    """What promptsource made: digests of each data set's templates, by name."""
    lines = Path(__file__).with_name(f"promptsource_{release}.txt").read_text(encoding="utf-8").splitlines()
    return {name: digests for name, *digests in map(str.split, lines)}


def rendered(prompt: Prompt) -> list[str] | str:
    """Its parts for a row made up of its columns, or why there are none."""
    try:
        parts, choices = prompt.render(made_up_row(prompt))
    except Exception as error:  # whatever the template's own code raises
        return f"{type(error).__name__}: {error}"
    assert (choices is None) == (prompt.answer_choices is None)
    assert all(part == part.strip() for part in (*parts, *(choices or ())))
    return parts


def asks(prompt: Prompt) -> bool:
    """Whether the template says itself that it makes nothing, or not all, of some rows."""
    tree = environment().parse(prompt.jinja)
    loops = tree.find_all(nodes.For)
    return next(tree.find_all((nodes.If, nodes.CondExpr)), None) is not None or any(loop.test for loop in loops)


def check(release: str, step: int) -> Counter[str]:
    """Renders one template in `step`; how many of each data set need what no row has."""
    collection = read_collection([str(shared_dir("data", "promptsource", release))])
    theirs = written(release)
    assert {name: len(digests) for name, digests in theirs.items()} == {
        shown_data_set(of.name): len(of.templates) for of in collection.values()
    }
    several = [
        (of.dataset, template, digest)
        for of in collection.values()
        for template, digest in zip(of.templates, theirs[shown_data_set(of.name)], strict=True)
    ]
    assert len(several) == RELEASES[release][1]
    lacking: Counter[str] = Counter()
    for dataset, template, digest in several[::step]:
        prompt = Prompt(template.name, template.jinja, template.answer_choices)
        assert digest_of(prompt, prompt.render) == digest, (dataset, template.name)
        parts = rendered(prompt)
        if isinstance(parts, list) and len(parts) == 2 and all(parts):
            continue
        is_told = isinstance(parts, list) and asks(prompt)
        assert is_told or dataset in NEEDS, (dataset, template.name, parts)
        lacking[dataset] += not is_told
    return lacking


@pytest.mark.parametrize("release", RELEASES)
def test_one_template_of_twenty_is_promptsources(release):
    assert check(release, _IN_SHORT).total() <= 5


@pytest.mark.long
@pytest.mark.parametrize("release", RELEASES)
def test_every_template_is_promptsources_and_gives_two_parts_or_needs_what_is_said(release):
    lacking = check(release, 1)
    assert {dataset for dataset, count in lacking.items() if count} == set(NEEDS) - (
        _ONLY_LATER if release == "v0.1.0" else set()
    )
    assert lacking.total() <= 27


@pytest.mark.parametrize("release", RELEASES)
def test_every_file_is_read(release):
    collection = read_collection([str(shared_dir("data", "promptsource", release))])
    assert (len(collection), sum(len(of.templates) for of in collection.values())) == RELEASES[release]
    for of in collection.values():
        names = [template.name for template in of.templates]
        assert names == sorted(names)
