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
    convert_to_hf(tiny_source(end=3.0), folder)
    return folder


def answers(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def started(argv: list[str], source: Path) -> subprocess.Popen:
    """The command in a process of its own, given the lines but not their end: it answers whole blocks, and waits."""
    process = subprocess.Popen([sys.executable, "-m", "spanloom.cli.main", *argv], stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(source.read_bytes())
    process.stdin.flush()
    return process


def wait_for_answers(process: subprocess.Popen, output: Path) -> None:
    while process.poll() is None and not (output.exists() and output.stat().st_size):
        time.sleep(0.01)


def kill(process: subprocess.Popen, output: Path) -> list[dict]:
    """Kills it, and says what it had answered."""
    process.kill()
    assert process.wait() == -signal.SIGKILL
    return [json.loads(line) for line in output.read_bytes().split(b"\n")[:-1]]


def test_a_killed_process_goes_on_and_writes_what_the_model_does(tmp_path, folder):
    lines, source, output = [f"line {number}" for number in range(1, 301)], tmp_path / "in.txt", tmp_path / "out.jsonl"
    source.write_text("\n".join(lines) + "\n", encoding="utf-8")
    argv = ["generate", str(folder), "--output", str(output), "--max-length", "8"]
    process = started(argv, source)
    wait_for_answers(process, output)
    before = kill(process, output)
    assert 0 < len(before) < len(lines)
    assert main([*argv, "--input", str(source)]) == 0
    found = answers(output)
    assert found[: len(before)] == before
    assert [(row["line"], row["inputs"]) for row in found] == list(enumerate(lines, 1))
    check_written(found, folder, lines)


def check_written(rows: list[dict], folder: Path, lines: list[str]) -> None:
    expected = spanloom.load(folder).generate(lines, max_length=8)
    for row, one in zip(rows, expected, strict=True):
        (output_of_row,) = row["outputs"]
        assert output_of_row["text"] == one.text
        assert output_of_row["log_prob"] == pytest.approx(one.outputs[0].log_prob, abs=1e-4)


def test_of_two_jobs_at_once_one_is_killed_and_every_line_is_answered_once(tmp_path, folder):
    lines, source, output = [f"line {number}" for number in range(1, 601)], tmp_path / "in.txt", tmp_path / "out.jsonl"
    source.write_text("\n".join(lines) + "\n", encoding="utf-8")
    argv = ["generate", str(folder), "--output", str(output), "--max-length", "8", "--shard"]
    jobs = [started([*argv, f"{index}/2"], source) for index in range(2)]
    parts = [tmp_path / f"out.jsonl.{index}-of-2" for index in range(2)]
    for job, part in zip(jobs, parts, strict=True):
        wait_for_answers(job, part)
    assert [job.poll() for job in jobs] == [None, None]  # both are amid their lines
    before = kill(jobs[0], parts[0])
    assert 0 < len(before) < 300 and [row["line"] for row in before] == list(range(1, 2 * len(before), 2))
    jobs[1].communicate()  # the end of its lines
    assert jobs[1].returncode == 0 and not output.exists()
    again = started([*argv, "0/2"], source)
    again.communicate()
    assert again.returncode == 0
    found, (odd, even) = answers(output), map(answers, parts)
    assert [(row["line"], row["inputs"]) for row in found] == list(enumerate(lines, 1))
    assert odd[: len(before)] == before and (odd, even) == (found[::2], found[1::2])
    check_written(found, folder, lines)


def test_a_line_among_others_is_answered_as_it_is_alone(tmp_path, folder):
    """Settings, prefixes and choices of each line's own, in one command, as `generate` in Python has them."""
    text = "a line"
    asked: list[dict] = [
        {"settings": {"alpha": 0.0}},
        {"settings": {"alpha": 5.0}},
        {"settings": {"alpha": 1.0, "search": "transformers"}},
        {"prefix": "so: "},
        {"prefix": "no", "settings": {"alpha": 5.0}},
        {"choices": ["yes", "no"]},
        {"choices": ["perhaps", "no", "certainly"], "prefix": "so: ", "settings": {"alpha": 5.0, "outputs": 1}},
        {"settings": {"beams": 1, "temperature": 1.0, "top_p": 0.9, "seed": 5}},
        {"settings": {"beams": 1, "temperature": 1.0, "seed": 5}, "prefix": "so: "},
        {"settings": {"beams": 1, "outputs": 1, "no_repeat_ngram": 1, "max_length": 9}},
    ]
    source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(json.dumps({"inputs": text, **one}) + "\n" for one in asked), encoding="utf-8")
    common = {"beams": 2, "outputs": 2, "max_length": 16}
    flags = ["--beams", "2", "--outputs", "2", "--max-length", "16"]
    assert main(["generate", str(folder), "--input", str(source), "--output", str(output), *flags]) == 0
    model, found = spanloom.load(folder), answers(output)
    for one, row in zip(asked, found, strict=True):
        assert {name: row[name] for name in one} == one
        rest = {name: value for name, value in one.items() if name != "settings"}
        (alone,) = model.generate(text, **{**common, **one.get("settings", {})}, **rest)
        assert [output["text"] for output in row["outputs"]] == [output.text for output in alone.outputs], one
        for mine, expected in zip(row["outputs"], alone.outputs, strict=True):
            assert (mine["score"], mine["log_prob"]) == pytest.approx((expected.score, expected.log_prob), abs=1e-4)
    texts = [[output["text"] for output in row["outputs"]] for row in found]
    assert texts[0] != texts[1] and all(output.startswith("so: ") for output in (*texts[3], *texts[8]))
    assert sorted(texts[5]) == ["no", "yes"] and texts[6][0] in ("so: perhaps", "so: no", "so: certainly")
    assert texts[7] != texts[8] and len(found[9]["outputs"]) == 1


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
