"""Examples of every objective laid out: nothing lost, each span under one number on both sides."""

import numpy as np
import pytest

from spanloom.pipeline.dataset import DrawnExample
from spanloom.pipeline.facts.pieces import LaidOut, lay_out, marked_pieces, plain_pieces, reserved_sentinels
from spanloom.settings.objectives import (
    UL2,
    FullLM,
    IidDenoising,
    PrefixLM,
    SpanCorruption,
    Supervised,
    TextInfilling,
    TokenStream,
)
from spanloom.settings.vocabulary import Bytes
from spanloom.tasks.objectives.build import denoiser_of
from spanloom.tasks.randomness import hash64
from spanloom.vocabularies.build import build

pytestmark = pytest.mark.short
BYTES = build(Bytes())
TEXT = "Le café déjà vu — 水水 שלום, snö och book, 😀 again and again and again, "
MASKING = [
    SpanCorruption(inputs_length=64),
    SpanCorruption(inputs_length=64, random_roll=True),
    IidDenoising(inputs_length=64),
    UL2(inputs_length=64),
    UL2(inputs_length=64, modes=("[R]", "[S]", "[X]")),
]


def drawn(objective: TokenStream, vocabulary=BYTES, text: str = TEXT * 3, count: int = 40) -> list[DrawnExample]:
    """Examples of one text, each with noise of its own."""
    made = denoiser_of(objective, vocabulary)
    tokens = vocabulary.encode(text)[: made.raw_length]
    keys = hash64(5, np.arange(count))
    block = made.make(np.tile(tokens, (count, 1)), keys)
    return [
        DrawnExample(
            raw=tokens,
            inputs=block.inputs[row, : block.input_lengths[row]],
            targets=block.targets[row, : block.target_lengths[row]],
            number=row,
            epoch=0,
            key=int(keys[row]),
        )
        for row in range(count)
    ]


def ids_of(pieces) -> list[int]:
    return [id_ for piece in pieces for id_ in piece.ids]


def spans_of(pieces) -> dict[int, list[int]]:
    """Ids of each span, sentinels left out."""
    found: dict[int, list[int]] = {}
    for piece in pieces:
        if piece.span is not None and piece.kind != "sentinel":
            found.setdefault(piece.span, []).extend(piece.ids)
    return found


@pytest.mark.parametrize("objective", [*MASKING, TextInfilling(64), PrefixLM(64), FullLM(targets_length=64)], ids=repr)
def test_no_id_is_lost_or_made_up(objective):
    for example in drawn(objective):
        shown = lay_out(example, objective, BYTES)
        assert ids_of(shown.inputs) == example.inputs.tolist()
        assert ids_of(shown.targets) == example.targets.tolist()
        assert not shown.text or ids_of(shown.text) == example.raw.tolist()
        assert not any(piece.kind == "stray" for piece in (*shown.inputs, *shown.targets))


@pytest.mark.parametrize("objective", MASKING, ids=repr)
def test_a_span_has_one_number_in_inputs_targets_and_text(objective):
    numbers = set()
    for example in drawn(objective):
        shown = lay_out(example, objective, BYTES)
        if shown.mode == "S":
            assert not shown.text and not spans_of((*shown.inputs, *shown.targets))
            continue
        in_text, in_targets = spans_of(shown.text), spans_of(shown.targets[:-1])
        asked = [piece.span for piece in shown.inputs if piece.kind == "sentinel"]
        assert asked == list(range(len(asked))) == list(in_text)
        assert in_text == in_targets
        assert ids_of(piece for piece in shown.text if piece.span is None) == [
            id_ for piece in shown.inputs[:-1] if piece.kind in ("text", "eos") for id_ in piece.ids
        ]
        numbers |= set(in_text)
    assert len(numbers) >= 3


def test_masks_of_text_infilling_are_told_apart_though_they_are_one_id():
    objective = TextInfilling(64)
    empty = 0
    for example in drawn(objective):
        shown = lay_out(example, objective, BYTES)
        spans, filled = spans_of(shown.targets), []
        for piece in shown.inputs:
            filled += spans.get(piece.span, []) if piece.kind == "sentinel" else piece.ids
            empty += piece.kind == "sentinel" and piece.span not in spans
        assert filled == example.targets.tolist()
        assert {piece.text for piece in shown.inputs if piece.kind == "sentinel"} == {"<extra_id_0>"}
    assert empty, "some masks stand for nothing"


@pytest.mark.parametrize("objective", MASKING[-2:], ids=repr)
def test_the_mode_of_ul2_is_named(objective):
    shown = [lay_out(example, objective, BYTES) for example in drawn(objective)]
    assert {one.mode for one in shown} == {"R", "S", "X"}
    for one in shown:
        assert one.inputs[0].kind == "mode"
        expected = {"R": "<extra_id_122>", "S": "<extra_id_123>", "X": "<extra_id_124>"}
        assert one.inputs[0].text == (f"[{one.mode}]" if objective.modes else expected[one.mode])
    spans = SpanCorruption(inputs_length=64)
    assert lay_out(drawn(spans)[0], spans, BYTES).mode == ""


def test_a_character_that_a_span_cuts_shows_as_its_bytes_on_both_sides():
    raw = BYTES.encode("caf\u00e9!")
    first, second = BYTES.sentinels[:2]
    example = DrawnExample(
        raw=raw,
        inputs=np.array([*raw[:4], first, 1]),
        targets=np.array([first, *raw[4:], second, 1]),
        number=0,
        epoch=0,
        key=0,
    )
    shown = lay_out(example, SpanCorruption(inputs_length=64), BYTES)
    assert [piece.text for piece in shown.inputs] == ["caf\\xc3", "<extra_id_0>", "</s>"]
    assert [piece.text for piece in shown.targets] == ["<extra_id_0>", "\\xa9!", "<extra_id_1>", "</s>"]
    assert [(piece.text, piece.span) for piece in shown.text] == [("caf\\xc3", None), ("\\xa9!", 0)]


def test_a_sentinel_in_the_text_is_a_stray_and_spoils_no_other():
    objective = SpanCorruption(inputs_length=64)
    (example,) = drawn(objective, count=1)
    stray = BYTES.sentinels[7]
    inputs = np.insert(example.inputs, 0, stray)
    shown = lay_out(DrawnExample(np.insert(example.raw, 0, stray), inputs, example.targets, 0, 0, 0), objective, BYTES)
    assert (shown.inputs[0].kind, shown.inputs[0].text) == ("stray", "<extra_id_7>")
    assert [piece.span for piece in shown.inputs if piece.kind == "sentinel"] == list(spans_of(shown.targets[:-1]))
    assert shown.text[0].kind == "stray" and ids_of(shown.text)[1:] == example.raw.tolist()
    first = np.insert(example.inputs, 0, BYTES.sentinels[0])  # taken for the first span, so the rest is out of step
    shown = lay_out(DrawnExample(np.insert(example.raw, 0, stray), first, example.targets, 0, 0, 0), objective, BYTES)
    assert ids_of(shown.inputs) == first.tolist() and ids_of(shown.text)[1:] == example.raw.tolist()


def test_pairs_and_language_models_are_text_and_ends():
    pair = DrawnExample(
        BYTES.encode("b"), np.array([*BYTES.encode("a"), 1]), np.array([*BYTES.encode("b"), 1]), 0, 0, 0
    )
    shown = lay_out(pair, Supervised(), BYTES)
    assert [(piece.kind, piece.text) for piece in shown.inputs] == [("text", "a"), ("eos", "</s>")]
    assert [(piece.kind, piece.text) for piece in shown.targets] == [("text", "b"), ("eos", "</s>")]
    assert shown.text == () and isinstance(shown, LaidOut)
    full = FullLM(targets_length=64)
    (example,) = drawn(full, count=1)
    assert [piece.kind for piece in lay_out(example, full, BYTES).inputs] == ["eos"]


def test_bytes_that_serve_as_sentinels_are_text_where_they_are_not_in_use():
    google = build(Bytes("google", google_sentinels=30))
    objective = SpanCorruption(inputs_length=64, mean_span_length=20.0)
    used = reserved_sentinels(objective, google)
    assert used == google.sentinels[: len(used)] and len(used) < 5
    (example,) = drawn(objective, google, "\U0001f600" * 40, count=1)  # its first byte is the 15th sentinel
    shown = lay_out(example, objective, google)
    assert ids_of(shown.inputs) == example.inputs.tolist()
    assert not any(piece.kind == "stray" for piece in shown.inputs)
    assert reserved_sentinels(PrefixLM(64), google) == reserved_sentinels(Supervised(), google) == google.sentinels[:11]
    assert reserved_sentinels(UL2(inputs_length=64), google)[-3:] == google.sentinels[-3:]
    assert reserved_sentinels(objective, BYTES) == reserved_sentinels(PrefixLM(64), BYTES) == BYTES.sentinels


def test_marks_of_an_unknown_objective_go_by_their_own_numbers():
    ids = [BYTES.sentinels[3], *BYTES.encode("ab"), 1, BYTES.sentinels[0], 1]
    assert [(piece.kind, piece.span) for piece in marked_pieces(ids, BYTES, in_spans=True)] == [
        ("sentinel", 3),
        ("text", 3),
        ("eos", 3),
        ("sentinel", 0),
        ("eos", 0),
    ]
    assert [piece.span for piece in marked_pieces(ids, BYTES, in_spans=False)] == [3, None, None, 0, None]
    assert plain_pieces([], BYTES) == ()
