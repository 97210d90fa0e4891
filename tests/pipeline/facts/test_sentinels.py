import pytest

from spanloom.pipeline.facts.effort import Effort
from spanloom.pipeline.facts.sentinels import sentinels_found

from .test_duplicates import store_of

pytestmark = pytest.mark.short
ALL = Effort(examples=10, rows=10, shards=10)


def test_they_are_counted_by_id_and_column():
    store = store_of(inputs=[[[5, 260, 6], [259]], [[260]]], targets=[[[5], []], [[6]]])
    found = sentinels_found(store, (259, 260, 261), ALL)
    assert found.count == 3 and list(found.ids.items()) == [(260, 2), (259, 1)]
    assert found.by_column == {"inputs": {259: 1, 260: 2}}
    assert (found.tokens, found.is_sample) == (7, False)


def test_none_are_found_where_there_are_none_and_where_none_are_wanted():
    store = store_of(tokens=[[[5, 6]], [[7, 259]]])
    assert sentinels_found(store, (300,), ALL).count == 0
    assert sentinels_found(store, (), ALL).count == 0
    some = sentinels_found(store, (259,), Effort(1, 1, shards=1))
    assert some.is_sample and some.count == 0 and some.tokens == 2
