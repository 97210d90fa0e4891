import pytest

from spanloom.evaluation.fill import Piece
from spanloom.evaluation.results import Results, key_of, read_results, write_results

pytestmark = pytest.mark.short

RESULTS = Results(
    "two\nlines \u00e9", "baselines", {"loss": 1 / 3, "text_loss": 2.5}, ((Piece("a"), Piece("b", "c")), (Piece(""),))
)
KEY = key_of(step=3, settings={"a": 1})


def test_results_come_back_as_they_were(tmp_path):
    write_results(tmp_path / "r.json", KEY, RESULTS)
    assert read_results(tmp_path / "r.json", KEY) == RESULTS
    write_results(tmp_path / "r.json", KEY, Results("other"))
    assert read_results(tmp_path / "r.json", KEY) == Results("other")
    assert [path.name for path in tmp_path.iterdir()] == ["r.json"]


def test_results_of_something_else_are_none(tmp_path):
    write_results(tmp_path / "r.json", KEY, RESULTS)
    assert read_results(tmp_path / "r.json", key_of(step=4, settings={"a": 1})) is None
    assert read_results(tmp_path / "r.json", key_of(step=3, settings={"a": 2})) is None
    assert read_results(tmp_path / "r.json", key_of(settings={"a": 1}, step=3)) == RESULTS


def test_what_is_damaged_or_absent_is_none(tmp_path):
    path = tmp_path / "r.json"
    assert read_results(path, KEY) is None
    write_results(path, KEY, RESULTS)
    whole = path.read_bytes()
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        assert read_results(path, KEY) is None
    for place in range(0, len(whole), 3):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert read_results(path, KEY) in (None, RESULTS)  # blanks between values may differ
    for content in (
        b"[]",
        b"null",
        b'"x"',
        b"\xff\xfe",
        b"{}",
        b"[" * 100_000,
        b'{"key": 1, "results": 3, "crc32": 0}',
    ):
        path.write_bytes(content)
        assert read_results(path, KEY) is None
    path.unlink()
    path.mkdir()
    assert read_results(path, KEY) is None
