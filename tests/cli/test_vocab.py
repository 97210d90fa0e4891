"""The vocab commands, as they are called."""

import gzip
import json
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import pytest
from vocabulary_models import sentences, write_model

from spanloom.cli.main import main
from spanloom.conversion.convert import convert_to_hf
from spanloom.conversion.trained_model import Lineage, TrainedModel
from spanloom.model.params import declare, initialize
from spanloom.model.sizes import named
from spanloom.settings.vocabulary import Bytes, SentencePiece
from spanloom.vocabularies.build import build


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lines.txt").write_text("\n".join(sentences(600)), encoding="utf-8")
    with gzip.open(tmp_path / "rows.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps({"body": f"a {line}\n\tb  c"}) + "\n" for line in sentences(50, seed=1))
    return tmp_path


def run(capsys, *argv):
    code = main(["vocab", *argv])
    read = capsys.readouterr()
    return code, read.out, read.err


@pytest.mark.short
def test_a_file_that_comes_into_the_place_while_pieces_are_learnt_stays(corpus, capsys, monkeypatch):
    def train(texts, training):
        Path("a.model").write_text("theirs")
        return SimpleNamespace(model=b"ours")

    monkeypatch.setattr("spanloom.vocabularies.train.train", train)
    code, _, err = run(capsys, "train", "--text", "*.txt", "--size", "420", "--out", "a.model")
    assert code == 1 and "--overwrite" in err and Path("a.model").read_text() == "theirs"


@pytest.mark.short
def test_train_then_check(corpus, capsys):
    train = ("train", "--text", "*.txt", "--size", "420", "--out")
    code, out, _ = run(capsys, *train, "a.model")
    assert code == 0
    assert "600 documents" in out and "learnt from 600 lines" in out
    assert "520 ids, 420 pieces and 100 sentinels, <extra_id_0> is 519" in out
    assert "--model.vocab-size 640" in out
    assert build(SentencePiece("a.model")).sentinels[0] == 519
    code, _, err = run(capsys, *train, "a.model")
    assert code == 1 and "--overwrite" in err
    assert run(capsys, *train, "folder/deep")[0] == 0
    assert Path("folder/deep/spiece.model").read_bytes() == Path("a.model").read_bytes()
    code, out, _ = run(capsys, "check", "a.model", "--text", "rows.jsonl.gz", "again=rows.jsonl.gz", "--field", "body")
    assert code == 0
    assert "100, descending: <extra_id_0> 519" in out
    assert "rows   " in out and "again   " in out
    assert "warning: rows: 50 of 50 are lost, newline; train one with --whitespace keep" in out
    assert run(capsys, "check", "a.model", "--text", "rows.jsonl.gz", "--field", "body", "--strict")[0] == 1
    code, out, _ = run(capsys, "check", "bytes", "--text", "rows.jsonl.gz", "--field", "body", "--strict", "--json")
    found = json.loads(out)
    assert code == 0 and found["warnings"] == [] and found["sentinels"]["order"] == "ascending"
    assert found["texts"][0]["bytes_a_token"] == 1.0 and found["texts"][0]["changed_texts"] == 0


@pytest.mark.short
def test_check_knows_what_checkpoints_have(corpus, capsys):
    code, out, _ = run(capsys, "check", "byt5_small")
    assert code == 0 and "384 in 384 rows" in out and "--text FILES" in out
    code, _, err = run(capsys, "check", "mt5_small")
    assert code == 1 and "SentencePiece file, which is not here" in err
    code, _, err = run(capsys, "check", "nothing")
    assert code == 1 and "does not exist" in err
    code, _, err = run(capsys, "check", "lines.txt")
    assert code == 1 and "is not a SentencePiece model" in err


@pytest.mark.short
def test_check_takes_folders_that_convert_wrote(corpus, capsys):
    model = named("byt5_tiny")
    params = initialize(declare(model), jax.random.key(0))
    convert_to_hf(TrainedModel(model, params, Bytes(), Lineage("test")), Path("hf"))
    assert main(["convert", "hf", "own", "--to", "spanloom"]) == 0
    for folder, kind in (("hf", "a Hugging Face folder"), ("own", "a model converted by Spanloom")):
        code, out, _ = run(capsys, "check", folder)
        assert code == 0 and "384 in 384 rows" in out and kind in out


@pytest.mark.short
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"\n\n \n", "no document"),
        (b"fox \xff\xfe fox\n" * 9, "not UTF-8|UTF-8"),
        (gzip.compress(b"the quick fox\n" * 4000, mtime=0)[:60], "truncated|cut|end"),
    ],
)
def test_bad_text_is_named_and_nothing_written(content, words, corpus, capsys):
    name = "bad.txt.gz" if content[:2] == b"\x1f\x8b" else "bad.txt"
    Path(name).write_bytes(content)
    code, _, err = run(capsys, "train", "--text", "lines.txt", name, "--size", "420", "--out", "a.model")
    if code == 0:  # nothing but blanks is no error beside other text
        assert content.strip() == b""
        Path("a.model").unlink()
        code, _, err = run(capsys, "train", "--text", name, "--size", "420", "--out", "a.model")
    assert code == 1
    assert name in err
    assert not [path for path in corpus.iterdir() if "a.model" in path.name]


@pytest.mark.short
def test_flags_that_cannot_be(corpus, capsys):
    assert "largest possible" in run(capsys, "train", "--text", "*.txt", "--size", "90000", "--out", "x.model")[2]
    assert "usage" in run(capsys)[1]
    assert "did you mean train or trim?" in run(capsys, "trian")[2]
    assert "give one of --keep" in run(capsys, "trim", "a", "b", "--text", "*.txt")[2]
    assert "--multiple 0" in run(capsys, "trim", "a", "b", "--text", "*.txt", "--keep", "9", "--multiple", "0")[2]
    assert "'=x'" in run(capsys, "check", "bytes", "--text", "=x")[2]
    Path("folder.model").mkdir()
    assert "is a folder" in run(capsys, "train", "--text", "*.txt", "--size", "420", "--out", "folder.model")[2]
    assert not Path("x.model").exists()


def test_a_place_that_cannot_be_written_is_said_before_the_learning(corpus, capsys, monkeypatch):
    monkeypatch.setattr("spanloom.vocabularies.train.train", lambda *_: pytest.fail("learns"))
    assert "lines.txt: " in run(capsys, "train", "--text", "*.txt", "--size", "420", "--out", "lines.txt/a.model")[2]
    monkeypatch.setattr("os.access", lambda *_: False)
    assert "nothing can be written" in run(capsys, "train", "--text", "*.txt", "--size", "420", "--out", "a.model")[2]


INTERRUPTED = """
import ctypes, os, signal, sys
import sentencepiece
from spanloom.cli.main import main

def learning(**settings):
    os.kill(os.getpid(), signal.SIGINT)
    ctypes.PyDLL(None).sleep(60)  # as the library: without a look at signals, and Python holds still

sentencepiece.SentencePieceTrainer.train = learning
sys.exit(main(sys.argv[1:]))
"""


def test_ctrl_c_ends_the_learning_and_leaves_nothing(corpus):
    words = ["vocab", "train", "--text", "lines.txt", "--size", "420", "--out", "a.model"]
    done = subprocess.run([sys.executable, "-c", INTERRUPTED, *words], timeout=50, check=False)
    assert done.returncode == -signal.SIGINT
    assert not list(corpus.glob("*a.model*"))


@pytest.mark.long
def test_a_run_moves_to_a_trimmed_and_to_a_new_vocabulary(corpus, capsys):
    """From text to a model, to a smaller one of the same pieces, and on with a vocabulary of its own."""
    write_model(corpus / "first.model", size=420, sentinels=100, byte_fallback=True)
    common = [
        "--text",
        "lines.txt",
        "--steps",
        "2",
        "--batch-size",
        "2",
        "--inputs-length",
        "32",
        "--eval.max-batches",
        "1",
    ]
    quiet = ["--after.fills", "0", "--after.export", "false", "--after.baselines", "false", "--checkpoint.every", "2"]
    size = ["--model", "t5_1_1_tiny", "--model.vocab-size", "640"]
    assert main(["pretrain", *common, *quiet, *size, "--vocabulary", "first.model", "--out", "runs/a"]) == 0
    assert run(capsys, "trim", "runs/a", "small", "--text", "lines.txt", "--coverage", "0.9")[0] == 0
    assert Path("small/kept_pieces.tsv").read_text().startswith("old_id\tnew_id\tpiece\tcount\n0\t0\t<pad>")
    assert run(capsys, "train", "--text", "lines.txt", "--size", "300", "--out", "new.model")[0] == 0
    onwards = ["pretrain", *common, *quiet, "--start", "small", "--vocabulary", "new.model", "--out", "runs/b"]
    assert main(onwards) == 1
    assert "--follow.vocabulary by_piece to have its rows moved" in capsys.readouterr().err
    assert main([*onwards, "--follow.vocabulary", "by_piece"]) == 0
    out = capsys.readouterr()
    assert "400 rows of the new vocabulary" in out.out + out.err
    code, out, _ = run(capsys, "check", "runs/b")
    assert code == 0 and "400 in 512 rows" in out
