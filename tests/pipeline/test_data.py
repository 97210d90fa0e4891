from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pipeline_data import pair_task, sentences, text_task, tiny_run

from spanloom.pipeline.data import open_data
from spanloom.pipeline.examples import DataError
from spanloom.settings.objectives import SpanCorruption
from spanloom.settings.task import PythonDocs, Task
from spanloom.settings.vocabulary import Bytes


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    import json

    directory = tmp_path_factory.mktemp("run")
    corpus = directory / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in sentences(60)))
    return open_data(tiny_run(text_task(str(corpus))), directory)


def rows_of(batch) -> list[tuple]:
    names = sorted(batch)
    return [tuple(batch[name][row].tobytes() for name in names) for row in range(len(batch[names[0]]))]


def same(one, other) -> None:
    assert {*one} == {*other}
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])


@pytest.mark.short
def test_fields_shapes_and_types(data):
    batch = data.train.batch(0, 5)
    encoder, decoder = data.lengths["encoder"], data.lengths["decoder"]
    assert encoder == 64
    assert {name: (rows.shape, rows.dtype.name) for name, rows in batch.items()} == {
        "encoder_input_tokens": ((5, encoder), "int32"),
        "decoder_target_tokens": ((5, decoder), "int32"),
        "decoder_input_tokens": ((5, decoder), "int32"),
        "decoder_loss_weights": ((5, decoder), "int32"),
    }
    np.testing.assert_array_equal(batch["decoder_input_tokens"][:, 1:], batch["decoder_target_tokens"][:, :-1])
    assert not batch["decoder_input_tokens"][:, 0].any()


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 300), st.integers(1, 300), st.lists(st.integers(0, 300), max_size=4))
def test_a_batch_is_that_of_any_split_of_it(data, first, size, cuts):
    whole = data.train.batch(first, size)
    bounds = sorted({0, size, *(cut % (size + 1) for cut in cuts)})
    parts = [data.train.batch(first + a, b - a) for a, b in pairwise(bounds)]
    same(whole, {name: np.concatenate([part[name] for part in parts]) for name in whole})


def test_the_data_do_not_depend_on_the_process_or_the_place(data, tmp_path):
    import json

    corpus = tmp_path / "elsewhere.jsonl"
    corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in sentences(60)))
    same(open_data(tiny_run(text_task(str(corpus))), tmp_path).train.batch(3, 200), data.train.batch(3, 200))


def raw_texts(batch, dataset) -> list[bytes]:
    """The texts that span corruption took apart, row by row."""
    texts = []
    for inputs, targets in zip(batch["encoder_input_tokens"], batch["decoder_target_tokens"], strict=True):
        spans: dict[int, list[int]] = {}
        for token in targets[: np.flatnonzero(targets == 1)[-1]].tolist():
            if token >= 259:
                spans[token] = current = []
            else:
                current.append(token)
        kept = inputs[: np.flatnonzero(inputs == 1)[-1]].tolist()
        texts.append(np.array([token for piece in kept for token in spans.get(piece, [piece])], np.int32).tobytes())
    return texts


def test_every_epoch_sees_every_chunk_once_in_another_order_with_other_noise(data):
    train = data.train
    number = train.num_examples
    chunks = sorted(train.raw(example).tobytes() for example in range(number))
    epochs = [train.batch(epoch * number, number) for epoch in range(3)]
    texts = [raw_texts(batch, train) for batch in epochs]
    assert all(sorted(epoch) == chunks for epoch in texts)
    assert texts[0] != texts[1] != texts[2] != texts[0]
    noised = [dict(zip(text, rows_of(batch), strict=True)) for text, batch in zip(texts, epochs, strict=True)]
    full = [text for text in noised[0] if len(text) == max(map(len, noised[0]))]
    assert sum(noised[0][text] != noised[1][text] for text in full) > 0.9 * len(full)


def test_another_seed_is_another_order_and_other_noise_but_the_same_held_out_part(data, tmp_path):
    files = data.tasks[0].train.store.meta["fingerprint"]["source_settings"]["files"]
    other = open_data(tiny_run(text_task(*files), seed=1), tmp_path)
    number = data.train.num_examples
    one, two = data.train.batch(0, number), other.train.batch(0, number)
    assert sorted(raw_texts(one, data.train)) == sorted(raw_texts(two, other.train))
    assert len(set(rows_of(one)) & set(rows_of(two))) < 0.1 * number
    for ours, theirs in zip(data.tasks[0].heldout.eval_batches(4), other.tasks[0].heldout.eval_batches(4), strict=True):
        same(ours, theirs)


def test_held_out_batches_are_in_order_once_the_same_each_time_and_filled(data):
    number = data.tasks[0].heldout.num_examples
    whole = next(data.tasks[0].heldout.eval_batches(number))
    for size in (1, 2, 3, number - 1, number, number + 5):
        batches = list(data.tasks[0].heldout.eval_batches(size))
        assert len(batches) == -(-number // size)
        joined = {name: np.concatenate([batch[name] for batch in batches]) for name in whole}
        same({name: rows[:number] for name, rows in joined.items()}, whole)
        assert all(len(batch["decoder_loss_weights"]) == size for batch in batches)
        assert not joined["decoder_loss_weights"][number:].any()


def test_too_few_held_out_batches_are_spread_over_the_whole_part(data):
    heldout = data.tasks[0].heldout
    number = heldout.num_examples
    whole = next(heldout.eval_batches(number))
    for size, most in ((1, 2), (2, 2), (3, 1)):
        batches, examples = (list(f(size, max_batches=most)) for f in (heldout.eval_batches, heldout.eval_examples))
        assert len(batches) == most
        taken = np.concatenate(examples)
        bounds = np.arange(size * most + 1) * number // (size * most)
        assert (bounds[:-1] <= taken).all() and (taken < bounds[1:]).all(), "one of each part"
        for batch, rows in zip(batches, examples, strict=True):
            same(batch, {name: array[rows] for name, array in whole.items()})  # with the noise that they always have
    assert sum(map(len, heldout.eval_examples(2, max_batches=number))) == number


def test_texts_for_showing(data):
    examples = data.tasks[0].heldout.text_examples(3)
    assert len(examples) == min(3, data.tasks[0].heldout.num_examples)
    for example in examples:
        assert example.inputs[-1] == example.targets[-1] == 1
        assert len(example.inputs) + len(example.targets) >= len(example.raw)
    assert len(data.tasks[0].heldout.text_examples(10**6)) == data.tasks[0].heldout.num_examples


@pytest.mark.short
def test_python_docs_are_data(tmp_path):
    run = tiny_run(Task("docs", PythonDocs(), Bytes(), SpanCorruption(inputs_length=128, mean_span_length=20.0)))
    data = open_data(run, tmp_path)
    assert data.train.num_examples > 1000 and data.heldout["docs"].num_examples > 20
    assert data.tasks[0].reports["train"].documents > data.tasks[0].reports["heldout"].documents > 0
    assert sorted(path.name for path in (tmp_path / "stores" / "docs").iterdir() if path.is_dir()) == [
        "heldout",
        "train",
    ]


def test_pairs_are_shuffled_each_epoch(tmp_path, write_pairs):
    corpus = write_pairs([(f"in {i}", "out" * (i % 3)) for i in range(50)])
    data = open_data(tiny_run(pair_task(corpus)), tmp_path)
    assert data.tasks[0].heldout is None
    assert data.lengths == {"encoder": 6, "decoder": 7}
    number = data.train.num_examples
    epochs = [rows_of(data.train.batch(number * epoch, number)) for epoch in range(3)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == sorted(epochs[2])
    assert epochs[0] != epochs[1] != epochs[2]


def refuse(run, directory: Path, words: str) -> None:
    with pytest.raises((DataError, ValueError), match=words):
        open_data(run, directory)


def test_too_little_text_is_refused_with_both_numbers(tmp_path, write_texts):
    task = text_task(write_texts(["short", "texts"]), heldout_share=0, inputs_length=64)
    refuse(tiny_run(task), tmp_path, r"has 12 tokens, but one example takes 7\d.*shorter inputs")


def test_no_text_at_all_is_refused(tmp_path, write_texts):
    task = text_task(write_texts(["", ""]), heldout_share=0)
    refuse(tiny_run(task), tmp_path, r"corpus\.jsonl: no document to train on in 1 file: 2 empty.*Check the files")
    task = pair_task(write_texts([], "empty.jsonl"))
    refuse(tiny_run(task), tmp_path, r"empty\.jsonl: the file is empty\. Get it again, or leave it out")


def test_an_empty_held_out_part_is_refused_with_the_ways_on(tmp_path, write_texts):
    held_out = write_texts([""], "held.jsonl")
    task = text_task(write_texts(sentences(50)))
    source = replace(task.source, heldout_files=(held_out,))
    refuse(
        tiny_run(replace(task, source=source)),
        tmp_path,
        r"held\.jsonl: the held-out part has no document: 1 empty.*other held-out files",
    )


def test_without_a_held_out_part(tmp_path, write_texts):
    data = open_data(tiny_run(text_task(write_texts(sentences(50)), heldout_share=0)), tmp_path)
    assert data.tasks[0].heldout is None and list(data.tasks[0].reports) == ["train"]


def test_a_vocabulary_larger_than_the_embedding_is_refused(tmp_path, write_texts):
    task = text_task(write_texts(sentences(50)))
    refuse(tiny_run(task, vocab_size=256), tmp_path, "ids up to 383, .* 256 rows.*at least 384")
    assert not (tmp_path / "stores").exists()


def test_more_spans_than_sentinels_are_refused_before_anything_is_built(tmp_path, write_texts):
    task = text_task(write_texts(sentences(50)), vocabulary=Bytes(sentinels="google"), inputs_length=512)
    refuse(tiny_run(task), tmp_path, "17 spans .* the vocabulary has 11 sentinels: use a mean_span_length")
    assert not (tmp_path / "stores").exists()


@pytest.mark.parametrize("name", ["a/b", "../up", "glue:cola", "a b"])
def test_any_name_makes_one_directory(tmp_path, write_texts, name):
    task = replace(text_task(write_texts(sentences(50)), heldout_share=0), name=name)
    open_data(tiny_run(task), tmp_path / "run")
    (directory,) = (tmp_path / "run" / "stores").iterdir()
    assert (directory / "train" / "meta.json").is_file()


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_names_that_are_no_directory_are_refused(tmp_path, write_texts, name):
    refuse(tiny_run(replace(text_task(write_texts(["a"])), name=name)), tmp_path, "named")
