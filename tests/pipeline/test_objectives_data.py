"""Every objective on text from files to batches: epochs, order, weights, joining of documents."""

import numpy as np
import pytest
from pipeline_data import sentences, tiny_run

from spanloom.pipeline.data import open_data
from spanloom.pipeline.examples import DataError
from spanloom.settings.objectives import UL2, FullLM, IidDenoising, PrefixLM, SpanCorruption, TextInfilling
from spanloom.settings.task import Task, TextFiles
from spanloom.settings.vocabulary import Bytes

OBJECTIVES = {
    "rolled": (SpanCorruption, {"inputs_length": 64, "random_roll": True}),
    "iid": (IidDenoising, {"inputs_length": 64}),
    "prefix-lm": (PrefixLM, {"inputs_length": 64}),
    "full-lm": (FullLM, {"targets_length": 64}),
    "text-infilling": (TextInfilling, {"inputs_length": 64}),
    "ul2": (UL2, {"inputs_length": 64}),
}
JOININGS = {"stream": {}, "seqio": {"concat_documents": 4}, "apart": {"merge": False}}


def task_of(path: str, objective, heldout_share: float = 0.1) -> Task:
    return Task("text", TextFiles((path,), heldout_share=heldout_share), Bytes(), objective)


@pytest.fixture(scope="module", params=OBJECTIVES)
def case(request, tmp_path_factory):
    """The data of one objective under each way of joining documents."""
    import json

    kind, fields = OBJECTIVES[request.param]
    directory = tmp_path_factory.mktemp(request.param)
    (directory / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in sentences(80)))
    made = {}
    for name, joining in JOININGS.items():
        task = task_of(str(directory / "a.jsonl"), kind(**fields, **joining))
        made[name] = open_data(tiny_run(task).resolve(), directory / name)
    return kind, made


@pytest.mark.parametrize("joining", JOININGS)
def test_an_epoch_reads_every_token_once(case, joining):
    _, made = case
    train = made[joining].train
    whole = np.concatenate([train.raw(example) for example in range(train.num_examples)])
    assert np.array_equal(whole, train.store.stream.slice(0, train.store.num_tokens))


@pytest.mark.parametrize("joining", JOININGS)
def test_weights_are_those_of_the_real_target_tokens(case, joining):
    kind, made = case
    data = made[joining]
    batch = data.train.batch(0, data.train.num_examples)
    assert batch["encoder_input_tokens"].shape == (data.train.num_examples, data.lengths["encoder"])
    assert batch["decoder_target_tokens"].shape == (data.train.num_examples, data.lengths["decoder"])
    weights = batch["decoder_loss_weights"]
    assert (np.diff(weights, axis=1) <= 0).all() and weights[:, 0].all()
    assert np.array_equal(weights == 1, batch["decoder_target_tokens"] != 0), "this text has no token 0"
    if kind is not FullLM:
        ends = np.take_along_axis(batch["decoder_target_tokens"], weights.sum(axis=1)[:, None] - 1, axis=1)
        assert (ends == 1).all()
    else:
        assert weights.sum() == data.train.store.num_tokens


@pytest.mark.parametrize("joining", JOININGS)
def test_a_batch_is_that_of_any_split_of_it(case, joining):
    _, made = case
    train = made[joining].train
    whole, parts = train.batch(3, 90), [train.batch(3, 17), train.batch(20, 60), train.batch(80, 13)]
    for name, rows in whole.items():
        assert np.array_equal(rows, np.concatenate([part[name] for part in parts]))


@pytest.mark.parametrize("joining", JOININGS)
def test_what_is_drawn_is_what_the_batch_has(case, joining):
    _, made = case
    train = made[joining].train
    batch, drawn = train.batch(train.num_examples - 5, 9), train.drawn(train.num_examples - 5, 9)
    assert [one.epoch for one in drawn] == [0] * 5 + [1] * 4
    for row, one in enumerate(drawn):
        assert np.array_equal(one.raw, train.raw(one.number))
        for name, tokens in (("encoder_input_tokens", one.inputs), ("decoder_target_tokens", one.targets)):
            assert np.array_equal(np.trim_zeros(batch[name][row], "b"), tokens)


def test_epochs_differ_and_held_out_noise_does_not(case):
    kind, made = case
    data = made["stream"]
    count = data.train.num_examples
    first, second = (
        {row.tobytes() for row in data.train.batch(start, count)["encoder_input_tokens"]} for start in (0, count)
    )
    assert first == second if kind is FullLM else len(first & second) < count / 10
    once, again = (list(data.heldout["text"].eval_batches(4)) for _ in range(2))
    for one, other in zip(once, again, strict=True):
        assert all(np.array_equal(one[name], other[name]) for name in one)


def test_documents_that_are_not_merged_are_examples_of_their_own(case):
    kind, made = case
    data = made["apart"]
    train, length = data.train, 64 if kind is FullLM else None
    documents = [train.store.stream.row(row).tolist() for row in range(train.store.num_rows)]
    raws = [train.raw(example).tolist() for example in range(train.num_examples)]
    starts = {tuple(document[:5]) for document in documents}
    assert sum(tuple(raw[:5]) in starts for raw in raws) >= len(documents)
    longest = length or max(map(len, raws))
    assert len(raws) == sum(-(-len(document) // longest) for document in documents)
    has_eos = [1 in document for document in documents]
    assert all(has_eos) if kind is FullLM else not any(has_eos), "an end of sequence ends each example already"


def test_a_short_corpus_of_documents_apart_can_be_learned_from(write_texts, tmp_path):
    path = write_texts(["one", "two"])
    task = task_of(path, PrefixLM(64, merge=False), heldout_share=0)
    assert open_data(tiny_run(task), tmp_path / "a").train.num_examples == 2
    with pytest.raises(DataError, match=r"8 tokens, but one example takes 63 \(inputs_length = 64\)"):
        open_data(tiny_run(task_of(path, PrefixLM(64), heldout_share=0)), tmp_path / "b")
    with pytest.raises(DataError, match=r"8 tokens, but one example takes 64 \(targets_length = 64\).*shorter targets"):
        open_data(tiny_run(task_of(path, FullLM(targets_length=64), heldout_share=0)), tmp_path / "c")


def test_what_the_vocabulary_cannot_do_is_refused_before_anything_is_built(write_texts, tmp_path):
    task = task_of(write_texts(["text"] * 500), UL2())
    task = Task(task.name, task.source, Bytes("google"), task.objective)
    with pytest.raises(ValueError, match=r"UL2 .* 11, of which the last 3 tell the modes"):
        open_data(tiny_run(task), tmp_path / "a")
    assert not (tmp_path / "a").exists()
