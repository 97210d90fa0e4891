import dataclasses
import json

import pytest

from spanloom.settings.model import Model
from spanloom.settings.objectives import Supervised
from spanloom.settings.optimizer import (
    WSD,
    AdamW,
    AdamWRMS,
    Constant,
    Cosine,
    Factors,
    Linear,
    Lion,
    Muon,
    ScheduleFree,
)
from spanloom.settings.run import Loss, Run
from spanloom.settings.serialize import SettingsError, from_json, to_json
from spanloom.settings.task import PairFiles, PythonDocs, Task, TextFiles
from spanloom.settings.vocabulary import Bytes, SentencePiece
from spanloom.settings.weights import Weights

pytestmark = pytest.mark.short

MODEL = Model(vocab_size=384, d_model=32, d_ff=64, num_heads=2, d_kv=16, num_encoder_layers=2, num_decoder_layers=2)
PLAIN = Run(name="a", task=Task("docs", PythonDocs()), model=MODEL)
TEXT = Task("t", TextFiles(files=("a/*.txt", "b.jsonl"), errors="skip"), SentencePiece("x.model", "appended"))
PAIRS = Task("p", PairFiles(files=("a.tsv",), inputs="0"), Bytes("google"), Supervised(None, 32, "trim"))
RUNS = [
    PLAIN,
    Run("b", TEXT, MODEL, AdamW(learning_rate=1 / 3), Cosine(decay_steps=7), Loss(normalizer=123.5), seed=2**62),
    Run("c", PAIRS, MODEL, AdamWRMS(), WSD(), Loss(normalizer="sequences"), start="x", out="y"),
    Run("d", PAIRS, MODEL, AdamWRMS(global_norm_clip=None), Linear(), steps=0),
    Run("e", TEXT, dataclasses.replace(MODEL, activations=("relu",)), schedule=Factors("constant * rsqrt_decay")),
    Run("f", TEXT, MODEL, schedule=Constant(3)),
    Run("g", TEXT, MODEL, Lion(decayed=("all", "!*scale")), weights=Weights("bfloat16", "kahan", 0.999)),
    Run("h", TEXT, MODEL, Muon(), weights=Weights(ema_decay=0.5)),
    Run("i", TEXT, MODEL, ScheduleFree(decayed=()), Constant(3)),
]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_round_trip_through_text_is_exact(run):
    text = json.dumps(to_json(run))
    again = from_json(json.loads(text))
    assert again == run
    assert json.dumps(to_json(again)) == text


def test_parts_are_tagged_by_class():
    data = to_json(RUNS[1])
    assert data["class"] == "Run"
    assert data["optimizer"]["class"] == "AdamW"
    assert from_json(data["task"], Task) == TEXT


def test_an_absent_field_takes_its_default():
    data = to_json(PLAIN)
    del data["seed"], data["loss"]["z_loss"]
    assert from_json(data) == PLAIN


def broken(path, value):
    data = to_json(PLAIN)
    *parents, last = path.split(".")
    part = data
    for name in parents:
        part = part[name]
    if value is KeyError:
        del part[last]
    else:
        part[last] = value
    return data


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (
            "optimizer.learning_rat",
            1.0,
            r"optimizer.learning_rat: Adafactor has no such field; did you mean learning_rate",
        ),
        ("optimizer.class", "AdamWRSM", r"optimizer: unknown class 'AdamWRSM'; did you mean AdamWRMS"),
        ("task.source.class", KeyError, r"task.source: the 'class' key is missing"),
        ("model.d_model", KeyError, r"model.d_model: missing"),
        ("model.d_model", "32", r"model.d_model: must be int, not '32'"),
        ("model.d_model", True, r"model.d_model: must be int, not True"),
        (
            "model.dtype",
            "float16",
            r"model.dtype: must be one of float32, bfloat16 \(float16 holds nothing above 65,504",
        ),
        ("weights.dtype", "float16", r"weights.dtype: must be one of float32, bfloat16 \(float16 holds nothing"),
        ("weights.dtype", "float64", r"weights.dtype: must be one of float32, bfloat16, not"),
        ("model.activations", "relu", r"model.activations: must be a list"),
        ("model.activations", ["rleu"], r"model.activations\[0\]: must be one of"),
        ("loss.normalizer", "tokens", r"loss.normalizer: must be one of"),
        ("task.source", "docs", r"task.source: must be an object"),
        ("steps", 1.5, r"steps: must be int"),
        ("out", 3, r"out: must be str"),
    ],
)
def test_reading_is_strict(path, value, message):
    with pytest.raises(SettingsError, match=message):
        from_json(broken(path, value))


def test_only_plain_data_is_written():
    with pytest.raises(SettingsError, match="plain data only"):
        to_json(dataclasses.replace(PLAIN, name=object()))
