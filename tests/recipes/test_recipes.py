import ast
import re
import subprocess
import sys

import pytest

from spanloom.cli.recipe import find
from spanloom.model.flops import train_flops
from spanloom.model.sizes import named
from spanloom.recipes import shipped, summary
from spanloom.settings.run import Run
from spanloom.settings.serialize import from_json, to_json
from spanloom.tasks.span_lengths import span_lengths

pytestmark = pytest.mark.short

# What a recipe needs before it can make a run.
TEXT = {"text": ("a.txt",)}
NEEDED = {"pretrain": TEXT, "byt5_small": TEXT, "t5_1_1_base": TEXT, "multilingual": TEXT}
WITH_OWN_TEST = {"finetune", "g2p", "hmbyt5", "language_after_language", "lm_adaptation", "mt0", "prompted", "ro_t5"}
WITH_OWN_TEST |= {"t0", "t5_1_1_small_c4", "xxl"}


@pytest.mark.parametrize("name", [name for name in shipped() if name not in WITH_OWN_TEST])
def test_every_recipe_makes_a_run_that_holds_together(name):
    run = find(name).make(**NEEDED.get(name, {}))
    assert isinstance(run, Run)
    resolved = run.resolve()
    assert from_json(to_json(resolved)) == resolved
    assert run.name == name
    assert run.out is None
    assert run.model == named(run.model.name), "a name stands for one size"


@pytest.mark.parametrize("name", list(shipped()))
def test_every_recipe_says_its_command_in_its_docstring(name):
    doc = ast.get_docstring(ast.parse(shipped()[name].read_text()))
    assert summary(shipped()[name]) == doc.splitlines()[0]
    assert f"spanloom train {name}" in doc or f"spanloom {name}" in doc
    assert len(doc.splitlines()) > 3


@pytest.mark.parametrize("name", list(shipped()))
def test_recipes_import_nothing_heavy(name):
    code = (
        f"import sys, spanloom.recipes.{name}; print(sorted(set(sys.modules) & {{'jax', 'numpy', 'orbax', 'pyarrow'}}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("name", list(shipped()))
def test_every_parameter_has_a_type_and_a_meaning(name):
    for parameter in find(name).parameters:
        assert parameter.help, f"{name}: {parameter.name} is not described under Args:"


@pytest.mark.parametrize("name", ["byt5_small", "t5_1_1_base", "pretrain"])
def test_the_cost_that_a_recipe_states_is_that_of_its_matrix_products(name):
    doc = ast.get_docstring(ast.parse(shipped()[name].read_text()))
    step, whole = (float(number) for number in re.findall(r"\d\.\de\d+", doc))
    run = find(name).make(**NEEDED[name])
    objective = run.task.objective
    lengths = span_lengths(objective.inputs_length, objective.noise_density, objective.mean_span_length)
    flops = train_flops(run.model, run.batch_size, lengths.inputs_length, lengths.targets_length)
    assert step == pytest.approx(flops, rel=0.04)
    assert whole == pytest.approx(flops * run.steps, rel=0.04)
