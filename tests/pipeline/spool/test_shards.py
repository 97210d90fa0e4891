from types import SimpleNamespace

import pytest

from spanloom.pipeline.shards import DamagedStoreError
from spanloom.pipeline.spool import shards


@pytest.fixture
def dropping(monkeypatch):
    """Listings of shards, of which the first so many name one that is dropped before it is opened."""

    def begin(times):
        listed = []

        def columns(index, entries):
            listed.append(entries)
            if len(listed) <= times:
                raise FileNotFoundError(2, "No such file or directory", "shard-00003.arrow")
            return {}

        monkeypatch.setattr(shards, "_entries", lambda index: iter([len(listed)]))
        monkeypatch.setattr(shards, "_meta", lambda index, entries: {"shards": entries})
        monkeypatch.setattr(shards, "_columns", columns)
        monkeypatch.setattr(shards, "probes_of", lambda index: [])
        return SimpleNamespace(directory="x", fingerprint={})

    return begin


def test_shards_that_a_run_drops_meanwhile_are_no_matter(dropping):
    assert shards.spooled(dropping(2)).meta["shards"] == [2]


def test_a_shard_that_is_gone_for_good_is_damage(dropping):
    with pytest.raises(DamagedStoreError, match=r"shard-00003\.arrow is gone, and its description is there"):
        shards.spooled(dropping(99))
