import csv
import dataclasses
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from golden_data import shared_dir
from vocabulary_models import sentences, write_model

from spanloom.conversion.convert import ParityError, model_from_hf
from spanloom.conversion.errors import ConversionError
from spanloom.conversion.surgery import EMBEDDING
from spanloom.conversion.trained_model import Lineage, TrainedModel
from spanloom.conversion.trim import TABLE, logits, trim_to_hf
from spanloom.model.params import declare, flatten, initialize
from spanloom.settings.model import Model
from spanloom.settings.vocabulary import Bytes, SentencePiece
from spanloom.vocabularies.build import build
from spanloom.vocabularies.trim import Choice

TINY = Model(vocab_size=512, d_model=8, d_ff=8, num_heads=1, d_kv=8, num_encoder_layers=1, num_decoder_layers=1)
LINES = [line for line in sentences(120) if "wizards" not in line and "harbour" not in line]


def source(path, model=TINY):
    params = initialize(declare(model), jax.random.key(2))
    return TrainedModel(model, params, SentencePiece(str(path)), Lineage("tiny"))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return source(write_model(tmp_path_factory.mktemp("model") / "spiece.model", size=340, byte_fallback=False))


def texts():
    yield from (("a", line) for line in LINES)
    yield from (("b", line) for line in ("harbour wizards", "the fox"))


def test_a_trimmed_model_says_the_same_of_what_is_kept(tiny, tmp_path):
    report = trim_to_hf(tiny, texts, Choice(coverage=0.95), tmp_path / "out")
    read = model_from_hf(tmp_path / "out")
    old, new = build(tiny.vocabulary), build(read.vocabulary)
    assert report.ids == (350, new.size) and new.size < 330
    assert report.rows == (512, read.model.vocab_size) and read.model.vocab_size % 128 == 0
    assert report.tokens["a"].texts == len(LINES) and 0 < report.tokens["a"].same < len(LINES)
    assert report.tokens["a"].after > report.tokens["a"].before
    assert f"{new.size} copied by piece" in (tmp_path / "out" / "README.md").read_text(), "the card says it"
    assert report.compared > 20 and report.difference < 1e-5
    with (tmp_path / "out" / TABLE).open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    assert [int(row["new_id"]) for row in rows] == list(range(new.size))
    old_ids = np.array([int(row["old_id"]) for row in rows])
    before, after = flatten(tiny.params)[EMBEDDING], flatten(read.params)[EMBEDDING]
    assert np.array_equal(after[: new.size], np.asarray(before)[old_ids])
    where = {old_id: new_id for new_id, old_id in enumerate(old_ids.tolist())}
    line = next(line for line in LINES if set(old.encode(line).tolist()) <= where.keys())
    ids = old.encode(line)[None]
    assert [where[token] for token in ids[0].tolist()] == new.encode(line).tolist()
    wanted, found = (
        logits(
            one.model,
            one.params,
            dict.fromkeys(("encoder_input_tokens", "decoder_target_tokens"), row) | {"decoder_input_tokens": row},
        )
        for one, row in ((tiny, ids), (read, new.encode(line)[None]))
    )
    np.testing.assert_allclose(found[..., : new.size], wanted[..., old_ids], atol=1e-5)
    assert re.search(r"a: [\d,]+ tokens became [\d,]+ \(\+", report.describe())


def test_all_that_the_text_uses_is_cut_as_before(tiny, tmp_path):
    report = trim_to_hf(tiny, texts, Choice(coverage=1.0), tmp_path / "out", multiple=1)
    assert {name: (count.same, count.after - count.before) for name, count in report.tokens.items()} == {
        "a": (len(LINES), 0),
        "b": (2, 0),
    }
    assert report.rows[1] == report.ids[1]


def test_what_has_no_pieces_is_refused(tiny, tmp_path):
    with pytest.raises(ConversionError, match="vocabulary of bytes"):
        trim_to_hf(dataclasses.replace(tiny, vocabulary=Bytes()), texts, Choice(keep=300), tmp_path / "out")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "letter.txt").write_text("mine")
    with pytest.raises(ConversionError, match="not an earlier export"):
        trim_to_hf(tiny, texts, Choice(coverage=1.0), tmp_path / "taken")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


@pytest.mark.parametrize("place", ["notes", "run", "source", "another model", "read-only", "in a file"])
def test_a_place_that_cannot_be_written_is_said_before_any_text_is_read(tiny, tmp_path, place, monkeypatch):
    out, source = tmp_path / "out", dataclasses.replace(tiny, folder=tmp_path / "out" if place == "source" else None)
    out.mkdir()
    names = {"notes": "notes", "run": "run.json", "another model": "spanloom.json"}
    (out / names.get(place, "spanloom.json")).write_text("{}")
    if place == "read-only":
        monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)
    if place == "in a file":
        out /= "spanloom.json/deep/out"
    with pytest.raises(ConversionError):
        trim_to_hf(source, lambda: pytest.fail("text was read"), Choice(coverage=0.95), out)


TRIMMED = """
import os, sys
from pathlib import Path
from conversion.test_trim import Choice, source, texts, trim_to_hf
from spanloom.conversion import trim

path, out, number = sys.argv[1:]
trim.correspond = lambda *_: os.kill(os.getpid(), int(number))
trim_to_hf(source(path), texts, Choice(coverage=0.95), out)
"""


def test_sigterm_leaves_nothing_behind_and_a_kill_nothing_that_the_next_command_does_not_remove(tiny, tmp_path):
    """Neither beside the folder nor among the system's temporary ones."""
    temporary, beside = tmp_path / "temporary", tmp_path / "beside"
    temporary.mkdir()
    beside.mkdir()
    for number in (signal.SIGTERM, signal.SIGKILL):
        words = [sys.executable, "-c", TRIMMED, tiny.vocabulary.path, str(beside / "out"), str(int(number))]
        done = subprocess.run(words, env={**os.environ, "TMPDIR": str(temporary)}, cwd=Path(__file__).parent.parent)
        assert done.returncode == (143 if number == signal.SIGTERM else -number)
        assert not list(temporary.iterdir())
        assert len(list(beside.iterdir())) == (number == signal.SIGKILL)
    trim_to_hf(tiny, texts, Choice(coverage=0.95), beside / "out")
    assert [path.name for path in beside.iterdir()] == ["out"]


def test_another_segmentation_or_other_logits_leave_nothing_behind(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr("spanloom.conversion.trim.TOLERANCE", -1.0)
    with pytest.raises(ParityError, match="logits of kept pieces differ"):
        trim_to_hf(tiny, texts, Choice(coverage=1.0), tmp_path / "out")
    assert not list(tmp_path.iterdir())


@pytest.mark.parity
def test_transformers_loads_it_with_our_ids_and_logits(tmp_path, hugging_face):
    """Of T5's vocabulary, whose sentinels are in no file, on German."""
    model = dataclasses.replace(TINY, vocab_size=32_128)
    t5 = source(shared_dir("data", "tokenizers", "t5") / "spiece.model", model)
    lines = ["Der Nebel hob sich erst, als die Fähre draußen war.", "Über dem Wasser wurde es hell.", "Wasser; Über"]
    trim_to_hf(t5, lambda: (("de", line) for line in lines), Choice(coverage=1.0), tmp_path / "out")
    read = model_from_hf(tmp_path / "out")
    vocabulary = build(read.vocabulary)
    assert vocabulary.size < 200
    ids = vocabulary.encode(lines[0])[None]
    batch = {"encoder_input_tokens": ids, "decoder_target_tokens": ids, "decoder_input_tokens": np.roll(ids, 1, 1)}
    cases = {"t5": {"folder": str(tmp_path / "out"), "texts": [*lines, "Nebel <extra_id_0> hell"]}}
    report, found = hugging_face(tmp_path, cases, {"t5": batch})
    assert report["t5"]["ids"] == [[*vocabulary.encode(text).tolist(), 1] for text in cases["t5"]["texts"]]
    np.testing.assert_allclose(found["t5"]["logits"], logits(read.model, read.params, batch), atol=1e-4)
