"""Commands that answer lines, on a real model in a real process, killed."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tiny_model import tiny_source

import spanloom
from spanloom.cli.main import main
from spanloom.conversion.convert import convert_to_hf


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    convert_to_hf(tiny_source(), folder)
    return folder


def answers(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_killed_process_goes_on_and_writes_what_the_model_does(tmp_path, folder):
    lines, source, output = [f"line {number}" for number in range(1, 301)], tmp_path / "in.txt", tmp_path / "out.jsonl"
    source.write_text("\n".join(lines) + "\n", encoding="utf-8")
    argv = ["generate", str(folder), "--output", str(output), "--max-length", "8"]
    process = subprocess.Popen([sys.executable, "-m", "spanloom.cli.main", *argv], stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(source.read_bytes())  # it answers a first block, and waits for the end of the second
    process.stdin.flush()
    while process.poll() is None and not (output.exists() and output.stat().st_size):
        time.sleep(0.01)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    before = [json.loads(line) for line in output.read_bytes().split(b"\n")[:-1]]
    assert 0 < len(before) < len(lines)
    assert main([*argv, "--input", str(source)]) == 0
    found = answers(output)
    assert found[: len(before)] == before
    assert [(row["line"], row["inputs"]) for row in found] == list(enumerate(lines, 1))
    expected = spanloom.load(folder).generate(lines, max_length=8)
    for row, one in zip(found, expected, strict=True):
        (output_of_row,) = row["outputs"]
        assert output_of_row["text"] == one.text
        assert output_of_row["log_prob"] == pytest.approx(one.outputs[0].log_prob, abs=1e-4)


def test_pairs_are_scored_as_the_model_does(tmp_path, folder, capsys):
    pairs = [("a question", ["yes", "no"]), ("another", ["perhaps"])]
    text = "".join(json.dumps({"inputs": asked, "targets": targets}) + "\n" for asked, targets in pairs)
    (tmp_path / "pairs.jsonl").write_text(text, encoding="utf-8")
    assert main(["score", str(folder), str(tmp_path / "pairs.jsonl")]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    scores = iter(spanloom.load(folder).score([(asked, target) for asked, targets in pairs for target in targets]))
    for row in rows:
        for score in row["scores"]:
            expected = next(scores)
            assert score["log_prob"] == pytest.approx(expected.log_prob, abs=1e-4)
            assert score["normalized"] == pytest.approx(expected.normalized, abs=1e-4)
