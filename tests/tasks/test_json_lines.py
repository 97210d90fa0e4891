import json

import pytest

from spanloom.settings.task import TextFiles
from spanloom.tasks.read_report import BadInputError, ReadReport
from spanloom.tasks.sources import read_examples

pytestmark = pytest.mark.short


def read(path, data, report=None, **settings):
    path = path / "a.jsonl"
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    source = TextFiles(files=(str(path),), heldout_share=0.0, **settings)
    return [example["text"] for example in read_examples(source, "train", report or ReadReport())]


def test_fields_and_templates(tmp_path):
    rows = [{"title": "T", "meta": {"text": "in"}, "text": "a\nb"}, {"title": "U", "meta": {"text": "ö"}, "text": "c"}]
    data = "\n".join(json.dumps(row) for row in rows) + "\n\n"
    report = ReadReport()
    assert read(tmp_path, data, report) == ["a\nb", "c"]
    assert report.skipped == {"empty": 1}
    assert read(tmp_path, data, field="meta.text") == ["in", "ö"]
    assert read(tmp_path, data, field=r"{title}\n{meta.text}") == ["T\nin", "U\nö"]


@pytest.mark.parametrize(
    ("bad", "message", "reason"),
    [
        ('{"text": "x"', r":2: broken JSON \(Expecting ',' delimiter: line 1 column 13", "broken JSON"),
        ("text", r":2: broken JSON .*the line begins 'text'", "broken JSON"),
        ("[1]", ":2: a JSON list where an object is expected", "broken JSON"),
        ("[" * 100_000, ":2: broken JSON", "broken JSON"),
        ('{"Text": "x"}', r":2: no field 'text'; the fields are 'Text'; did you mean 'Text'", "missing field 'text'"),
        ("{}", r":2: no field 'text'; the fields are none", "missing field 'text'"),
        ('{"text": 5}', r":2: field 'text' is a number .*use the template '\{text\}'", "field 'text' is a number"),
        (f'{{"text": 1{"0" * 3000}}}', r"is a number or boolean \(1000+\.\.\.\)", "field 'text' is a number"),
        (
            '{"text": ["x"]}',
            ":2: field 'text' is a list, not text. Name one of its 1, from 0: 'text.0'",
            "field 'text' is a list",
        ),
        ('{"text": null}', ":2: field 'text' is null", "field 'text' is null"),
        ('{"text": {"de": "x"}}', ":2: field 'text' is an object.*'text.de'", "field 'text' is an object"),
        ('{"text": "\\ud83d"}', r":2: half a character \(lone surrogate \\ud83d\)", "undecodable"),
    ],
)
def test_bad_lines(tmp_path, bad, message, reason):
    data = f'{{"text": "a"}}\n{bad}\n{{"text": "b"}}\n'
    for errors in ("strict", "replace"):
        with pytest.raises(BadInputError, match=message) as failure:
            read(tmp_path, data, errors=errors)
        assert "--errors skip leaves it out and counts it" in str(failure.value)
    report = ReadReport()
    assert read(tmp_path, data, report, errors="skip") == ["a", "b"]
    assert report.skipped == {reason: 1} and "a.jsonl:2" in report.messages[0]


def test_numbers_of_any_length_are_json(tmp_path):
    digits = "9" * 10_000
    data = f'{{"text": "a", "n": {digits}, "m": 12}}\n'
    assert read(tmp_path, data) == ["a"]
    assert read(tmp_path, data, field="{n}{m}") == [digits + "12"]


def test_what_is_long_is_cut_in_messages(tmp_path):
    for bad in ("x" * 5_000, json.dumps(["x" * 5_000]), '{"text": 1' + "0" * 4_000 + "}", json.dumps({"x" * 5_000: 1})):
        with pytest.raises(BadInputError) as failure:
            read(tmp_path, bad)
        assert len(str(failure.value)) < 400 + len(str(tmp_path))


def test_undecodable_lines(tmp_path):
    data = b'{"text": "a"}\n{"text": "\xff"}\n'
    with pytest.raises(BadInputError, match=r"a\.jsonl:2: invalid utf-8 at byte 24 of the file: ff"):
        read(tmp_path, data)
    assert read(tmp_path, data, errors="replace") == ["a", "\ufffd"]
    assert read(tmp_path, data, errors="skip") == ["a"]


@pytest.mark.parametrize("text", ['[\n{"text": "a"},\n{"text": "b"}\n]', '{\n  "text": "a"\n}'])
def test_one_json_text_over_many_lines_is_recognised(tmp_path, text):
    with pytest.raises(BadInputError, match=r"one JSON text over many lines.*jq -c"):
        read(tmp_path, text)


def test_a_list_on_one_line_is_recognised(tmp_path):
    with pytest.raises(BadInputError, match="If the file is one list, rewrite it"):
        read(tmp_path, '[{"text": "a"}]')


def test_blank_texts_are_counted(tmp_path):
    report = ReadReport()
    assert read(tmp_path, '{"text": ""}\n{"text": " \\n"}\n{"text": "a"}', report) == ["a"]
    assert report.skipped == {"empty": 2}
