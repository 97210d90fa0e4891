"""Which parameters a recipe's function needs."""

import re
from collections.abc import Iterable

from spanloom.migration.draft import Parameter
from spanloom.migration.recipe_code import Writer
from spanloom.settings.run import Run


def needed_by(run: Run, parameters: Iterable[Parameter]) -> tuple[Parameter, ...]:
    """The parameters that the code of the run names, once each: of two the first."""
    code = set(re.findall(r"\w+", Writer().code(run)))
    found: dict[str, Parameter] = {}
    for one in parameters:
        if one.name in code:
            found.setdefault(one.name, one)
    return tuple(found.values())
