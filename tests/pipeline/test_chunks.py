import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipeline_data import column_of

from spanloom.pipeline import chunks
from spanloom.pipeline.chunks import chunks_of
from spanloom.settings.objectives import TokenStream


def pieces(column, raw_length, concat_documents=0, merge=True):
    objective = TokenStream(concat_documents=concat_documents, merge=merge)
    cut = chunks_of(column, raw_length, objective)
    starts, lengths = cut.locate(np.arange(cut.num_examples))
    return [column.slice(start, start + length).tolist() for start, length in zip(starts, lengths, strict=True)]


@pytest.mark.short
@pytest.mark.parametrize("tokens", [0, 1, 4, 5, 6, 11])
def test_one_stream_is_cut_into_slices_and_its_end_is_kept(tokens):
    flat = list(range(5, 5 + tokens))
    assert pieces(column_of([flat]), 5, 0) == [flat[start : start + 5] for start in range(0, tokens, 5)]


@pytest.mark.parametrize("documents", [1, 2, 3, 4, 100])
def test_every_batch_of_documents_ends_in_a_short_piece(documents):
    rows = [[10 * row + i for i in range(length)] for row, length in enumerate([3, 8, 1, 4, 9, 2, 5])]
    expected = []
    for start in range(0, len(rows), documents):
        stream = [token for row in rows[start : start + documents] for token in row]
        expected += [stream[i : i + 4] for i in range(0, len(stream), 4)]
    assert pieces(column_of(rows), 4, documents) == expected
    assert pieces(column_of(rows[:2], rows[2:3], rows[3:]), 4, documents) == expected


@pytest.mark.short
def test_documents_that_are_not_merged_are_by_themselves_and_long_ones_are_cut():
    rows = [[10, 11], [20, 21, 22, 23, 24, 25, 26, 27, 28], [30], [40, 41, 42, 43]]
    expected = [[10, 11], [20, 21, 22, 23], [24, 25, 26, 27], [28], [30], [40, 41, 42, 43]]
    assert pieces(column_of(rows), 4, merge=False) == expected
    assert pieces(column_of(rows[:1], rows[1:]), 4, merge=False) == expected


def test_no_documents_no_pieces():
    assert pieces(column_of(), 4, 128) == []
    assert pieces(column_of([]), 4, 128) == []


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 70), st.lists(st.integers(0, 9), min_size=1, max_size=700), st.integers(0, 2**32 - 1))
def test_any_number_of_documents_is_found_again(documents, lengths, seed):
    """However many are looked at at a time, and in whatever order examples are asked for."""
    rows = [[10 * (row % 5000) + i for i in range(length)] for row, length in enumerate(lengths)]
    column = column_of(rows[: len(rows) // 3], rows[len(rows) // 3 :], size=60_000)
    expected = []
    for start in range(0, len(rows), documents):
        stream = [token for row in rows[start : start + documents] for token in row]
        expected += [stream[i : i + 4] for i in range(0, len(stream), 4)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "_COUNTED", 150)
        found = chunks.BatchedChunks(column, documents, 4)
    assert found.num_examples == len(expected)
    order = np.random.default_rng(seed).permutation(found.num_examples)
    for example, start, length in zip(order.tolist(), *found.locate(order), strict=True):
        assert column.slice(start, start + length).tolist() == expected[example]
