import re
from dataclasses import replace
from math import inf, nan

import pytest

from spanloom.settings.kinds import all_fields, get, parts, put
from spanloom.settings.model import Model
from spanloom.settings.objectives import SpanCorruption
from spanloom.settings.optimizer import Adafactor, AdamW, AdamWRMS, Factors
from spanloom.settings.ranges import LARGEST_SEED, number_problems
from spanloom.settings.run import Loss, Run
from spanloom.settings.serialize import SettingsError
from spanloom.settings.task import PythonDocs, Task

pytestmark = pytest.mark.short

MODEL = Model(vocab_size=384, d_model=32, d_ff=64, num_heads=2, d_kv=16, num_encoder_layers=2, num_decoder_layers=2)
RUN = Run(name="a", task=Task("docs", PythonDocs()), model=MODEL)


def _numbers_of(run):
    fields = [name for name in all_fields() if _has(run, name)]
    return [name for name in fields if type(get(run, name)) in (int, float)]


def _has(run, name):
    try:
        get(run, name)
    except AttributeError:
        return False
    return True


def test_default_settings_of_every_kind_are_in_range():
    for part in parts():
        if "." not in part.path:
            for cls in part.kinds.values():
                run = RUN if part.path in ("task", "model") else put(RUN, part.path, cls())
                assert not list(number_problems(run))


@pytest.mark.parametrize("value", [nan, inf, -inf])
def test_no_number_may_be_nan_or_infinite(value):
    for kind in (Adafactor(), AdamW(), AdamWRMS()):
        run = replace(RUN, optimizer=kind, schedule=Factors())
        for name in _numbers_of(run):
            with pytest.raises(SettingsError, match=f"{name} is {value}: must be a finite number"):
                put(run, name, float(value)).resolve()


def test_no_integer_may_be_too_large_for_the_device():
    for name in _numbers_of(RUN):
        if type(get(RUN, name)) is int:
            with pytest.raises(SettingsError, match=f"{name} is {10**27}: must be at most"):
                put(RUN, name, 10**27).resolve()


def test_a_seed_beyond_32_bits_would_be_another_seed_again():
    assert not list(number_problems(replace(RUN, seed=LARGEST_SEED)))
    with pytest.raises(SettingsError, match="seed is 4294967296: must be at most 4294967295"):
        replace(RUN, seed=2**32).resolve()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"optimizer": Adafactor(decay_rate=0.0)}, "optimizer.decay_rate is 0.0: must be above 0"),
        ({"optimizer": Adafactor(clipping_threshold=-5.0)}, "optimizer.clipping_threshold is -5.0: must be above 0"),
        ({"optimizer": Adafactor(global_norm_clip=0.0)}, r"global_norm_clip is 0.0: must be above 0 \(None: no clip"),
        ({"optimizer": AdamW(global_norm_clip=0.0)}, "optimizer.global_norm_clip is 0.0: must be above 0"),
        ({"optimizer": Adafactor(beta1=1.0)}, "optimizer.beta1 is 1.0: must be at least 0 and below 1"),
        ({"optimizer": AdamW(beta2=1.5)}, "optimizer.beta2 is 1.5"),
        ({"optimizer": AdamW(weight_decay=-0.1)}, "optimizer.weight_decay is -0.1: must be 0 or more"),
        ({"loss": Loss(z_loss=-1.0)}, "loss.z_loss is -1.0: must be 0 or more"),
        ({"model": replace(MODEL, norm_epsilon=-1.0)}, "model.norm_epsilon is -1.0: must be above 0"),
    ],
)
def test_signs_and_shares(change, message):
    with pytest.raises(SettingsError, match=message):
        replace(RUN, **change).resolve()


def test_what_is_unset_is_in_range():
    unset = Adafactor(clipping_threshold=None, beta1=None, max_parameter_scale=None, global_norm_clip=None)
    assert not list(number_problems(replace(RUN, optimizer=unset)))


def test_one_message_a_number():
    task = replace(RUN.task, objective=SpanCorruption(mean_span_length=nan))
    assert list(number_problems(replace(RUN, task=task))) == [
        "task.objective.mean_span_length is nan: must be a finite number"
    ]


@pytest.mark.parametrize("value", [1e39, -1e300, 1e-40, 5e-324])
def test_floats_must_be_some_that_the_device_has(value):
    for kind in (Adafactor(), AdamW(), AdamWRMS()):
        run = replace(RUN, optimizer=kind, schedule=Factors())
        for name in _numbers_of(run):
            if type(get(run, name)) is float and not name.startswith("task."):
                with pytest.raises(SettingsError, match=re.escape(f"{name} is {value}: must be 0 or from 1.2e-38 to")):
                    put(run, name, value).resolve()


def test_a_decay_that_float32_rounds_to_1_is_refused():
    for name in ("beta1", "beta2"):
        with pytest.raises(SettingsError, match=f"optimizer.{name} is 0.999999999999: must be at least 0 and below 1"):
            replace(RUN, optimizer=replace(AdamW(), **{name: 0.999999999999})).resolve()
    replace(RUN, optimizer=AdamW(beta2=0.9999999)).resolve()
