import numpy as np
import pytest
from pipeline_data import pair_task, text_task

from spanloom.pipeline.rows import encode_rows
from spanloom.settings.vocabulary import Bytes
from spanloom.vocabularies.build import build

BYTES = build(Bytes())


def rows_of(task, *examples):
    return {name: [row.tolist() for row in rows] for name, rows in encode_rows(task, BYTES, examples).items()}


@pytest.mark.short
def test_documents_end_in_the_separator():
    assert rows_of(text_task(), {"text": "ab"}, {"text": "c"}) == {"tokens": [[100, 101, 1], [102, 1]]}


def test_no_separator_on_request_and_for_seqio_batches():
    assert rows_of(text_task(separator="none"), {"text": "ab"}) == {"tokens": [[100, 101]]}
    assert rows_of(text_task(concat_documents=128), {"text": "ab"}) == {"tokens": [[100, 101]]}
    assert rows_of(text_task(concat_documents=128, separator="eos"), {"text": "ab"}) == {"tokens": [[100, 101, 1]]}


def test_empty_documents_give_no_row_and_no_separator():
    assert rows_of(text_task(), {"text": ""}, {"text": "c"}) == {"tokens": [[102, 1]]}


def test_pairs_keep_empty_sides_and_nul():
    assert rows_of(pair_task(), {"inputs": "", "targets": "a\0"}) == {"inputs": [[]], "targets": [[100, 3]]}


def test_a_source_that_does_not_fit_the_objective_is_named():
    with pytest.raises(ValueError, match=r"field 'text'.*\['inputs', 'targets'\].*PairFiles"):
        encode_rows(text_task(), BYTES, [{"inputs": "a", "targets": "b"}])
    with pytest.raises(ValueError, match="field 'inputs'"):
        encode_rows(pair_task(), BYTES, [{"text": "a"}])


def test_rows_do_not_depend_on_their_neighbours():
    texts = [{"text": text} for text in ("one", "two", "", "three")]
    together = encode_rows(text_task(), BYTES, texts)["tokens"]
    apart = [row for text in texts for row in encode_rows(text_task(), BYTES, [text])["tokens"]]
    np.testing.assert_array_equal(np.concatenate(together), np.concatenate(apart))
