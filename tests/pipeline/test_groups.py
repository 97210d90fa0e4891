import hashlib
from itertools import chain, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanloom.pipeline.groups import Group, groups_of

TEXTS = st.lists(st.binary(max_size=40), max_size=60)


def batched(documents: list[bytes], sizes: list[int]):
    """The documents in batches of these sizes, the last one of all the rest."""
    start = 0
    for size in sizes:
        yield {"text": documents[start : start + size]}
        start += size
    yield {"text": documents[start:]}


def groups(batches, shard_bytes: int) -> list[Group]:
    return list(groups_of((("train", batch) for batch in batches), shard_bytes))


@settings(deadline=None)
@given(TEXTS, st.lists(st.integers(0, 20), max_size=8), st.integers(1, 100))
def test_groups_follow_from_the_text_alone(texts, sizes, shard_bytes):
    made = groups(batched(texts, sizes), shard_bytes)
    assert made == groups(({"text": [text]} for text in texts), shard_bytes)
    assert [text for group in made for text in group.documents["text"]] == texts
    assert [group.number for group in made] == list(range(len(made)))
    for group in made:
        sizes = [len(text) for text in group.documents["text"]]
        assert group.text_bytes == sum(sizes) and group.examples == len(sizes) > 0
        assert sum(sizes[:-1]) < shard_bytes
        assert max(sizes) < shard_bytes or len(sizes) == 1
    for group, after in pairwise(made):
        assert group.text_bytes >= shard_bytes or len(after.documents["text"][0]) >= shard_bytes


@pytest.mark.short
def test_each_part_has_groups_of_its_own():
    parts = [("train", {"text": [b"aa", b"b"]}), ("heldout", {"text": [b"cc"]}), ("train", {"text": [b"dd", b"e"]})]
    found = [(group.split, group.number, group.documents["text"]) for group in groups_of(parts, 3)]
    assert found == [("train", 0, [b"aa", b"b"]), ("train", 1, [b"dd", b"e"]), ("heldout", 0, [b"cc"])]


@pytest.mark.short
def test_pairs_are_cut_by_both_fields_and_stay_pairs():
    batch = {"inputs": [b"a", b"bb", b"c"], "targets": [b"AA", b"", b"C"]}
    first, second = groups_of([("train", batch)], 4)
    assert first.documents == {"inputs": [b"a", b"bb"], "targets": [b"AA", b""]} and first.text_bytes == 5
    assert second.documents == {"inputs": [b"c"], "targets": [b"C"]}


@given(TEXTS, st.integers(1, 60))
def test_pieces_are_the_documents_in_order(texts, size):
    group = Group("train", 0, {"text": texts}, sum(map(len, texts)))
    pieces = [piece["text"] for piece in group.pieces(size)]
    assert list(chain(*pieces)) == texts
    assert all(sum(map(len, piece[:-1])) < 2 * size for piece in pieces)


@pytest.mark.short
def test_the_hash_tells_texts_apart():
    def hash_of(**documents) -> str:
        return Group("train", 0, documents, 0).text_hash()

    texts = [f"text {number}".encode() for number in range(1000)]
    ended = b"".join(text + b"\xff" for text in texts)
    assert hash_of(text=texts) == hashlib.sha256(ended).hexdigest()
    hashes = [
        hash_of(text=[b"ab", b"c"]),
        hash_of(text=[b"a", b"bc"]),
        hash_of(text=[b"abc"]),
        hash_of(text=[b"abc", b""]),
        hash_of(text=[b"", b"abc"]),
        hash_of(inputs=[b"a", b"b"], targets=[b"c", b"d"]),
        hash_of(inputs=[b"a", b"c"], targets=[b"b", b"d"]),
    ]
    assert len({*hashes}) == len(hashes)
