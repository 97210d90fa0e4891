"""A labelled set as it is published (byte-order mark, unbalanced quotes) through preprocessors to batches."""

from dataclasses import replace

import pytest
import task_functions as own
from golden_data import shared_dir
from pipeline_data import tiny_run

from spanloom.pipeline.data import open_data
from spanloom.settings.objectives import Supervised
from spanloom.settings.row_sources import RowFiles
from spanloom.settings.task import Task
from spanloom.settings.vocabulary import SentencePiece
from spanloom.tasks.text_preprocessors import FilterByStringLength, Glue, NormalizeUnicode

LABELS = ("not_equivalent", "equivalent")


def test_paraphrases_become_examples_in_the_words_of_t5(tmp_path):
    folder = shared_dir("data", "labelled", "mrpc")
    files = {split: folder / f"msr-para-{split}.tsv" for split in ("train", "val")}
    lines = {split: path.read_text("utf-8-sig").splitlines()[1:] for split, path in files.items()}
    task = Task(
        "mrpc",
        RowFiles((str(files["train"]),), heldout_files=(str(files["val"]),)),
        SentencePiece(str(shared_dir("data", "tokenizers", "t5") / "spiece.model")),
        Supervised(256, 8),
        preprocessors=(
            own.paraphrase,
            FilterByStringLength("sentence1", min_length=60),
            Glue("mrpc", LABELS, ("sentence1", "sentence2")),
            NormalizeUnicode("NFC"),
        ),
    )
    run = replace(tiny_run(task, vocab_size=32128), batch_size=16).resolve()
    data = open_data(run, tmp_path, workers=2)
    one = data.tasks[0]
    for split, part in (("train", one.train), ("val", one.heldout)):
        cells = [line.split("\t") for line in lines[split]]
        long = [row for row in cells if len(row[3].encode()) >= 60]
        assert part.num_examples == len(long) < len(cells)
        assert part.store.report.skipped[next(iter(part.store.report.skipped))] == len(cells) - len(long)
        decode = data.vocabulary.decode
        for place in (0, 7, len(long) - 1):
            label, _, _, first, second = long[place]
            assert decode(part.store.columns["targets"].row(place)) == LABELS[int(label)]
            written = decode(part.store.columns["inputs"].row(place))
            assert written.split() == f"mrpc sentence1: {first} sentence2: {second}".split()
    batch = data.train.batch(0, 16)
    assert batch["encoder_input_tokens"].shape == (16, 256) and batch["decoder_target_tokens"].shape == (16, 8)
    assert {*map(data.vocabulary.decode, batch["decoder_target_tokens"])} == {*LABELS}


@pytest.mark.short
def test_a_case_of_ones_own(tmp_path):
    head = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    rows = [f'{i % 2}\t{i}\t{i}\tHe said "{i}.\tHe spoke of {i}.\n' for i in range(40)]
    (tmp_path / "pairs.tsv").write_text(head + "".join(rows), encoding="utf-8")
    source = RowFiles((str(tmp_path / "pairs.tsv"),), heldout_share=0.2)
    task = Task("mrpc", source, objective=Supervised(), preprocessors=(own.paraphrase, Glue("mrpc", LABELS)))
    data = open_data(tiny_run(task).resolve(), tmp_path)
    parts = [data.tasks[0].train.store, data.tasks[0].heldout.store]
    found = {data.vocabulary.decode(store.columns["inputs"].row(i)) for store in parts for i in range(store.num_rows)}
    assert found == {f'mrpc sentence1: He said "{i}. sentence2: He spoke of {i}.' for i in range(40)}
