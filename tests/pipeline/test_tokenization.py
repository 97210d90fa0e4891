from itertools import pairwise

import numpy as np
import pytest
from pipeline_data import pair_task, text_task

from spanloom.pipeline.tokenization import encode
from spanloom.settings.vocabulary import Bytes
from spanloom.vocabularies.build import build

BYTES = build(Bytes())


DTYPE = np.dtype(np.uint16)


def rows_of(task, **documents):
    columns = {name: [text.encode() for text in texts] for name, texts in documents.items()}
    made = encode(task, BYTES, columns, DTYPE)
    assert all(column.values.dtype == DTYPE for column in made.values())
    return {name: [column.values[a:b].tolist() for a, b in pairwise(column.offsets)] for name, column in made.items()}


@pytest.mark.short
def test_documents_end_in_the_separator():
    assert rows_of(text_task(), text=["ab", "c"]) == {"tokens": [[100, 101, 1], [102, 1]]}


def test_no_separator_on_request_and_for_seqio_batches():
    assert rows_of(text_task(separator="none"), text=["ab"]) == {"tokens": [[100, 101]]}
    assert rows_of(text_task(concat_documents=128), text=["ab"]) == {"tokens": [[100, 101]]}
    assert rows_of(text_task(concat_documents=128, separator="eos"), text=["ab"]) == {"tokens": [[100, 101, 1]]}


def test_empty_documents_give_no_row_and_no_separator():
    assert rows_of(text_task(), text=["", "c"]) == {"tokens": [[102, 1]]}


def test_pairs_keep_empty_sides_and_nul():
    assert rows_of(pair_task(), inputs=[""], targets=["a\0"]) == {"inputs": [[]], "targets": [[100, 3]]}


def test_a_source_that_does_not_fit_the_objective_is_named():
    with pytest.raises(ValueError, match=r"field 'text'.*\['inputs', 'targets'\].*PairFiles"):
        rows_of(text_task(), inputs=["a"], targets=["b"])
    with pytest.raises(ValueError, match="field 'inputs'"):
        rows_of(pair_task(), text=["a"])


def test_rows_do_not_depend_on_their_neighbours():
    texts = ["one", "two", "", "three"]
    apart = [row for text in texts for row in rows_of(text_task(), text=[text])["tokens"]]
    assert rows_of(text_task(), text=texts) == {"tokens": apart}
