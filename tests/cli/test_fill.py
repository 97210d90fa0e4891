import json

import numpy as np
import pytest

from spanloom.cli import fill
from spanloom.cli.errors import CommandError
from spanloom.cli.fill import fill_lines, masked_ids, read_spans
from spanloom.cli.main import main
from spanloom.settings.vocabulary import Bytes
from spanloom.vocabularies.build import build

pytestmark = pytest.mark.short

VOCABULARY = build(Bytes())


def answer(*spans):
    """Target tokens that put these texts after sentinels 0, 1, ..."""
    parts = []
    for index, text in enumerate(spans):
        parts += [[VOCABULARY.sentinels[index]], VOCABULARY.encode(text)]
    return np.concatenate([*parts, [VOCABULARY.eos_id], VOCABULARY.encode("after the end"), [0]]).astype(np.int32)


def predict(inputs):
    return [answer("one", "two")] * len(inputs)


def test_masks_become_sentinels():
    ids = masked_ids(1, "a<mask>b<mask>", VOCABULARY)
    assert ids.tolist() == [100, 259, 101, 260, 1]
    assert masked_ids(1, "a<extra_id_0>b<extra_id_1>", VOCABULARY).tolist() == ids.tolist()
    assert masked_ids(1, "<extra_id_3><mask>", VOCABULARY).tolist() == [262, 263, 1]
    assert ids.dtype == np.int32


def test_spans_are_read_up_to_the_end():
    assert read_spans(answer("x", ""), VOCABULARY) == {0: "x", 1: ""}
    assert read_spans(np.array([70, 71]), VOCABULARY) == {}


def test_lines_and_records():
    lines = ["a <mask> b <mask> c <mask>\n", '{"id": 7, "text": "<extra_id_1>|<extra_id_0>"}\n']
    first, second = fill_lines(lines, VOCABULARY, predict)
    assert first == {
        "text": "a <mask> b <mask> c <mask>",
        "filled": "a one b two c ",
        "spans": ["one", "two", ""],
    }
    assert second == {"id": 7, "text": "<extra_id_1>|<extra_id_0>", "filled": "two|one", "spans": ["two", "one"]}


def test_many_lines_keep_their_order():
    lines = [f"{number} <mask>" for number in range(100)]
    assert [r["filled"] for r in fill_lines(lines, VOCABULARY, predict)] == [f"{number} one" for number in range(100)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("no masks", r"line 2: no <mask>"),
        ("<extra_id_125>", r"line 2: sentinel 125 of 125"),
        ('{"text": 3}', r'line 2: .*"text"'),
        ("{broken", r"line 2: begins like JSON"),
        ('{"text": ' + "[" * 100_000, r"line 2: begins like JSON"),
        ('{"text": "\\ud800 <mask>"}', r"line 2: is not UTF-8 text .*ud800"),
        ("caf\udce9 <mask>", r"line 2: is not UTF-8 text .*udce9 after 'caf'.*iconv"),
    ],
)
def test_bad_lines_are_named(line, message):
    with pytest.raises(CommandError, match=message):
        list(fill_lines(["<mask>", line], VOCABULARY, predict))


@pytest.fixture
def loaded(monkeypatch):
    monkeypatch.setattr(fill, "_load", lambda *args: (predict, VOCABULARY))


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


def test_an_empty_name_is_not_the_working_directory(capfd):
    assert main(["fill", "", "--text", "a <mask>"]) == 2
    assert main(["convert", "a", "", "--to", "hf"]) == 2
    assert capfd.readouterr().err.count("one name is empty") == 2
