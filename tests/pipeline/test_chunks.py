import numpy as np
import pytest
from pipeline_data import column_of

from spanloom.pipeline.chunks import chunks_of
from spanloom.settings.objectives import TokenStream


def pieces(column, raw_length, concat_documents=0, merge=True):
    objective = TokenStream(concat_documents=concat_documents, merge=merge)
    chunks = chunks_of(column, raw_length, objective)
    starts, lengths = chunks.locate(np.arange(chunks.num_examples))
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
