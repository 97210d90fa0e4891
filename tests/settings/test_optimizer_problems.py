from dataclasses import replace

import pytest

from spanloom.cli.errors import UsageError
from spanloom.cli.parsing import check_values
from spanloom.cli.tokens import Flag
from spanloom.settings.model import Model
from spanloom.settings.optimizer import Adafactor, Constant, Cosine, Factors, Lion, Muon, Rsqrt, ScheduleFree
from spanloom.settings.run import Logging, Run
from spanloom.settings.serialize import SettingsError
from spanloom.settings.task import PythonDocs, Task
from spanloom.settings.weights import Weights, dtype_problem

pytestmark = pytest.mark.short

MODEL = Model(vocab_size=384, d_model=32, d_ff=64, num_heads=2, d_kv=16, num_encoder_layers=2, num_decoder_layers=2)
RUN = Run(name="a", task=Task("docs", PythonDocs()), model=MODEL)
FREE = replace(RUN, optimizer=ScheduleFree(), schedule=Constant(10))
FLOAT16 = (
    r"must be float32 or bfloat16 \(float16 holds nothing above 65,504 nor, at its full precision, below 6e-5, and"
)


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (replace(RUN, model=replace(MODEL, dtype="float16")), "model.dtype is 'float16': " + FLOAT16),
        (replace(RUN, weights=Weights(dtype="fp16")), "weights.dtype is 'fp16': " + FLOAT16),
        (replace(RUN, weights=Weights(dtype="float64")), "weights.dtype is 'float64': must be float32 or bfloat16$"),
        (replace(RUN, weights=Weights(rounding="up")), "weights.rounding is 'up': must be stochastic or kahan"),
        (replace(RUN, weights=Weights(rounding="kahan")), "is for bfloat16 weights, and weights.dtype is float32"),
        (replace(RUN, weights=Weights(ema_decay=1.0)), "weights.ema_decay is 1.0: must be at least 0 and below 1"),
        (replace(RUN, weights=Weights(ema_decay=1 - 1e-12)), "weights.ema_decay is .*at most 0.9999999"),
        (replace(RUN, log=Logging(parameters=-1)), "log.parameters is -1: must be 0 or more"),
        (replace(RUN, optimizer=Muon(momentum=1.0)), "optimizer.momentum is 1.0: must be at least 0 and below 1"),
        (replace(RUN, optimizer=Muon(update_rms=0.0)), "optimizer.update_rms is 0.0: must be above 0"),
        (replace(RUN, optimizer=Muon(newton_schulz_steps=0)), "optimizer.newton_schulz_steps is 0: must be above 0"),
        (replace(RUN, optimizer=Muon(newton_schulz_steps=21)), "newton_schulz_steps is 21: must be at most 20"),
        (replace(RUN, optimizer=Lion(weight_decay=-1.0)), "optimizer.weight_decay is -1.0: must be 0 or more"),
        (replace(FREE, schedule=Rsqrt()), r"Rsqrt lowers the learning rate.*give --schedule constant \(with"),
        (replace(FREE, schedule=Cosine()), "Cosine lowers the learning rate"),
        (replace(FREE, optimizer=ScheduleFree(beta1=0.0)), "optimizer.beta1 is 0.0: schedule-free needs more than 0"),
        (replace(FREE, weights=Weights(ema_decay=0.9)), "ema_decay is set, and .* averaged weights of its own"),
        (replace(FREE, weights=Weights("bfloat16")), "roundings would pile up: keep them float32"),
    ],
)
def test_contradictions_are_refused_with_the_fix(run, message):
    with pytest.raises(SettingsError, match=message):
        run.resolve()


@pytest.mark.parametrize(
    "run",
    [
        RUN,
        FREE,
        replace(FREE, schedule=Factors("constant * linear_warmup")),
        replace(RUN, optimizer=Adafactor(weight_decay=0.1, decayed=("matrices",)), weights=Weights("bfloat16")),
        replace(RUN, weights=Weights("bfloat16", "kahan", 0.0), log=Logging(parameters=100)),
    ],
)
def test_what_is_fine_passes(run):
    run.resolve()


def test_a_flag_says_why_not_float16():
    with pytest.raises(
        UsageError, match=r"--weights\.dtype 'float16': must be one of float32, bfloat16 \(float16 holds"
    ):
        check_values([Flag("--weights.dtype", "weights.dtype", ("float16",))], {"weights.dtype": _hint()})
    with pytest.raises(UsageError, match=r"must be one of float32, bfloat16 \(did you mean bfloat16\?\)"):
        check_values([Flag("--weights.dtype", "weights.dtype", ("bfloat",))], {"weights.dtype": _hint()})


def _hint():
    from typing import get_type_hints

    return get_type_hints(Weights)["dtype"]


def test_the_reason_is_for_float16_alone():
    assert dtype_problem("a", "float32") is None and dtype_problem("a", "bfloat16") is None
    assert "65,504" in str(dtype_problem("a", "half")) and "65,504" not in str(dtype_problem("a", "int8"))
