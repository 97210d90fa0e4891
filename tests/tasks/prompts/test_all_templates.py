"""Every template of promptsource's two releases is well-formed, and renders on a row made up of its columns."""

from collections import Counter

import pytest
from golden_data import shared_dir
from prompt_rows import made_up_row

from spanloom.tasks.prompts.rendering import Prompt
from spanloom.tasks.prompts.template_files import read_collection

RELEASES = {"v0.1.0": (272, 1966), "v0.2.3": (279, 2085)}
NEEDS = {
    "climate_fever": "five pieces of evidence",
    "conv_ai": "a participant who is also in the evaluation",
    "craigslist_bargains": "prices that are numbers",
    "hotpot_qa": "titles that two columns share",
    "discofuse": "a type of discourse that the template lists",
    "selqa": "numbers of answers",
}
"""What no made-up row has, by data set."""
_IN_SHORT = 20  # one template of so many


def rendered(prompt: Prompt) -> list[str] | str:
    """Its parts for a row made up of its columns, or why there are none."""
    try:
        parts, choices = prompt.render(made_up_row(prompt))
    except Exception as error:  # whatever the template's own code raises
        return f"{type(error).__name__}: {error}"
    assert (choices is None) == (prompt.answer_choices is None)
    assert all(part == part.strip() for part in (*parts, *(choices or ())))
    return parts


def check(release: str, step: int) -> Counter[str]:
    """Renders one template in `step`; how many of each data set need what no row has."""
    collection = read_collection([str(shared_dir("data", "promptsource", release))])
    several = [(of.dataset, template) for of in collection.values() for template in of.templates]
    assert len(several) == RELEASES[release][1]
    failed: Counter[str] = Counter()
    whole = 0
    for dataset, template in several[::step]:
        prompt = Prompt(template.name, template.jinja, template.answer_choices)
        parts = rendered(prompt)
        assert isinstance(parts, list) or dataset in NEEDS, (dataset, template.name, parts)
        failed[dataset] += isinstance(parts, str)
        whole += len(parts) == 2 and all(parts)
    assert whole > 0.85 * len(several[::step]), "others ask for rows of another kind, and leave this one out"
    return failed


@pytest.mark.parametrize("release", RELEASES)
def test_one_template_of_twenty_renders(release):
    assert check(release, _IN_SHORT).total() <= 5


@pytest.mark.slow
@pytest.mark.parametrize("release", RELEASES)
def test_every_template_renders_or_needs_what_is_said(release):
    assert check(release, 1).total() <= 21


@pytest.mark.parametrize("release", RELEASES)
def test_every_file_is_read(release):
    collection = read_collection([str(shared_dir("data", "promptsource", release))])
    assert (len(collection), sum(len(of.templates) for of in collection.values())) == RELEASES[release]
    for of in collection.values():
        names = [template.name for template in of.templates]
        assert names == sorted(names)
