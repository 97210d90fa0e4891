import json

import numpy as np
import pytest

from spanloom.pipeline.shards import DamagedStoreError
from spanloom.pipeline.spool.index import LINES, SpoolIndex, begin
from spanloom.pipeline.spool.marks import Mark, Place, chained, from_data, to_data


@pytest.fixture
def index(tmp_path):
    begin(tmp_path, {"source": "a"}, {"tokens": "uint16"}, 7, Mark())
    return SpoolIndex(tmp_path)


def grow(index: SpoolIndex, *examples: int) -> None:
    for count in examples:
        last = index.last
        place = Place(0, last.place.rows + count, last.place.kept + count, {"at": [last.shard]})
        index.append(last.after(count, {"tokens": 10 * count}, f"{last.shard}", place))


def test_what_is_appended_is_read_by_others_and_comes_back(index, tmp_path):
    other = SpoolIndex(tmp_path)
    grow(index, 3, 0, 4)
    assert other.last == Mark() and other.refresh() == index.last == SpoolIndex(tmp_path).last
    assert (index.last.shard, index.last.examples, index.last.tokens) == (3, 7, {"tokens": 70})
    assert index.last.place == Place(0, 7, 7, {"at": [2]}) and index.bound == 7
    assert index.last.chain == chained(chained(chained("", "0"), "1"), "2")
    assert from_data(json.loads(json.dumps(to_data(index.last)))) == index.last
    assert [index.mark(shard).examples for shard in range(4)] == [0, 3, 3, 7]
    for shard in (-1, 4):
        with pytest.raises(IndexError, match="knows shards 0 to 2"):
            index.mark(shard)


def test_examples_and_tokens_are_found_in_their_shards(index):
    grow(index, 3, 0, 4)
    assert index.shards_of(np.arange(7)).tolist() == [0, 0, 0, 2, 2, 2, 2]
    assert [index.shard_at_token("tokens", token) for token in (0, 29, 30, 69)] == [0, 0, 2, 2]
    with pytest.raises(IndexError, match="has the examples 0 to 6"):
        index.shards_of(np.array([7]))


@pytest.mark.parametrize("cut", [1, 5, 60])
def test_a_line_that_a_kill_tore_is_cut_off_by_the_next_who_writes(index, tmp_path, cut):
    grow(index, 3, 4)
    path = tmp_path / LINES
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    again = SpoolIndex(tmp_path)
    assert again.last.examples == 3
    grow(again, 4)
    assert path.read_bytes() == whole


def test_what_was_not_written_so_is_refused(index, tmp_path):
    grow(index, 3, 4)
    path = tmp_path / LINES
    first, second = path.read_bytes().splitlines(keepends=True)
    for damaged in (second + first, first + first, b"{}\n" + second, first.replace(b'"examples":3', b'"examples":x')):
        path.write_bytes(damaged)
        with pytest.raises(DamagedStoreError, match="is not as it was written at its byte"):
            SpoolIndex(tmp_path)
    (tmp_path / "spool.json").write_text("{}")
    with pytest.raises(DamagedStoreError, match=r"spool\.json cannot be read"):
        SpoolIndex(tmp_path)


def test_one_that_goes_on_from_elsewhere_begins_with_another_shard(tmp_path):
    base = Mark(5, 100, {"tokens": 1000}, "ab" * 32, Place(1, 40, 90))
    begin(tmp_path, {}, {"tokens": "uint16"}, 0, base)
    index = SpoolIndex(tmp_path)
    grow(index, 10)
    assert index.shards_of(np.array([100, 109])).tolist() == [5, 5] and index.shard_at_token("tokens", 1000) == 5
    with pytest.raises(IndexError):
        index.shards_of(np.array([99]))
    assert SpoolIndex(tmp_path).last == index.last and index.last.shard == 6


def test_shards_are_dropped_up_to_an_example_and_the_index_stays(index):
    grow(index, 3, 4, 5)
    for shard in range(4):
        for path in index.paths(shard):
            path.write_bytes(b"x")
    assert index.kept() == [0, 1, 2]  # the last is half made: it has no line
    index.drop(7)
    assert index.kept() == [2] and index.last.examples == 12 and index.needed() == 7
    index.drop(6)
    assert index.kept() == [2] and not index.paths(1)[1].exists()


def test_who_waits_says_for_which_shard(index, tmp_path):
    assert index.wanted() == -1
    index.want(4)
    index.want(2)
    assert index.wanted() == SpoolIndex(tmp_path).wanted() == 4
    assert not list(tmp_path.glob("*.part"))
