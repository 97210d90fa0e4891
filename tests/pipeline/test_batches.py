import json

import numpy as np
import pytest
from golden_data import golden_dir

from spanloom.pipeline.batches import fill_batch, join_batches, pad_rows, to_batch
from spanloom.tasks.block import Block


def convert(row):
    """An unpacked encoder-decoder row of convert_features.jsonl through our code: a list of examples' fields."""
    lengths = row["task_feature_lengths"]
    check = row.get("apply_length_check", True)
    padded = {}
    for name in ("inputs", "targets"):
        rows = [np.array(example[name][: None if check else lengths[name]], np.int32) for example in row["examples"]]
        padded[name] = pad_rows(rows, lengths[name])
    batch = to_batch(
        Block(padded["inputs"][0], padded["targets"][0], padded["inputs"][1], padded["targets"][1]),
        row.get("bos_id", 0),
    )
    return [{name: rows[i] for name, rows in batch.items()} for i in range(len(row["examples"]))]


def check_row(row):
    if "error" in row:
        with pytest.raises(ValueError, match="longer than"):
            convert(row)
        return
    for ours, theirs in zip(convert(row), row["outputs"], strict=True):
        assert {*ours} == {*theirs}
        real = np.array(theirs["decoder_loss_weights"]) > 0
        for name, expected in theirs.items():
            assert ours[name].dtype == row["output_dtypes"][name]
            used = real if name == "decoder_input_tokens" else np.ones(len(expected), bool)
            np.testing.assert_array_equal(ours[name][used], np.array(expected)[used], err_msg=f"{row['name']}: {name}")


def golden_rows(folder):
    rows = [json.loads(line) for path in sorted(folder.glob("convert_features*.jsonl")) for line in path.open()]
    return [row for row in rows if row["converter"] == "EncDec" and not row["pack"]]


@pytest.mark.golden
def test_batches_are_those_of_seqio():
    rows = [row for row in golden_rows(golden_dir("seqio")) if not row["defective"]]
    assert rows
    for row in rows:
        check_row(row)


@pytest.mark.golden
def test_zeros_inside_a_text_have_their_weight_where_seqio_loses_it():
    for row in golden_rows(golden_dir("seqio")):
        if row.get("defect_reasons") == ["interior_zero"]:
            for example, ours in zip(row["examples"], convert(row), strict=True):
                assert ours["decoder_loss_weights"].sum() == len(example["targets"])


def test_a_case_of_our_own_through_the_golden_code(tmp_path):
    case = {
        "name": "own",
        "converter": "EncDec",
        "pack": False,
        "task_feature_lengths": {"inputs": 3, "targets": 4},
        "examples": [{"inputs": [9], "targets": []}, {"inputs": [], "targets": [5, 6, 7, 1]}],
        "defective": False,
        "outputs": [
            {
                "encoder_input_tokens": [9, 0, 0],
                "decoder_target_tokens": [0, 0, 0, 0],
                "decoder_input_tokens": [0, 0, 0, 0],
                "decoder_loss_weights": [0, 0, 0, 0],
            },
            {
                "encoder_input_tokens": [0, 0, 0],
                "decoder_target_tokens": [5, 6, 7, 1],
                "decoder_input_tokens": [0, 5, 6, 7],
                "decoder_loss_weights": [1, 1, 1, 1],
            },
        ],
    }
    case["output_dtypes"] = dict.fromkeys(case["outputs"][0], "int32")
    (tmp_path / "convert_features.jsonl").write_text(json.dumps(case) + "\n")
    (row,) = golden_rows(tmp_path)
    check_row(row)
    row["outputs"][1]["decoder_input_tokens"][3] = 8
    with pytest.raises(AssertionError, match="decoder_input_tokens"):
        check_row(row)


@pytest.mark.short
def test_over_long_rows_are_counted():
    with pytest.raises(ValueError, match="2 of 3 rows are longer than 2 tokens; the longest has 5"):
        pad_rows([np.arange(5), np.arange(1), np.arange(3)], 2)


@pytest.mark.short
def test_the_last_batch_is_filled_with_weight_0():
    batch = to_batch(Block(np.ones((2, 3), np.int32), np.ones((2, 4), np.int32), np.array([3, 3]), np.array([4, 2])))
    filled = fill_batch(batch, 5)
    assert {name: rows.shape for name, rows in filled.items()} == {
        "encoder_input_tokens": (5, 3),
        "decoder_target_tokens": (5, 4),
        "decoder_input_tokens": (5, 4),
        "decoder_loss_weights": (5, 4),
    }
    assert filled["decoder_loss_weights"].sum(axis=1).tolist() == [4, 2, 0, 0, 0]
    assert all(not rows[2:].any() for rows in filled.values())
    assert fill_batch(batch, 2) is batch


def test_joined_batches_keep_their_rows_in_order():
    blocks = [
        Block(np.full((n, 2), n, np.int32), np.full((n, 2), n, np.int32), np.full(n, 2), np.full(n, 2)) for n in (1, 2)
    ]
    joined = join_batches([to_batch(block) for block in blocks])
    assert joined["encoder_input_tokens"].tolist() == [[1, 1], [2, 2], [2, 2]]
