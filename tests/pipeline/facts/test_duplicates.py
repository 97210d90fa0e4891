import dataclasses
from pathlib import Path

import numpy as np
import pytest
from pipeline_data import column_of

from spanloom.pipeline.facts.duplicates import duplicates
from spanloom.pipeline.facts.effort import Effort
from spanloom.pipeline.store import Store

pytestmark = pytest.mark.short
ALL = Effort(examples=10, rows=10**6, shards=100)


def store_of(**columns) -> Store:
    """A store of these shards of rows by column."""
    return Store(Path("none"), {}, {name: column_of(*shards) for name, shards in columns.items()})


def test_copies_are_counted_across_shards_and_empty_rows_are_not():
    found = duplicates(store_of(tokens=[[[5, 6], [7], []], [[5, 6], [], [5, 6], [8]]]), ALL)
    assert (found.rows, found.copies, found.times, found.is_sample) == (5, 2, 3, False)
    assert found.share == 0.4 and [row.tolist() for row in found.commonest] == [[5, 6]]
    found = duplicates(store_of(tokens=[[[5], [6]]]), ALL)
    assert found.copies == found.share == 0 and found.commonest == ()
    assert duplicates(store_of(tokens=[[]]), ALL).share == 0


def test_pairs_are_copies_if_both_sides_are():
    same = duplicates(store_of(inputs=[[[5], [5]]], targets=[[[7], [7]]]), ALL)
    other = duplicates(store_of(inputs=[[[5], [5]]], targets=[[[7], [8]]]), ALL)
    moved = duplicates(store_of(inputs=[[[5, 7], [5]]], targets=[[[], [7]]]), ALL)
    assert same.copies == 1 and other.copies == moved.copies == 0


def test_a_sample_has_all_copies_of_a_row_or_none_so_that_the_share_is_kept():
    random = np.random.default_rng(0)
    distinct = [random.integers(3, 300, random.integers(1, 40)).tolist() for _ in range(6000)]
    rows = distinct + [row for row in distinct[:1500] for _ in range(2)]
    shards = [rows[:5000], rows[5000:]]
    whole = duplicates(store_of(tokens=shards), ALL)
    sample = duplicates(store_of(tokens=shards), dataclasses.replace(ALL, rows=1500))
    assert not whole.is_sample and sample.is_sample
    assert 900 < sample.rows < 2100
    assert abs(sample.share - whole.share) < 0.05 and whole.share > 0.3


def test_of_many_shards_some_are_read():
    store = store_of(tokens=[[[number]] for number in (5, 5, 6, 7, 8, 9)])
    found = duplicates(store, dataclasses.replace(ALL, shards=3))
    assert found.is_sample and found.rows == 3 and found.copies == 0
