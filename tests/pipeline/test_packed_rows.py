"""Fields of packed and unpacked batches: SeqIO's values, better ones where SeqIO is wrong, and the model's view."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest
from golden_data import golden_dir
from hypothesis import given, settings
from hypothesis import strategies as st
from pipeline_data import ragged_of

from spanloom.model.params import declare, initialize
from spanloom.model.t5 import forward
from spanloom.pipeline.batches import Batch
from spanloom.pipeline.packed_rows import decoder_rows, encoder_decoder_rows, joined, prefix_rows, trimmed
from spanloom.pipeline.packing import Packs, next_fit, pack_windows
from spanloom.pipeline.shards import Ragged
from spanloom.settings.model import Model

Example = dict[str, list[int]]
FEATURES = {"EncDec": ("inputs", "targets"), "LM": ("targets",), "PrefixLM": ("both",)}


def rows_of(rows) -> Ragged:
    return ragged_of(rows, np.int32)


def read_golden(folder: Path) -> list[dict]:
    return [json.loads(line) for path in sorted(folder.glob("convert_features*.jsonl")) for line in path.open()]


def slots_of(row: dict) -> tuple[int, ...]:
    """Room of each feature of the converter; a prefix LM has inputs and targets in one."""
    lengths = row["task_feature_lengths"]
    return tuple(sum(lengths.values()) if name == "both" else lengths[name] for name in FEATURES[row["converter"]])


def lengths_of(row: dict, examples: list[Example]) -> np.ndarray:
    """(examples, features)."""
    both = [{**example, "both": [*example.get("inputs", []), *example["targets"]]} for example in examples]
    sizes = [[len(example[name]) for name in FEATURES[row["converter"]]] for example in both]
    return np.array(sizes, np.int64).reshape(len(examples), len(FEATURES[row["converter"]]))


def seqio_packs(row: dict, examples: list[Example]) -> Packs:
    """Rows as SeqIO packs them: next-fit, and a row is closed after so many examples as the longest slot has tokens."""
    slots, lengths = slots_of(row), lengths_of(row, examples)
    period, rows_N = max(slots), np.empty(0, np.int64)
    for first in range(0, len(examples), period):
        here = next_fit(lengths[None, first : first + period], slots)[0]
        rows_N = np.concatenate([rows_N, here + (rows_N[-1] + 1 if len(rows_N) else 0)])
    return Packs(np.arange(len(examples)), np.concatenate([[0], np.cumsum(np.bincount(rows_N))]))


def convert(row: dict, examples: list[Example], packs: Packs | None) -> Batch:
    """The examples through our code."""
    chosen = [examples[i] for i in packs.examples] if packs else examples
    targets = rows_of([example["targets"] for example in chosen])
    inputs = rows_of([example.get("inputs", []) for example in chosen])
    rows, bos_id, slots = packs.offsets if packs else None, row.get("bos_id", 0), slots_of(row)
    if not row.get("apply_length_check", True):
        inputs, targets = (
            trimmed(part, row["task_feature_lengths"][name])
            for part, name in ((inputs, "inputs"), (targets, "targets"))
        )
    if row["converter"] == "EncDec":
        return encoder_decoder_rows(inputs, targets, slots, rows, bos_id)
    if row["converter"] == "LM":
        return decoder_rows(targets, slots[0], rows, bos_id)
    only = row.get("loss_on_targets_only", True)
    return prefix_rows(inputs, targets, slots[0], rows, bos_id, loss_on_targets_only=only)


def cut(row: dict) -> list[Example]:
    """The row's examples, trimmed where SeqIO trims them."""
    if row.get("apply_length_check", True):
        return row["examples"]
    widths = row["task_feature_lengths"]
    return [{name: ids[: widths[name]] for name, ids in example.items()} for example in row["examples"]]


def check_row(row: dict) -> None:
    """All fields equal; decoder inputs where they count."""
    if "error" in row:
        with pytest.raises(ValueError, match="longer than"):
            convert(row, row["examples"], None)
        with pytest.raises(ValueError, match="longer than"):
            pack_windows(lengths_of(row, row["examples"])[None], slots_of(row))
        return
    examples = cut(row)
    batch = convert(row, row["examples"], seqio_packs(row, examples) if row["pack"] else None)
    for number, theirs in enumerate(row["outputs"]):
        assert {*batch} == {*theirs}
        real = np.array(theirs["decoder_loss_weights"]) > 0
        for name, expected in theirs.items():
            assert batch[name].dtype == row["output_dtypes"][name]
            used = real if name == "decoder_input_tokens" else np.ones(len(expected), bool)
            np.testing.assert_array_equal(
                batch[name][number][used], np.array(expected)[used], err_msg=f"{row['name']}: {name}"
            )
    assert all(len(rows) == len(row["outputs"]) for rows in batch.values()), row["name"]


def segments_of(batch: Batch) -> list[tuple]:
    """Every segment of a packed batch with all of its fields, sorted."""
    found = []
    for number in range(len(batch["decoder_target_tokens"])):
        fields = {name: rows[number] for name, rows in batch.items()}
        ids = {
            side: fields[f"{side}_segment_ids"] for side in ("encoder", "decoder") if f"{side}_segment_ids" in fields
        }
        for segment in range(1, max(int(of_side.max(initial=0)) for of_side in ids.values()) + 1):
            here = {name: values[ids[name.split("_")[0]] == segment] for name, values in fields.items()}
            found.append(tuple(sorted((n, tuple(v.tolist())) for n, v in here.items() if "segment_ids" not in n)))
    return sorted(found)


def check_better_packing(row: dict) -> None:
    """Best-fit's rows hold the segments that SeqIO's rows hold."""
    examples = cut(row)
    (packs,) = pack_windows(lengths_of(row, examples)[None], slots_of(row))
    theirs = {name: np.array([output[name] for output in row["outputs"]]) for name in row["outputs"][0]}
    assert segments_of(convert(row, examples, packs)) == segments_of(theirs)


def check_right_answer(row: dict) -> None:
    """Rows where SeqIO is wrong: every token of every example is there, with its segment, position and weight."""
    examples = row["examples"]
    packs = seqio_packs(row, examples) if row["pack"] else None
    batch = convert(row, examples, packs)
    groups = np.split(np.arange(len(examples)), packs.offsets[1:-1]) if packs else np.arange(len(examples))[:, None]
    for number, group in enumerate(groups):
        expected = expected_row(row, [examples[i] for i in group])
        for name, values in expected.items():
            padded = values + [0] * (batch[name].shape[1] - len(values))
            assert batch[name][number].tolist()[: len(values)] == values, f"{row['name']}: {name}"
            if name != "decoder_input_tokens":
                assert batch[name][number].tolist() == padded, f"{row['name']}: {name}"


def expected_row(row: dict, examples: list[Example]) -> dict[str, list[int]]:
    """The fields of one row, written down token by token."""
    fields: dict[str, list[int]] = {}

    def add(name: str, values: list[int]) -> None:
        fields.setdefault(name, []).extend(values)

    for segment, example in enumerate(examples, 1):
        inputs, targets = example.get("inputs", []), example["targets"]
        sequence = inputs + targets if row["converter"] == "PrefixLM" else targets
        sides = {"decoder": sequence, **({"encoder": inputs} if row["converter"] == "EncDec" else {})}
        if row["converter"] == "EncDec":
            add("encoder_input_tokens", inputs)
        add("decoder_target_tokens", sequence)
        add("decoder_input_tokens", [row.get("bos_id", 0), *sequence][: len(sequence)])
        unweighted = len(inputs) if row["converter"] == "PrefixLM" and row.get("loss_on_targets_only", True) else 0
        add("decoder_loss_weights", [0] * unweighted + [1] * (len(sequence) - unweighted))
        if row["converter"] == "PrefixLM":
            add("decoder_causal_attention", [int(i <= len(inputs)) for i in range(len(sequence))])
        for side, tokens in sides.items() if row["pack"] else ():
            add(f"{side}_segment_ids", [segment] * len(tokens))
            add(f"{side}_positions", list(range(len(tokens))))
    return fields


@pytest.mark.golden
def test_fields_are_those_of_seqio():
    rows = [row for row in read_golden(golden_dir("seqio")) if not row["defective"]]
    assert {row["converter"] for row in rows} == {*FEATURES}
    for row in rows:
        check_row(row)


@pytest.mark.golden
def test_a_better_packing_holds_the_segments_of_seqio():
    rows = [row for row in read_golden(golden_dir("seqio")) if not row["defective"] and row["pack"]]
    rows = [row for row in rows if row.get("outputs")]
    assert rows
    for row in rows:
        check_better_packing(row)


@pytest.mark.golden
def test_where_seqio_is_wrong_nothing_is_lost():
    rows = [row for row in read_golden(golden_dir("seqio")) if row["defective"]]
    right = [row for row in rows if "padding_in_example" not in row["defect_reasons"]]
    assert right
    for row in right:
        check_right_answer(row)


def own_case(converter: str, pack: bool) -> dict:
    examples = [
        {"inputs": [9, 0, 1], "targets": []},
        {"inputs": [], "targets": [5, 0, 1]},
        {"inputs": [7], "targets": [1]},
    ]
    row = {"name": "own", "converter": converter, "pack": pack, "examples": examples, "defective": False, "bos_id": 2}
    row["task_feature_lengths"] = {"inputs": 4, "targets": 4} if converter != "LM" else {"targets": 4}
    packs = seqio_packs(row, examples) if pack else None
    groups = np.split(np.arange(3), packs.offsets[1:-1]) if packs else np.arange(3)[:, None]
    slots = slots_of(row)
    row["outputs"] = [
        {
            name: values + [0] * ((slots[0] if name.startswith("encoder") else slots[-1]) - len(values))
            for name, values in expected_row(row, [examples[i] for i in group]).items()
        }
        for group in groups
    ]
    row["output_dtypes"] = dict.fromkeys(row["outputs"][0], "int32")
    return row


@pytest.mark.parametrize("converter", FEATURES)
@pytest.mark.parametrize("pack", [True, False])
def test_a_case_of_our_own_through_the_golden_code(converter, pack, tmp_path):
    (tmp_path / "convert_features.jsonl").write_text(json.dumps(own_case(converter, pack)) + "\n")
    (row,) = read_golden(tmp_path)
    check_row(row)
    check_right_answer(row)
    if pack:
        check_better_packing(row)
    wrong = json.loads(json.dumps(row))
    wrong["outputs"][-1]["decoder_target_tokens"][0] += 1
    with pytest.raises(AssertionError, match="decoder_target_tokens"):
        check_row(wrong)


@pytest.mark.short
def test_segments_have_one_number_on_both_sides():
    inputs, targets = rows_of([[9, 0, 1], [], [7]]), rows_of([[], [5, 1], [1]])
    batch = encoder_decoder_rows(inputs, targets, (5, 4), np.array([0, 3]), bos_id=2)
    assert {name: rows[0].tolist() for name, rows in batch.items()} == {
        "encoder_input_tokens": [9, 0, 1, 7, 0],
        "encoder_segment_ids": [1, 1, 1, 3, 0],
        "encoder_positions": [0, 1, 2, 0, 0],
        "decoder_target_tokens": [5, 1, 1, 0],
        "decoder_input_tokens": [2, 5, 2, 0],
        "decoder_loss_weights": [1, 1, 1, 0],
        "decoder_segment_ids": [2, 2, 3, 0],
        "decoder_positions": [0, 1, 0, 0],
    }


@pytest.mark.short
def test_a_prefix_sees_itself_and_one_more():
    batch = prefix_rows(rows_of([[4, 5], [6]]), rows_of([[7, 8, 1], []]), 8, np.array([0, 2]))
    assert batch["decoder_causal_attention"].tolist() == [[1, 1, 1, 0, 0, 1, 0, 0]]
    assert batch["decoder_loss_weights"].tolist() == [[0, 0, 1, 1, 1, 0, 0, 0]]


tokens = st.lists(st.integers(0, 9), max_size=6)


@settings(deadline=None)
@given(
    st.lists(st.tuples(tokens, tokens), min_size=1, max_size=20), st.sampled_from([*FEATURES]), st.none() | st.just(2)
)
def test_every_token_is_there_once(pairs, converter, max_segments):
    examples = [{"inputs": inputs, "targets": targets} for inputs, targets in pairs]
    row = {"name": "any", "converter": converter, "pack": True, "task_feature_lengths": {"inputs": 9, "targets": 7}}
    (packs,) = pack_windows(lengths_of(row, examples)[None], slots_of(row), max_segments)
    batch = convert(row, examples, packs)
    for number, group in enumerate(np.split(packs.examples, packs.offsets[1:-1])):
        for name, values in expected_row(row, [examples[i] for i in group]).items():
            width = batch[name].shape[1]
            assert batch[name][number].tolist() == values + [0] * (width - len(values)), name


@pytest.mark.short
def test_rows_that_do_not_fit_are_counted():
    long = rows_of([[1] * 5, [1], [1] * 7])
    with pytest.raises(ValueError, match="2 of 3 rows are longer than 4 tokens; the longest has 7"):
        decoder_rows(long, 4)
    with pytest.raises(ValueError, match="1 of 2 rows are longer than 6 tokens; the longest has 7"):
        encoder_decoder_rows(trimmed(long, 1), long, (6, 6), np.array([0, 2, 3]))
    with pytest.raises(ValueError, match="rows of 2 examples, but there are 3"):
        decoder_rows(long, 9, np.array([0, 2]))


def test_no_segment_sees_another_in_the_model():
    config = Model(
        vocab_size=64, d_model=16, d_ff=32, num_heads=2, d_kv=8, num_encoder_layers=1, num_decoder_layers=1, dropout=0.0
    )
    params = initialize(declare(config), jax.random.key(0))
    logits_of = jax.jit(lambda batch: forward(params, config, batch))
    random = np.random.default_rng(0)
    inputs = rows_of([random.integers(1, 63, n) for n in (5, 3, 4, 6)])
    targets = rows_of([random.integers(1, 63, n) for n in (4, 2, 1, 3)])
    alone = encoder_decoder_rows(inputs, targets, (6, 4))
    packed = encoder_decoder_rows(inputs, targets, (13, 8), np.array([0, 3, 4]))
    logits = np.asarray(logits_of(packed))
    expected = np.asarray(logits_of(alone))[alone["decoder_loss_weights"] > 0]
    np.testing.assert_allclose(logits[packed["decoder_loss_weights"] > 0], expected, atol=2e-5)
    second = packed["encoder_segment_ids"] == 2
    changed = packed["encoder_input_tokens"] + (second & (np.arange(2) == 0)[:, None])
    moved = np.asarray(logits_of(packed | {"encoder_input_tokens": changed})) != logits
    is_second = (packed["decoder_segment_ids"] == 2) & (np.arange(2) == 0)[:, None]
    real = packed["decoder_loss_weights"] > 0
    assert moved[is_second].any(axis=-1).all()
    assert not moved[real & ~is_second].any()


@pytest.mark.short
def test_joined_rows_are_inputs_then_targets():
    both = joined(rows_of([[1, 2], [], [3]]), rows_of([[4], [5], []]))
    assert both.values.tolist() == [1, 2, 4, 5, 3] and both.offsets.tolist() == [0, 3, 4, 5]
