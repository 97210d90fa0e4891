import dataclasses
import typing
from dataclasses import replace
from typing import Any, Literal, get_args, get_origin

import pytest

from spanloom.settings.compare import (
    DEPENDS,
    FREE,
    OPTIMIZER_STATE,
    PLACE,
    WEIGHTS,
    ChangedSettingsError,
    changes,
    check_accepted,
    refuse,
    within,
)
from spanloom.settings.function import Function
from spanloom.settings.kinds import all_fields, get, kind_name, parts, put
from spanloom.settings.mixture import ByAlpha, Mixture, Weighted
from spanloom.settings.model import Model
from spanloom.settings.optimizer import Adafactor, AdamW, AdamWRMS, Constant, Cosine, Lion, Muon, ScheduleFree
from spanloom.settings.run import After, Checkpoints, Evaluation, Logging, Run
from spanloom.settings.serialize import SettingsError
from spanloom.settings.task import PythonDocs, Task
from spanloom.settings.weights import Weights

pytestmark = pytest.mark.short

MODEL = Model(vocab_size=384, d_model=32, d_ff=64, num_heads=2, d_kv=16, num_encoder_layers=2, num_decoder_layers=2)
RUN = Run(name="a", task=Task("docs", PythonDocs()), model=MODEL)

BY_NAME = (
    "task",
    "schedule",
    "loss",
    "batch_size",
    "batch_tokens",
    "microbatch_size",
    "microbatch_tokens",
    "seed",
    "start",
    "follow",
    "model.relative_position_max_distance",
    "model.norm_epsilon",
    "model.dropout",
    "model.dtype",
    "model.scan_layers",
    "optimizer.learning_rate",
    "optimizer.decay_rate",
    "optimizer.step_offset",
    "optimizer.clipping_threshold",
    "optimizer.beta2",
    "optimizer.epsilon",
    "optimizer.epsilon1",
    "optimizer.epsilon2",
    "optimizer.multiply_by_parameter_scale",
    "optimizer.min_scale",
    "optimizer.max_parameter_scale",
    "optimizer.weight_decay",
    "optimizer.weight_decay_lr_exponent",
    "optimizer.decayed",
    "optimizer.momentum",
    "optimizer.nesterov",
    "optimizer.newton_schulz_steps",
    "optimizer.update_rms",
    "optimizer.weight_power",
    "optimizer.global_norm_clip",
    "optimizer.skip_nan_updates",
)
"""Fields (with all below them) that decide the result and may change where that is accepted by name."""


def test_no_change_between_equals():
    assert changes(RUN, replace(RUN)) == []


@pytest.mark.parametrize(
    "change",
    [
        {"steps": 5},
        {"out": "x"},
        {"name": "b"},
        {"log": Logging(every=1, tensorboard=False)},
        {"eval": Evaluation(every=1)},
        {"checkpoint": Checkpoints(keep=9)},
        {"after": After(fills=0)},
        {"model": replace(MODEL, name="other")},
    ],
)
def test_free_fields_may_change(change):
    found = changes(RUN, replace(RUN, **change))
    assert found
    assert all(c.free for c in found)
    refuse(found)


def test_deciding_fields_are_refused_with_diff_and_ways_on():
    new = replace(RUN, seed=1, steps=3, task=Task("docs", PythonDocs(heldout_share=0.2)), schedule=Constant())
    found = changes(RUN, new)
    assert [c.field for c in found if not c.free] == ["task.source.heldout_share", "schedule", "seed"]
    with pytest.raises(ChangedSettingsError) as error:
        refuse(found)
    text = str(error.value)
    assert "seed                       0  ->  1" in text
    assert "task.source.heldout_share  0.05  ->  0.2" in text
    assert "Rsqrt (warmup_steps 10000" in text
    assert "--fork NEW_DIR" in text
    assert "--accept-change task.source.heldout_share,schedule,seed" in text
    assert "steps  " not in text


def test_accepting_by_name_or_group():
    found = changes(RUN, replace(RUN, seed=1, task=Task("docs", PythonDocs(heldout_share=0.2))))
    refuse(found, ["seed", "task.source.heldout-share"])
    refuse(found, ["--seed", "task"])
    with pytest.raises(ChangedSettingsError, match=r"accept-change seed$"):
        refuse(found, ["task.source"])


def test_other_shapes_cannot_be_accepted():
    found = changes(RUN, replace(RUN, model=replace(MODEL, d_model=64)))
    with pytest.raises(ChangedSettingsError, match="No checkpoint can go on"):
        refuse(found, ["model.d_model"])


def test_accepted_names_must_exist():
    check_accepted(["seed", "task.source", "model.d-model"], RUN)
    with pytest.raises(SettingsError, match="seeed: no such setting; did you mean seed"):
        check_accepted(["seeed"], RUN)


# Every field of every kind of part has its class, and behaves by it.


def leaves() -> list[str]:
    return [name for name in all_fields() if name not in {part.path for part in parts()}]


def test_every_field_has_one_class():
    """A new setting must be put into one: what may change on resume is decided, never left open."""
    for name in [*leaves(), "optimizer", "schedule", "task.source", "task.vocabulary", "task.objective", "packing"]:
        shapes = [name in WEIGHTS, name in OPTIMIZER_STATE, name in DEPENDS]
        classes = [within(name, FREE), within(name, BY_NAME), within(name, PLACE), *shapes]
        assert sum(classes) == 1, f"{name} is in {sum(classes)} of the classes in settings/compare.py"


def test_the_classes_name_fields_that_exist():
    known = {*all_fields(), *(part.path for part in parts())}
    assert {*FREE, *BY_NAME, *PLACE, *WEIGHTS, *OPTIMIZER_STATE, *DEPENDS} <= known


def test_free_is_what_the_design_says():
    """Steps, devices and how the same numbers are computed there, reading ahead, logging, evaluation, checkpoints,
    when to stop, what is done after the last step, names and places.
    """
    computed = {"mesh", "model.remat", "model.attention"}
    free = {"steps", "loading", "log", "eval", "checkpoint", "stopping", "after", "out", "name", "model.name"}
    assert set(FREE) == computed | free


def other_value(hint: Any, value: Any) -> Any:
    """A value of the same type that differs."""
    if get_origin(hint) is Literal:
        return next(choice for choice in get_args(hint) if choice != value)
    if type(None) in get_args(hint):
        inner = next(kind for kind in get_args(hint) if kind is not type(None))
        return other_value(inner, None) if value is None else None
    if isinstance(value, str) and int in get_args(hint):
        return 2  # in place of auto
    if isinstance(value, bool) or hint is bool:
        return not value
    if isinstance(value, tuple):
        return (*value, value[-1] if value else "linear")
    return {int: 2, float: 0.25, str: "another"}.get(hint, 3) if value is None or hint is str else value + 1


def blank(cls: type) -> Any:
    """A part of a kind, with something in the fields that have no default."""
    hints = typing.get_type_hints(cls)
    needed = [f.name for f in dataclasses.fields(cls) if f.default is f.default_factory]
    return cls(**{name: () if get_origin(hints[name]) is tuple else "x" for name in needed})


def with_field(run: Run, name: str) -> tuple[Run, Any]:
    """The run with the kind of part that has the field, and the field's type."""
    path, _, last = name.rpartition(".")
    if not path:
        return run, typing.get_type_hints(Run)[last]
    (kinds,) = [part.kinds for part in parts() if part.path == path]
    here = type(get(run, path))
    cls = (
        here
        if last in typing.get_type_hints(here)
        else next(c for c in kinds.values() if hasattr(c, last) or last in {f.name for f in dataclasses.fields(c)})
    )
    if cls is not here:
        run = put(run, path, blank(cls))
    return run, typing.get_type_hints(cls)[last]


@pytest.mark.parametrize("name", leaves())
def test_each_field_behaves_by_its_class(name):
    old, hint = with_field(RUN, name)
    value = get(old, name)
    change = other_value(hint, value) if "normalizer" not in name else "sum"
    new = put(old, name, change)
    found = changes(old, new)
    assert [c.field for c in found] == [name]
    if within(name, FREE):
        refuse(found)
    elif within(name, BY_NAME):
        with pytest.raises(ChangedSettingsError, match=f"--accept-change {name}"):
            refuse(found)
        refuse(found, [name])
    else:
        with pytest.raises(ChangedSettingsError, match="No checkpoint can go on"):
            refuse(found, [name])


@pytest.mark.parametrize("part", ["optimizer", "schedule", "task.source", "task.vocabulary", "task.objective"])
def test_another_kind_is_one_change(part):
    (kinds,) = [p.kinds for p in parts() if p.path == part]
    here = kind_name(type(get(RUN, part)))
    for cls in (cls for name, cls in kinds.items() if name != here):
        found = changes(RUN, put(RUN, part, blank(cls)))
        assert [c.field for c in found] == [part]
        assert found[0].shapes == (part == "optimizer")


def test_values_decide_where_shapes_depend_on_them():
    relu = replace(RUN, model=replace(MODEL, activations=("relu", "linear")))
    refuse(changes(RUN, relu), ["model.activations"])
    with pytest.raises(ChangedSettingsError, match="the weights of this run"):
        refuse(changes(RUN, replace(RUN, model=replace(MODEL, activations=("relu",)))), ["model.activations"])
    with_momentum = replace(RUN, optimizer=Adafactor(beta1=0.9))
    refuse(changes(with_momentum, replace(RUN, optimizer=Adafactor(beta1=0.8))), ["optimizer.beta1"])
    with pytest.raises(ChangedSettingsError, match=r"moments(.|\n)*--start THIS_RUN --out NEW_DIR"):
        refuse(changes(with_momentum, RUN), ["optimizer"])


KINDS = [Adafactor(), Adafactor(beta1=0.9), AdamW(), AdamWRMS(), Lion(), Muon(), ScheduleFree()]


@pytest.mark.parametrize("old", KINDS, ids=lambda one: type(one).__name__)
def test_what_is_said_of_the_optimizers_state_is_so(old):
    """Compared with the states that the optimizers make for a model with parameters on both sides of every limit."""
    jax = pytest.importorskip("jax")
    from spanloom.model.params import declare, flatten, initialize
    from spanloom.optim.build import build

    specs = declare(replace(MODEL, d_model=128, d_ff=256))
    params = jax.eval_shape(lambda key: initialize(specs, key), jax.random.key(0))

    def state(optimizer):
        made = jax.eval_shape(build(optimizer, Constant(), specs).init, params)
        return {name: (leaf.shape, leaf.dtype) for name, leaf in flatten(made).items()}

    hints = typing.get_type_hints(type(old))
    new = [replace(old, **{f.name: other_value(hints[f.name], getattr(old, f.name))}) for f in dataclasses.fields(old)]
    for optimizer in new:
        (change,) = changes(replace(RUN, optimizer=old), replace(RUN, optimizer=optimizer))
        if change.field == "optimizer.min_dim_size_to_factor":
            optimizer = replace(optimizer, min_dim_size_to_factor=2**20)
        assert (state(optimizer) != state(old)) == change.shapes, str(change)


@pytest.mark.parametrize("change", [{"dtype": "bfloat16"}, {"rounding": "kahan"}, {"ema_decay": 0.9}], ids=str)
def test_what_is_said_of_how_weights_are_kept_is_so(change):
    """Each changes the arrays of a checkpoint of bfloat16 weights, or of float32 ones."""
    jax = pytest.importorskip("jax")
    from spanloom.model.params import declare, flatten, initialize
    from spanloom.optim.build import build
    from spanloom.optim.rounding import as_kept

    specs = declare(MODEL)

    def arrays(weights):
        params = jax.eval_shape(lambda key: as_kept(initialize(specs, key), weights), jax.random.key(0))
        state = jax.eval_shape(build(AdamW(), Constant(), specs, weights).init, params)
        return {name: (leaf.shape, leaf.dtype) for name, leaf in flatten((params, state)).items()}

    old = Weights(dtype="bfloat16") if "rounding" in change else Weights()
    new = replace(old, **change)
    (found,) = changes(replace(RUN, weights=old), replace(RUN, weights=new))
    assert found.shapes and arrays(old) != arrays(new)
    refuse(
        changes(replace(RUN, weights=Weights(ema_decay=0.9)), replace(RUN, weights=Weights(ema_decay=0.99))),
        ["weights"],
    )


def test_steps_that_would_move_the_end_of_a_schedule_have_a_way_on():
    old = replace(RUN, schedule=Cosine(warmup_steps=1, end_factor=0.1), steps=100)
    with pytest.raises(ChangedSettingsError, match=r"--accept-change schedule\.decay_steps\n.*RUN_DIR --steps 200$"):
        refuse(changes(old.resolve(), replace(old, steps=200).resolve()))
    with pytest.raises(ChangedSettingsError) as error:
        refuse(changes(old.resolve(), replace(old, schedule=replace(old.schedule, decay_steps=200)).resolve()))
    assert "RUN_DIR" not in str(error.value)
    refuse(changes(old.resolve(), replace(old.resolve(), steps=200).resolve()))


def test_parts_of_a_mixture_are_compared_one_by_one():
    docs, more = Task("docs", PythonDocs()), Task("more", PythonDocs(heldout_share=0.5))
    old = replace(
        RUN, task=Mixture("all", (Weighted(docs, 1.0), Weighted(more, 2.0), Weighted(replace(docs, name="x"))))
    )
    changed = replace(more, source=PythonDocs(heldout_share=0.1))
    new = Mixture("all", (Weighted(docs, 3.0), Weighted(changed, 2.0), Weighted(replace(docs, name="y"), ByAlpha(0.3))))
    with pytest.raises(ChangedSettingsError) as error:
        refuse(changes(old, replace(RUN, task=new)))
    assert (
        "task.parts  x is gone; docs: rate 1.0  ->  3.0; more: part.source.heldout_share 0.5  ->  0.1; "
        "y is added (rate ByAlpha (alpha 0.3, unit examples))\n" in str(error.value)
    )
    turned = replace(old, task=replace(old.task, parts=old.task.parts[::-1]))
    with pytest.raises(ChangedSettingsError, match=r"task\.parts  the parts come in another order\n"):
        refuse(changes(old, turned))


def test_watched_tasks_are_compared_one_by_one_and_a_task_with_a_mixture_by_name():
    docs, more = Task("docs", PythonDocs()), Task("more", PythonDocs(heldout_share=0.5))
    changed = replace(more, source=PythonDocs(heldout_share=0.1))
    before, after = (replace(RUN, eval=Evaluation(also=also)) for also in ((docs, more), (changed,)))
    (found,) = changes(before, after)
    assert str(found) == "eval.also: docs is gone; more: source.heldout_share 0.5  ->  0.1"
    assert found.shown == ("", "docs is gone; more: source.heldout_share 0.5  ->  0.1")
    (found,) = changes(replace(RUN, task=docs), replace(RUN, task=Mixture("all", (Weighted(docs), Weighted(more)))))
    assert str(found) == "task: task docs -> mixture all"


def test_functions_of_one_name_in_two_files_are_told_apart():
    old, new = (
        replace(RUN, task=Task("docs", PythonDocs(), preprocessors=(Function(f"/{place}.py:turned"),)))
        for place in ("a/recipe", "a/other")
    )
    with pytest.raises(ChangedSettingsError, match=r"\(turned of /a/recipe\.py\)  ->  \(turned of /a/other\.py\)"):
        refuse(changes(old, new))


def test_a_recipe_may_lie_in_another_folder():
    functions = (Function(f"/{folder}/recipe.py:turned") for folder in ("a", "b"))
    tasks = (Task("docs", PythonDocs(), preprocessors=(function,)) for function in functions)
    old, new = (replace(RUN, task=Mixture("all", (Weighted(task),))) for task in tasks)
    assert old != new and changes(old, new) == []
