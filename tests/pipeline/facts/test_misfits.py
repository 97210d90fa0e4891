"""Each misfit is called out where it is there, and not where it is not; thresholds are met from both sides."""

from dataclasses import replace

import numpy as np
import pytest
from pipeline_data import pair_task, text_task

from spanloom.pipeline.facts import misfits
from spanloom.pipeline.facts.duplicates import Duplicates
from spanloom.pipeline.facts.lengths import summary
from spanloom.pipeline.facts.sentinels import SentinelsFound
from spanloom.settings.objectives import FullLM, SpanCorruption, Supervised
from spanloom.settings.vocabulary import Bytes
from spanloom.vocabularies.build import build

pytestmark = pytest.mark.short
BYTES = build(Bytes())
TEXT, PAIRS = text_task("a"), pair_task("a")


def lengths(cut: int, of: int):
    return summary([np.array([20] * cut + [5] * (of - cut))], 10, is_sample=False)


def test_targets_cut_in_more_than_one_percent_of_the_examples():
    fits = lengths(0, 1000)
    (said,) = misfits.truncated_misfits(PAIRS, {"inputs": fits, "targets": lengths(11, 1000)})
    assert "targets of 1.1% of the examples of task 'pairs' (11 of 1,000) are longer than 10 tokens" in said
    assert "the longest has 20" in said and "raise task.objective.targets_length" in said
    (said,) = misfits.truncated_misfits(PAIRS, {"inputs": lengths(500, 1000), "targets": fits})
    assert said.startswith("inputs of 50.0%") and "never sees the rest" in said
    assert not list(misfits.truncated_misfits(PAIRS, {"inputs": fits, "targets": lengths(10, 1000)}))


def test_sentinels_in_the_text():
    first, second = BYTES.sentinels[0], BYTES.sentinels[4]
    said = misfits.sentinel_misfit(TEXT, SentinelsFound(5000, False, {"tokens": {first: 2, second: 9}}), BYTES)
    assert said is not None and "11 of 5,000 tokens of the text of task 'text' are themselves sentinels" in said
    assert "(<extra_id_4> 9 times, <extra_id_0> 2 times)" in said and "take such marks out" in said
    many = SentinelsFound(9, True, {"tokens": dict.fromkeys(BYTES.sentinels[:7], 1)})
    said = misfits.sentinel_misfit(TEXT, many, BYTES)
    assert said is not None and "and 4 others" in said and "some shards of the text" in said
    assert misfits.sentinel_misfit(TEXT, SentinelsFound(5000, False), BYTES) is None


def test_sentinels_on_one_side_of_pairs_alone():
    one = {BYTES.sentinels[0]: 3}
    assert misfits.sentinel_misfit(PAIRS, SentinelsFound(9, False, {"inputs": one}), BYTES)
    both = SentinelsFound(9, False, {"inputs": one, "targets": one})
    assert misfits.sentinel_misfit(PAIRS, both, BYTES) is None, "pairs with masked spans are meant"


def test_copies_of_more_than_five_percent_of_the_documents():
    found = Duplicates(1000, 51, False, (BYTES.encode("Chapter " * 20),), 30)
    said = misfits.duplicate_misfit(TEXT, found, BYTES)
    assert said is not None and "5.1% of the documents of task 'text' are copies of others (51 of 1,000" in said
    assert "30 times: 'Chapter Chapter" in said and "...'" in said and "`deduplicate`" in said
    pairs = replace(found, is_sample=True, commonest=(BYTES.encode("a"), BYTES.encode("b")))
    said = misfits.duplicate_misfit(PAIRS, pairs, BYTES)
    assert said is not None and "51 in a sample of 1,000" in said and "'a' -> 'b'" in said and "of the pairs" in said
    assert misfits.duplicate_misfit(TEXT, replace(found, copies=50), BYTES) is None


def test_text_read_more_than_four_times():
    said = misfits.repeat_misfit("a", SpanCorruption(), 4.01)
    assert said is not None and "task 'a' is read 4.0 times" in said and "Muennighoff et al. 2023" in said
    assert "masked anew" in said and "fewer --steps" in said
    said = misfits.repeat_misfit("a", FullLM(), 100.0)
    assert said is not None and "masked" not in said
    assert misfits.repeat_misfit("a", SpanCorruption(), 4.0) is None
    assert misfits.repeat_misfit("a", Supervised(), 100.0) is None
