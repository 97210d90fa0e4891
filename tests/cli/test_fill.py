import json
import re
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from spanloom.cli import fill, line_job
from spanloom.cli.main import main
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


class Filler:
    """Stands for a model: it fills every first mask with one, and every second with two."""

    vocabulary = VOCABULARY

    def write(self, requests, batch_size):
        return [[SimpleNamespace(tokens=answer("one", "two"))] for _ in requests]


@pytest.fixture
def loaded(monkeypatch):
    def load(checkpoint, which, mesh):
        return line_job.Source(Filler(), {"model": checkpoint, "fingerprint": checkpoint[0]}, True, 100)

    monkeypatch.setattr(line_job, "load", load)
    monkeypatch.setattr(line_job, "BLOCK", 3)


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
    ["my notes", "a line\n", '{"text": "a"}\n', '["a"]\n', '{"line": 1, "text": "b <mask>", "filled": ""}\nx'],
)
def test_a_file_that_is_no_output_stays_as_it_is(content, tmp_path, capfd):
    target = tmp_path / "notes.txt"
    target.write_text(content)
    argv = ["fill", "x", "--text", "b <mask>", "--output", str(target)]
    assert main(argv) == 1
    assert "does not say what made them" in capfd.readouterr().err
    note = {"model": "x", "fingerprint": "x", "max_length": 128}
    (tmp_path / "notes.txt.by.json").write_text(json.dumps(note))
    assert main(argv) == 1
    assert "is none that this command wrote" in capfd.readouterr().err
    assert target.read_text() == content


@pytest.mark.usefixtures("loaded")
def test_an_output_of_other_lines_is_not_continued(tmp_path, capfd):
    target = str(tmp_path / "out.jsonl")
    assert main(["fill", "x", "--text", "a <mask>", "b <mask>", "--output", target]) == 0
    assert main(["fill", "x", "--text", "a <mask>", "c <mask>", "d <mask>", "--output", target]) == 1
    assert "holds an answer to line 2, but the input has another line there" in capfd.readouterr().err
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
        (["y"], "was begun with model x, and this is y: go on with that, or name another --output"),
        (["x", "--max-length", "7"], "was begun with max_length 128, and this is 7: go on with that, or name another"),
    ]:
        assert main(["fill", *argv, *begin]) == 1
        assert said in capfd.readouterr().err
        assert target.read_bytes() == content
    assert main(["fill", "x copied", *begin]) == 0
    for damage in (b"", b"[]", b"\xff"):
        note.write_bytes(damage)
        assert main(["fill", "x", *begin]) == 1
        assert "does not say what made them" in capfd.readouterr().err
    target.unlink()
    assert main(["fill", "y", *begin]) == 0
    assert target.read_bytes() == content


@pytest.mark.usefixtures("loaded")
def test_what_does_not_fit_together(capfd):
    assert main(["fill", "x", "--text", "a", "--input", "b"]) == 2
    assert main(["fill", "x", "--input", "/nonexistent"]) == 1
    assert main(["fill", "x", "--max-length", "0", "--text", "a"]) == 2
    assert main(["fill", "x", "--txt", "a"]) == 2
    assert "did you mean --text" in capfd.readouterr().err


@pytest.mark.usefixtures("loaded")
def test_bad_lines_stop_the_command_or_are_kept_in_their_places(tmp_path, capfd):
    lines = [b"a <mask>", b"caf\xe9 <mask>", b"no masks", b'{"text": 3}', b'{"text": "<mask>", "id": 7}', b"{broken"]
    lines += [b'{"text": "<mask>", "n": ' + b"9" * 10_000 + b"}", b'{"text": "\\ud800 <mask>"}', b"b" * 100 + b"<mask>"]
    (tmp_path / "in").write_bytes(b"\n".join(lines))
    argv = ["fill", "x", "--input", str(tmp_path / "in")]
    assert main(argv) == 1
    assert "line 2: is not UTF-8 (\\udce9 after 'caf')" in capfd.readouterr().err
    assert main([*argv, "--errors", "keep"]) == 0
    found = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [one["line"] for one in found] == [*range(1, 10)]
    assert found[4] == {"line": 5, "text": "<mask>", "id": 7, "filled": "one", "spans": ["one"]}
    wrong = [one.get("error") for one in found if "filled" not in one]
    said = [
        "is not UTF-8",
        "no <mask>",
        'a field "text"',
        "begins like JSON",
        "thousands of digits",
        "half a character",
    ]
    assert len(wrong) == 7 and all(part in error for part, error in zip(said, wrong, strict=False))
    assert wrong[-1] == "has 102 tokens, and memory takes about 100; cut it"


@pytest.mark.parametrize(
    ("redirection", "said"),
    [(">&-", "standard output is closed.*--output"), ("<&-", "standard input is closed.*--input")],
)
def test_a_closed_stream_is_no_place_for_lines_nor_results(redirection, said, tmp_path):
    lines = "" if "<" in redirection else "--text 'a <mask>'"
    command = f"'{sys.executable}' -m spanloom.cli.main fill {tmp_path} {lines} {redirection}"
    done = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, text=True, timeout=300)
    assert done.returncode == 1 and re.search(said, done.stderr) and "Traceback" not in done.stderr


@pytest.mark.usefixtures("loaded")
def test_an_output_that_cannot_be_written_is_named_as_it_was_given(tmp_path, capfd):
    begin = ["fill", "x", "--text", "a <mask>", "--output"]
    assert main([*begin, f"{tmp_path}/no/x.jsonl"]) == 1
    said = capfd.readouterr().err
    assert f"{tmp_path}/no/x.jsonl: there is no folder {tmp_path}/no" in said and ".part" not in said


@pytest.mark.parametrize(("objective", "warned"), [(Supervised(), True), (SpanCorruption(), False)])
def test_a_model_of_pairs_is_said_to_be_no_span_filler(objective, warned):
    task = SimpleNamespace(name="sounds", objective=objective)
    said = fill._warning(SimpleNamespace(task=task, tasks=(task,)))
    assert said == "learned pairs of inputs and targets last (sounds), not to fill masked spans" * warned
    assert fill._warning(None) == ""


def test_an_empty_name_is_not_the_working_directory(capfd):
    assert main(["fill", "", "--text", "a <mask>"]) == 2
    assert main(["convert", "a", "", "--to", "hf"]) == 2
    assert capfd.readouterr().err.count("one name is empty") == 2
