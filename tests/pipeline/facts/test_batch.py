import numpy as np
import pytest
from pipeline_data import ragged_of

from spanloom.pipeline.facts.batch import batch_facts, segments_of
from spanloom.pipeline.packed_rows import decoder_rows, encoder_decoder_rows, prefix_rows
from spanloom.settings.vocabulary import Bytes
from spanloom.vocabularies.build import build

pytestmark = pytest.mark.short
BYTES = build(Bytes())
S0 = BYTES.sentinels[0]
INPUTS = ragged_of([[70, S0, 71, 1], [0, 72, 1], [73, 1]], np.int32)
TARGETS = ragged_of([[S0, 80, 1], [], [81, 0, 1]], np.int32)
ROWS = np.array([0, 2, 3])


def lengths(row):
    return [segment.lengths for segment in row.segments]


def test_rows_of_one_example_each():
    batch = encoder_decoder_rows(INPUTS, TARGETS, (6, 4))
    facts = batch_facts(batch, BYTES, [["a"], ["b"], ["a"]], in_full=1)
    assert not facts.is_packed and facts.num_segments == 3 and facts.widths == {"encoder": 6, "decoder": 4}
    assert [lengths(row)[0] for row in facts.rows] == [
        {"encoder": 4, "decoder": 3},
        {"encoder": 3, "decoder": 0},
        {"encoder": 2, "decoder": 3},
    ]
    assert facts.tokens == {"encoder": 9, "decoder": 6}
    assert facts.padding("encoder") == 0.5 and facts.padding("decoder") == 0.5
    assert [row.segments[0].task for row in facts.rows] == ["a", "b", "a"]
    shown = facts.rows[0].segments[0].pieces
    assert [(piece.kind, piece.span) for piece in shown["encoder"]] == [
        ("text", None),
        ("sentinel", 0),
        ("text", None),
        ("eos", None),
    ]
    assert [(piece.kind, piece.span) for piece in shown["decoder"]] == [("sentinel", 0), ("text", 0), ("eos", 0)]
    assert facts.rows[1].segments[0].pieces == {"encoder": (), "decoder": ()}


def test_segments_of_packed_rows_are_told_apart_zeros_and_empty_targets_included():
    batch = encoder_decoder_rows(INPUTS, TARGETS, (8, 4), ROWS)
    facts = batch_facts(batch, BYTES, [["a", "b"]], in_full=2)
    assert facts.is_packed and facts.num_segments == 3 and len(facts.rows) == 2
    assert lengths(facts.rows[0]) == [{"encoder": 4, "decoder": 3}, {"encoder": 3, "decoder": 0}]
    assert lengths(facts.rows[1]) == [{"encoder": 2, "decoder": 3}]
    assert [segment.number for segment in facts.rows[0].segments] == [1, 2]
    assert facts.rows[0].used("encoder") == 7 and facts.padding("encoder") == 1 - 9 / 16
    text = ["".join(piece.text for piece in segment.pieces["encoder"]) for segment in facts.rows[0].segments]
    assert text == ["C<extra_id_0>D</s>", "<pad>E</s>"]
    assert [[segment.task for segment in row.segments] for row in facts.rows] == [["a", "b"], [""]]


@pytest.mark.parametrize("rows", [None, ROWS])
def test_a_batch_without_an_encoder(rows):
    facts = batch_facts(decoder_rows(TARGETS, 6, rows), BYTES)
    assert facts.widths == {"decoder": 6} and facts.tokens == {"decoder": 6} and facts.is_packed == (rows is not None)
    facts = batch_facts(prefix_rows(INPUTS, TARGETS, 12, rows), BYTES, in_full=1)
    assert facts.tokens == {"decoder": 15}, "inputs have no weight, but are no padding"


def test_rows_of_padding_have_no_segments():
    batch = encoder_decoder_rows(ragged_of([[]], np.int32), ragged_of([[]], np.int32), (3, 2))
    facts = batch_facts(batch, BYTES, in_full=1)
    assert facts.rows[0].segments == () and facts.padding("encoder") == 1.0 and facts.num_segments == 0
    assert segments_of(batch, "encoder").tolist() == [[0, 0, 0]]
