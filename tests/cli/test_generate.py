import io
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from tiny_model import TINY

from spanloom.cli import line_job
from spanloom.cli.main import main
from spanloom.evaluation.loaded import Generated, Text
from spanloom.evaluation.scoring import Score
from spanloom.pipeline.durable import locked
from spanloom.settings.mesh import Mesh
from spanloom.settings.vocabulary import Bytes
from spanloom.vocabularies.build import build

pytestmark = pytest.mark.short


class Echo:
    """Stands for a model: it writes its input backwards, and scores a target by its length."""

    vocabulary = build(Bytes())

    model = TINY
    available = 10**9

    def __init__(self):
        self.asked = []

    def encode(self, text, *, eos=True):
        return np.append(self.vocabulary.encode(text), [1]) if eos else self.vocabulary.encode(text)

    def write(self, requests, batch_size):
        self.asked += requests
        return [[request.inputs[:-1][::-1]] * request.settings.outputs for request in requests]

    def as_text(self, outputs):
        return Generated(tuple(Text(self.vocabulary.decode(ids), ids, -1.0, -2.0) for ids in outputs))

    def score_ids(self, pairs, batch_size):
        self.asked += pairs
        return [Score((-1.0,) * len(target)) for _, target in pairs]


@pytest.fixture
def echo(monkeypatch):
    model = Echo()

    def load(checkpoint, which, mesh):
        model.mesh = mesh
        return line_job.Source(model, {"model": checkpoint, "fingerprint": checkpoint[0]}, True, 100)

    monkeypatch.setattr(line_job, "load", load)
    monkeypatch.setattr(line_job, "BLOCK", 3)
    return model


@pytest.fixture
def lines(tmp_path):
    path = tmp_path / "in.txt"
    path.write_text("".join(f"line {number}\n" for number in range(1, 11)), encoding="utf-8")
    return path


class Command(NamedTuple):
    """One that answers lines, and what is to be known of it."""

    argv: list[str]
    """Without input."""
    questions: int
    """What each line asks the model."""
    fourth: dict[str, Any]
    """What is answered to line 4."""
    good: str
    bad: dict[str, str]
    """Lines, and what is said to them."""

    def lines(self, path: Path) -> Path:
        """Ten of them, such as either command answers."""
        rows = ({"inputs": f"line {number}", "targets": ["a" * number, "b"]} for number in range(1, 11))
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return path


NO_LINES = {
    '{"inputs"': "begins like JSON, but is not",
    '{"inputs": "\\ud800"}': "holds half a character",
    "": "is empty",
    "caf\udce9": "is not UTF-8",
}
COMMANDS = {
    "generate": Command(
        ["generate", "x", "--beams", "2", "--outputs", "2", "--input"],
        1,
        {"outputs": [{"text": "4 enil", "score": -1.0, "log_prob": -2.0}] * 2},
        '{"inputs": "a", "id": 7}',
        {
            '{"inputs": 3}': 'needs a field "inputs" that holds a string',
            '{"inputs": "a", "settings": {"beam": 2}}': "there is no setting 'beam'",
            '{"inputs": "a", "settings": {"max_length": "many"}}': "",
            '{"inputs": "a", "settings": {"beams": 1000000}}': "beams is 1,000,000, and memory takes about 693 of",
            '{"inputs": "a", "settings": {"beams": 1, "temperature": 1, "outputs": 99999}}': "outputs is 99,999, and",
            '{"inputs": "a", "choices": "b"}': '"choices" must be a list',
            '{"inputs": "a", "choices": []}': '"choices" is empty',
            "x" * 200: "has 201 tokens, and memory takes about 100",
            **NO_LINES,
        },
    ),
    "score": Command(
        ["score", "x"],
        2,
        {"scores": [{"log_prob": -float(n), "normalized": -1.0, "tokens": n} for n in (5, 2)]},
        '{"inputs": "a", "id": 7, "targets": ["b", "c"]}',
        {
            '{"inputs": 3, "targets": "a"}': 'needs a field "inputs" that holds a string',
            '{"inputs": "a", "targets": ["b", 3]}': 'needs a field "targets" that holds a string, or a list of strings',
            '{"inputs": "a", "targets": []}': 'needs a field "targets"',
            "text alone": 'a list of strings; lines are JSON: {"inputs": ..., "targets": ...}',
            '{"inputs": "a", "targets": ["b", "%s"]}' % ("c" * 200): "a target has 201 tokens",
            **NO_LINES,
        },
    ),
}


@pytest.fixture(params=COMMANDS)
def command(request) -> Command:
    return COMMANDS[request.param]


def answers(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("argv", [["generate", "x"], ["score", "x", "-"], ["fill", "x", "<1>"]])
def test_the_mesh_is_told_as_in_training(argv, echo, monkeypatch, capfd):
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    main([*argv, "--mesh.fsdp", "2", "--mesh.tensor=4", "--mesh.more_rules", "vocab="])  # the stand-in cannot fill
    assert echo.mesh == Mesh(fsdp=2, tensor=4, more_rules=("vocab=",))
    assert main([*argv, "--mesh.tensr", "2"]) == 2
    assert "did you mean --mesh.tensor" in capfd.readouterr().err
    assert main([*argv, "--mesh.tensor", "two"]) == 2
    assert "must be a whole number or one of auto" in capfd.readouterr().err


def test_a_command_killed_anywhere_goes_on(tmp_path, command, echo):
    output = tmp_path / "out.jsonl"
    argv = [*command.argv, str(command.lines(tmp_path / "in.jsonl")), "--output", str(output)]
    assert main(argv) == 0
    whole = output.read_bytes()
    assert [row["line"] for row in answers(output)] == list(range(1, 11))
    assert answers(output)[3] == {"line": 4, "inputs": "line 4", "targets": ["aaaa", "b"], **command.fourth}
    for cut in (0, 1, len(whole) // 3, whole.index(b"\n") + 1, len(whole) - 1, len(whole)):
        output.write_bytes(whole[:cut])
        echo.asked.clear()
        assert main(argv) == 0
        assert output.read_bytes() == whole
        assert len(echo.asked) == command.questions * (10 - whole[:cut].count(b"\n"))


def test_an_output_is_continued_by_what_began_it_alone(tmp_path, lines, echo, capsys):
    output = tmp_path / "out.jsonl"
    argv = ["generate", "x", "--input", str(lines), "--output", str(output)]
    assert main(argv) == 0
    whole = output.read_bytes()
    for changed, said in (
        (["generate", "y", *argv[2:]], "was begun with model x, and this is y"),
        ([*argv, "--max-length", "7"], "was begun with max_length 128, and this is 7"),
    ):
        assert main(changed) == 1
        assert said in capsys.readouterr().err
    lines.write_text("line 1\nother\n")
    assert main(argv) == 1
    assert "holds an answer to line 2, but the input has another line there" in capsys.readouterr().err
    output.write_text("my notes\n")
    assert main(argv) == 1
    assert "line 1 is none that this command wrote" in capsys.readouterr().err and output.read_text() == "my notes\n"
    output.write_bytes(whole)
    (tmp_path / "out.jsonl.by.json").unlink()
    assert main(argv) == 1
    assert "does not say what made them" in capsys.readouterr().err


def test_a_bad_line_stops_after_those_before_it_or_is_kept_as_an_error(tmp_path, command, echo, capsys):
    source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    text = "\n".join([command.good, *command.bad, command.good])
    source.write_bytes(text.encode("utf-8", "surrogateescape") + b"\n")
    argv = [*command.argv, str(source), "--output", str(output)]
    assert main(argv) == 1
    assert 'line 2: needs a field "inputs"' in capsys.readouterr().err
    assert [row["line"] for row in answers(output)] == [1]
    assert main([*argv, "--errors", "keep"]) == 0
    counted = f"{len(command.bad) + 2} lines, of which {len(command.bad)} have no answer: line 2: needs a field"
    assert counted in capsys.readouterr().err
    rows, (answer,) = answers(output), command.fourth
    assert [row["line"] for row in rows] == list(range(1, len(command.bad) + 3))
    assert rows[0]["id"] == 7 and rows[0][answer] and rows[-1][answer] == rows[0][answer]
    for row, said in zip(rows[1:-1], command.bad.values(), strict=True):
        assert said in row["error"] and answer not in row
    whole = output.read_bytes()
    for cut in (1, len(whole) // 3, len(whole) // 2, len(whole) - 1):
        output.write_bytes(whole[:cut])
        assert main([*argv, "--errors", "keep"]) == 0
        assert output.read_bytes() == whole
    assert counted in capsys.readouterr().err
    assert main(argv) == 1 and output.read_bytes() == whole
    assert (
        f"out.jsonl: there are answers, of which {len(command.bad)} have no answer: line 2: needs"
        in capsys.readouterr().err
    )
    assert main([*command.argv, str(source), "--errors", "keep"]) == 0
    assert f"{len(command.bad)} have no answer: line 2" in capsys.readouterr().err


def test_a_line_draws_with_its_own_seed_or_its_number(tmp_path, echo):
    source = tmp_path / "in.jsonl"
    source.write_text('{"inputs": "a", "settings": {"temperature": 0.5, "seed": 3}}\nb\n')
    assert main(["generate", "x", "--input", str(source), "--seed", "10"]) == 0
    assert [(request.settings.temperature, request.settings.seed) for request in echo.asked] == [(0.5, 3), (0, 12)]


def test_jobs_share_the_lines_and_the_last_puts_them_together(tmp_path, command, echo, capsys):
    one, many = tmp_path / "one.jsonl", tmp_path / "many.jsonl"
    argv = [*command.argv, str(command.lines(tmp_path / "in.jsonl")), "--output"]
    assert main([*argv, str(one)]) == 0
    for shard in ("2/3", "0/3"):
        assert main([*argv, str(many), "--shard", shard]) == 0
        assert not many.exists()
    part = tmp_path / "many.jsonl.0-of-3"
    assert [row["line"] for row in answers(part)] == [1, 4, 7, 10]
    part.write_bytes(part.read_bytes()[:-5])  # as if killed
    assert main([*argv, str(many), "--shard", "0/3"]) == 0
    assert main([*argv, str(many), "--shard", "1/3"]) == 0
    assert many.read_bytes() == one.read_bytes()
    capsys.readouterr()
    assert main([*argv, str(many), "--shard", "3/3"]) == 2
    assert main([*argv[:-1], "--shard", "0/3"]) == 2
    assert "need an --output" in capsys.readouterr().err


def test_lines_from_a_pipe_to_a_pipe(echo, capsys, monkeypatch, lines):
    with lines.open(encoding="utf-8") as file:
        monkeypatch.setattr("sys.stdin", file)
        assert main(["generate", "x"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["outputs"][0]["text"] for row in rows[:2]] == ["1 enil", "2 enil"]


def test_targets_are_scored(tmp_path, echo, capsys):
    source = tmp_path / "pairs.jsonl"
    source.write_text('{"inputs": "a", "targets": "bc"}\n{"inputs": "a", "targets": ["d", "efg"], "id": 1}\n')
    assert main(["score", "x", str(source), "--per-token", "true"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows[0]["scores"] == [{"log_prob": -3.0, "normalized": -1.0, "tokens": 3, "token_log_probs": [-1.0] * 3}]
    assert [score["tokens"] for score in rows[1]["scores"]] == [2, 4] and rows[1]["id"] == 1
    source.write_text('{"inputs": "a"}\n')
    assert main(["score", "x", str(source)]) == 1
    assert 'line 1: needs a field "targets"' in capsys.readouterr().err
    source.write_text(json.dumps({"inputs": "a", "targets": ["b", "c" * 200]}) + "\n")
    assert main(["score", "x", str(source)]) == 1
    assert "line 1: a target has 201 tokens, and memory takes about 100" in capsys.readouterr().err


def test_settings_are_checked_before_anything_is_read(capsys):
    assert main(["generate", "/nowhere", "--top-k", "3"]) == 2
    assert "--top-k is set, but temperature is 0" in capsys.readouterr().err
    assert main(["generate", "/nowhere", "--beam", "3"]) == 2
    assert "did you mean --beams" in capsys.readouterr().err


def test_flags_for_more_sequences_than_memory_takes_are_refused_before_a_line_is_read(echo, capsys):
    for flags, said in (
        (["--beams", "1000000"], "--beams is 1,000,000"),
        (["--outputs", "999999"], "--outputs is 999"),
    ):
        assert (
            main(["generate", "x", "--input", "/nowhere", *flags, "--temperature", str(int("--beams" not in flags))])
            == 2
        )
        error = capsys.readouterr().err
        assert said in error and "memory takes about 693" in error


def test_answers_may_be_lines(tmp_path, echo):
    """Their number, error and outputs give way to those of the new answers; all else that a line asks must be the same
    for its answer to count."""
    source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    rows = [
        {"line": 7, "inputs": "a", "error": "old", "outputs": [1], "scores": 2, "x": float("nan")},
        {"inputs": "b", "settings": {"max_length": 9}},
    ]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    argv = ["generate", "x", "--input", str(source), "--output", str(output)]
    assert main(argv) == 0
    whole = output.read_bytes()
    first, second = answers(output)
    assert list(first) == ["line", "inputs", "scores", "x", "outputs"] and first["line"] == 1
    assert first["outputs"][0]["text"] == "a" and second["settings"] == {"max_length": 9}
    echo.asked.clear()
    assert main(argv) == 0 and not echo.asked and output.read_bytes() == whole


def test_a_line_that_asks_something_else_is_another(tmp_path, echo, capsys):
    source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    argv = ["score", "x", str(source), "--output", str(output)]
    for targets in ("b", "c"):
        source.write_text(json.dumps({"inputs": "a", "targets": targets}) + "\n")
        assert main(argv) == int(targets == "c")
    assert "line 1, but the input has another line there" in capsys.readouterr().err
    output.unlink()
    argv = ["generate", "x", "--input", str(source), "--output", str(output)]
    asked = {"inputs": "a", "b": "c"}
    for more in ({"prefix": "2"}, {"choices": ["b"]}, {"settings": {"beams": 2}}, {"id": 1}):
        for before, after in ((asked | more, "a"), (asked | more, asked), (asked, asked | more)):
            source.write_text(json.dumps(before) + "\n")
            assert main(argv) == 0
            source.write_text((after if isinstance(after, str) else json.dumps(after)) + "\n")
            assert main(argv) == 1, (before, after)
            assert "line 1, but the input has another line there" in capsys.readouterr().err
            output.unlink()
    source.write_text(json.dumps(asked) + "\n")
    assert main(argv) == 0 and main([*argv, "--field", "b"]) == 1
    assert "was begun with field inputs, and this is b" in capsys.readouterr().err
    source.write_text('{"line": "a"}\n')
    assert main(["generate", "x", "--input", str(source), "--field", "line"]) == 2
    assert "--field line: answers have a field of that name" in capsys.readouterr().err


def test_marks_and_ends_of_lines_are_the_same_from_a_file_and_a_pipe(tmp_path, echo, capsys, monkeypatch):
    source = tmp_path / "in.jsonl"
    source.write_bytes(b'\xef\xbb\xbf{"inputs": "a"}\r\nb\rc\r\n')
    assert main(["generate", "x", "--input", str(source)]) == 0
    expected = capsys.readouterr().out
    assert [json.loads(line)["inputs"] for line in expected.splitlines()] == ["a", "b\rc"]
    with source.open(encoding="latin-1") as file:
        monkeypatch.setattr("sys.stdin", file)
        assert main(["generate", "x"]) == 0
    assert capsys.readouterr().out == expected


@pytest.mark.parametrize("argv", [["generate", "x", "--input"], ["score", "x"], ["fill", "x", "--input"]])
def test_an_output_that_is_no_file_is_refused(tmp_path, lines, echo, capsys, argv):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    before = sorted(tmp_path.iterdir())
    for name in ("folder", "pipe"):
        assert main([*argv, str(lines), "--output", str(tmp_path / name)]) == 1
        assert "is a folder, a device or a pipe" in capsys.readouterr().err
    assert main([*argv, str(lines), "--output", ""]) == 2
    assert "--output is empty (is a variable of the shell unset?)" in capsys.readouterr().err
    assert main([*argv, str(lines), "--output", str(tmp_path / "nowhere" / "x")]) == 1
    assert "there is no folder" in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before


def test_jobs_put_together_what_is_of_one_kind(tmp_path, lines, echo, capsys):
    """An old file at the output's place, or an old part, is not taken for the result; a grown input is answered."""
    output = tmp_path / "out.jsonl"
    jobs = [["generate", "x", "--input", str(lines), "--output", str(output), "--shard", f"{i}/2"] for i in range(2)]
    output.write_text("my notes\n")
    assert main(jobs[0]) == 1 and output.read_text() == "my notes\n"
    assert "does not say what made them" in capsys.readouterr().err
    output.unlink()
    assert [main(job) for job in jobs] == [0, 0]
    whole = output.read_bytes()
    lines.write_text(lines.read_text() + "one more\n")
    assert main(jobs[1]) == 1 and output.read_bytes() == whole
    assert "were given inputs of 10 and 11 lines: give their commands again" in capsys.readouterr().err
    assert main(jobs[0]) == 0 and output.read_bytes()[: len(whole)] == whole
    assert answers(output)[-1]["inputs"] == "one more"
    other = tmp_path / "other.txt"
    other.write_text(lines.read_text().replace("line", "lime"))
    words = ["generate", "x", "--output", str(tmp_path / "o"), "--shard"]
    assert [main([*words, "0/2", "--input", str(lines)]), main([*words, "1/2", "--input", str(other)])] == [0, 1]
    assert not (tmp_path / "o").exists()
    assert "were given other lines each: give their commands again" in capsys.readouterr().err
    assert main(jobs[0][:-2]) == 0  # goes on alone, with nothing left to do
    for path in tmp_path.glob("out.jsonl.0-of-2*"):
        path.unlink()
    assert main([*jobs[0], "--beams", "2"]) == 1
    assert "out.jsonl was begun with beams 1, and this is 2" in capsys.readouterr().err
    output.unlink()
    assert main([*jobs[0], "--beams", "2"]) == 1
    assert "out.jsonl.1-of-2 was begun with beams 1, and this is 2" in capsys.readouterr().err
    assert not output.exists()


def test_an_output_of_another_command_is_not_gone_on_with(tmp_path, lines, echo, capsys):
    output = str(tmp_path / "out.jsonl")
    assert main(["generate", "x", "--input", str(lines), "--output", output]) == 0
    assert main(["score", "x", str(lines), "--output", output]) == 1
    assert "was begun by another command" in capsys.readouterr().err


@pytest.mark.parametrize("argv", [["generate", "x", "--input"], ["score", "x"], ["fill", "x", "--input"]])
def test_an_output_is_written_by_one_process(tmp_path, lines, echo, capsys, argv):
    output = tmp_path / "out.jsonl"
    with locked(tmp_path / "out.jsonl.lock", lambda: None):
        assert main([*argv, str(lines), "--output", str(output)]) == 1
    assert "is being written by another process" in capsys.readouterr().err and not output.exists()
