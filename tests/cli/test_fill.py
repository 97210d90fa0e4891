import errno
import json
import re
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from spanloom.cli import fill
from spanloom.cli.main import main
from spanloom.settings.model import Model
from spanloom.settings.objectives import SpanCorruption, Supervised
from spanloom.settings.vocabulary import Bytes
from spanloom.vocabularies.build import build

pytestmark = pytest.mark.short

VOCABULARY = build(Bytes())


def answer(*spans):
    """Target tokens that put these texts after sentinels 0, 1, ..."""
    parts = []
    for index, text in enumerate(spans):
        parts += [[VOCABULARY.sentinels[index]], VOCABULARY.encode(text)]
    return np.concatenate([*parts, [VOCABULARY.eos_id], [0]]).astype(np.int32)


def predict(inputs):
    return [answer("one", "two")] * len(inputs)


@pytest.fixture
def loaded(monkeypatch):
    def load(checkpoint, which, max_length):
        made_by = {"model": checkpoint, "fingerprint": checkpoint[0], "max_length": max_length}
        return fill.Filler(predict, VOCABULARY, made_by, most_tokens=100)

    monkeypatch.setattr(fill, "_load", load)


@pytest.mark.usefixtures("loaded")
def test_the_command_continues_its_output(tmp_path, capsys):
    source, target = tmp_path / "in.txt", tmp_path / "out.jsonl"
    source.write_text("".join(f"{number} <mask>\n" for number in range(5)))
    argv = ["fill", "x", "--input", str(source), "--output", str(target)]
    assert main(argv) == 0
    whole = target.read_bytes()
    assert [json.loads(line)["filled"] for line in whole.splitlines()] == [f"{n} one" for n in range(5)]
    target.write_bytes(whole[: len(whole) // 2])
    assert main(argv) == 0
    assert target.read_bytes() == whole
    assert main(argv) == 0
    assert target.read_bytes() == whole
    assert main(["fill", "x", "--text", "a <mask>", "b <mask>"]) == 0
    assert [json.loads(line)["filled"] for line in capsys.readouterr().out.splitlines()] == ["a one", "b one"]
    assert main(["fill", "x", "<1> <2>", "<2>", "--text", "c <mask>"]) == 0
    assert [json.loads(line)["filled"] for line in capsys.readouterr().out.splitlines()] == ["one two", "two", "c one"]


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize(
    "content",
    ["my notes", "a line\n", '{"text": "a"}\n', '["a"]\n', '{"text": "b <mask>", "filled": ""}\nx'],
)
def test_a_file_that_is_no_output_stays_as_it_is(content, tmp_path, capfd):
    target = tmp_path / "notes.txt"
    target.write_text(content)
    assert main(["fill", "x", "--text", "b <mask>", "--output", str(target)]) == 1
    assert "is none that `spanloom fill` wrote" in capfd.readouterr().err
    assert target.read_text() == content


@pytest.mark.usefixtures("loaded")
def test_an_output_of_other_lines_is_not_continued(tmp_path, capfd):
    target = str(tmp_path / "out.jsonl")
    assert main(["fill", "x", "--text", "a <mask>", "b <mask>", "--output", target]) == 0
    assert main(["fill", "x", "--text", "a <mask>", "c <mask>", "d <mask>", "--output", target]) == 1
    assert "line 2 was filled for 'b <mask>', but the input has another text there" in capfd.readouterr().err
    assert main(["fill", "x", "--text", "a <mask>", "--output", target]) == 1
    assert "but the input ends before that" in capfd.readouterr().err
    assert main(["fill", "x", "--text", "a <mask>", "b <mask>", "c <mask>", "--output", target]) == 0
    assert "2 lines were there already" in capfd.readouterr().err
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 3


@pytest.mark.usefixtures("loaded")
def test_an_output_is_continued_by_what_began_it_alone(tmp_path, capfd):
    """Models are told apart by their content: the same one read from elsewhere goes on."""
    target = tmp_path / "out.jsonl"
    begin = ["--text", "a <mask>", "--output", str(target)]
    assert main(["fill", "x", *begin]) == 0
    content, note = target.read_bytes(), tmp_path / "out.jsonl.by.json"
    for argv, said in [
        (["y"], "was begun with the model x, which is not y: use that, or name another --output"),
        (["x", "--max-length", "7"], "was begun with --max-length 128: go on with that, or name another --output"),
    ]:
        assert main(["fill", *argv, *begin]) == 1
        assert said in capfd.readouterr().err
        assert target.read_bytes() == content
    assert main(["fill", "x copied", *begin]) == 0
    for damage in (b"", b"[]", b"{}", b"\xff"):
        note.write_bytes(damage)
        assert main(["fill", "x", *begin]) == 1
        assert "does not say what made them" in capfd.readouterr().err
    target.unlink()
    assert main(["fill", "y", *begin]) == 0
    assert target.read_bytes() == content


@pytest.mark.usefixtures("loaded")
def test_what_does_not_fit_together(capfd):
    assert main(["fill", "x", "--text", "a", "--input", "b"]) == 1
    assert main(["fill", "x", "--input", "/nonexistent"]) == 1
    assert main(["fill", "x", "--max-length", "0", "--text", "a"]) == 1
    assert main(["fill", "x", "--txt", "a"]) == 2
    assert "did you mean --text" in capfd.readouterr().err


def test_a_file_that_is_no_utf8_is_refused_by_line(tmp_path, loaded, capfd):
    (tmp_path / "in").write_bytes(b"a <mask>\ncaf\xe9 <mask>\n")
    assert main(["fill", "x", "--input", str(tmp_path / "in")]) == 1
    assert "line 2: is not UTF-8 text" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("redirection", "said"),
    [(">&-", "standard output is closed.*--output"), ("<&-", "standard input is closed.*--text")],
)
def test_a_closed_stream_is_no_place_for_lines_nor_results(redirection, said, tmp_path):
    lines = "" if "<" in redirection else "--text 'a <mask>'"
    command = f"'{sys.executable}' -m spanloom.cli.main fill {tmp_path} {lines} {redirection}"
    done = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, text=True, timeout=300)
    assert done.returncode == 1 and re.search(said, done.stderr) and "Traceback" not in done.stderr


@pytest.mark.usefixtures("loaded")
def test_an_output_that_cannot_be_written_is_named_as_it_was_given(tmp_path, monkeypatch, capfd):
    begin = ["fill", "x", "--text", "a <mask>", "--output"]
    assert main([*begin, f"{tmp_path}/no/x.jsonl"]) == 1
    said = capfd.readouterr().err
    assert f"{tmp_path}/no/x.jsonl: there is no folder {tmp_path}/no" in said and ".part" not in said

    def refuse(*_):
        raise PermissionError(errno.EACCES, "Permission denied", "x.jsonl.by.json.part")

    monkeypatch.setattr(fill, "write_file", refuse)
    assert main([*begin, f"{tmp_path}/x.jsonl"]) == 1
    said = capfd.readouterr().err
    assert f"{tmp_path}/x.jsonl: nothing can be written beside it (Permission denied)" in said and ".part" not in said


@pytest.mark.usefixtures("loaded")
def test_a_line_that_memory_does_not_take_is_named(capfd):
    assert main(["fill", "x", "--text", "a <mask>", "b" * 100 + "<mask>"]) == 1
    assert "line 2: has 102 tokens, and memory takes about 100" in capfd.readouterr().err


@pytest.mark.parametrize(("objective", "warned"), [(Supervised(), True), (SpanCorruption(), False)])
def test_a_model_of_pairs_is_said_to_be_no_span_filler(objective, warned, monkeypatch):
    task = SimpleNamespace(name="sounds", objective=objective)
    run = SimpleNamespace(task=task, tasks=(task,))
    source = SimpleNamespace(
        model=Model(vocab_size=384, d_model=8, d_ff=8, num_heads=1, d_kv=8, num_encoder_layers=1, num_decoder_layers=1),
        params=None,
        vocabulary=Bytes(),
        lineage=SimpleNamespace(origin="x", run=run),
        fingerprint=lambda: "x",
    )
    monkeypatch.setattr("spanloom.training.read_model.read_model", lambda path, which: source)
    filler = fill._load("x", "last", 8)
    assert filler.warning == ("x learned pairs of inputs and targets last (sounds), not to fill masked spans" * warned)
    assert filler.most_tokens is not None and filler.most_tokens > 1000


def test_an_empty_name_is_not_the_working_directory(capfd):
    assert main(["fill", "", "--text", "a <mask>"]) == 2
    assert main(["convert", "a", "", "--to", "hf"]) == 2
    assert capfd.readouterr().err.count("one name is empty") == 2
