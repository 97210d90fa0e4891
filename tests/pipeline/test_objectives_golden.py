"""t5.data's joining and splitting of documents and its language models, as the objectives and chunks make them."""

import json

import numpy as np
import pytest
from golden_data import golden_dir
from pipeline_data import column_of

from spanloom.pipeline.chunks import chunks_of
from spanloom.pipeline.examples import StreamExamples
from spanloom.pipeline.store import Store
from spanloom.settings.objectives import FullLM, PrefixLM, TokenStream
from spanloom.settings.vocabulary import Bytes
from spanloom.tasks.objectives.prefix_lm import least_prefix, prefix_lengths
from spanloom.tasks.randomness import hash64
from spanloom.vocabularies.build import build

BYTES = build(Bytes("google"))
WHOLE = 10**6


def documents_of(row: dict, end: tuple[int, ...] = ()) -> list[list[int]]:
    """Documents as stores hold them: those without tokens give no row."""
    return [[*example["targets"], *end] for example in row["inputs"] if example["targets"]]


def pieces(documents: list[list[int]], raw_length: int, **joining) -> list[dict]:
    column = column_of(documents)
    chunks = chunks_of(column, raw_length, TokenStream(**joining))
    located = zip(*chunks.locate(np.arange(chunks.num_examples)), strict=True)
    return [{"targets": column.slice(start, start + length).tolist()} for start, length in located]


def examples_of(documents: list[list[int]], objective: TokenStream) -> list[dict]:
    """Inputs and targets without padding, as the pipeline makes them."""
    store = Store(None, {}, {"tokens": column_of(documents)})  # type: ignore[arg-type]
    examples = StreamExamples(store, objective, BYTES)
    block = examples.make(np.arange(examples.num_examples), hash64(0, np.arange(examples.num_examples)))
    rows = zip(block.inputs, block.targets, block.target_lengths, strict=True)
    return [
        {"inputs": np.trim_zeros(inputs, "b").tolist(), "targets": targets[:length].tolist()}
        for inputs, targets, length in rows
    ]


def check_reduce_concat_tokens(row: dict) -> None:
    found = pieces(documents_of(row), WHOLE, concat_documents=row["args"]["batch_size"])
    if row["defective"]:  # ids of 0 are tokens like any other
        assert found == [{"targets": [token for document in documents_of(row) for token in document]}]
    else:
        assert found == row["outputs"]


def check_split_tokens(row: dict) -> None:
    found = pieces(documents_of(row), row["args"]["max_tokens_per_segment"], merge=False)
    assert found == row["outputs"]


def check_concatenate_and_split(row: dict) -> None:
    length = row["args"]["sequence_length"]["targets"] - 1  # room for the end of sequence
    assert pieces(documents_of(row), length) == row["outputs"]


def check_full_lm(row: dict) -> None:
    objective = FullLM(targets_length=row["args"]["sequence_length"]["targets"])
    found = examples_of(documents_of(row, end=(BYTES.eos_id,)), objective)
    assert [{"targets": example["targets"]} for example in found] == row["outputs"]


def check_prefix_lm(row: dict) -> None:
    """Where a piece is split is random: the pieces are the same, and where they may be split."""
    length = row["args"]["sequence_length"]["inputs"]
    objective = PrefixLM(length, noise_density=row["args"]["noise_density"], merge=False)
    found = examples_of(documents_of(row), objective)
    for example, wanted in zip(found, row["outputs"], strict=True):
        assert example["inputs"].pop() == example["targets"].pop() == BYTES.eos_id
        whole = wanted["inputs"] + wanted["targets"]
        assert example["inputs"] + example["targets"] == whole
        assert min(1, len(whole) - 1) <= len(example["inputs"]) <= len(whole) - 1


def check_random_prefix(row: dict) -> None:
    for case in row["distribution"]:
        length, density = case["length"], case["noise_density"]
        assert (least_prefix(length, density), length - 1) == (case["prefix_min"], case["prefix_max"])
        drawn = prefix_lengths(hash64(length, np.arange(case["draws"])), length, density)
        ours, theirs = np.bincount(drawn, minlength=length + 1), np.array(case["prefix_length_counts"])
        assert (ours[theirs == 0] == 0).all() and (theirs[ours == 0] == 0).all()
        both = (ours + theirs)[ours + theirs > 0]
        distance = ((ours - theirs)[ours + theirs > 0] ** 2 / both).sum()
        assert distance < len(both) + 5 * np.sqrt(2 * len(both)), (length, density)


CHECKS = {
    "reduce_concat_tokens": check_reduce_concat_tokens,
    "split_tokens": check_split_tokens,
    "concatenate_and_split_to_fixed_length": check_concatenate_and_split,
    "full_lm": check_full_lm,
    "prefix_lm": check_prefix_lm,
    "random_prefix_noise_mask (prefix_lm)": check_random_prefix,
}


@pytest.mark.golden
@pytest.mark.parametrize("name", list(CHECKS))
def test_every_row(name):
    lines = (golden_dir("seqio") / "text_preprocessors.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [row for row in map(json.loads, lines) if row["preprocessor"] == name]
    assert rows
    for row in rows:
        CHECKS[name](row)
