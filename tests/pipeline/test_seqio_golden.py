"""SeqIO's span corruption from documents to segments, and from segments and masks to inputs and targets."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from golden_data import golden_dir, shared_dir
from pipeline_data import tiny_run

from spanloom.pipeline.data import open_data
from spanloom.settings.objectives import SpanCorruption
from spanloom.settings.task import Task, TextFiles
from spanloom.settings.vocabulary import Bytes, SentencePiece, Vocabulary
from spanloom.tasks.span_corruption import apply_mask_block, lengths_of


def read_configs(folder: Path) -> list[tuple[dict, list[dict], list[dict]]]:
    """(config, documents, segments) of each configuration in end_to_end_span_corruption*.jsonl."""
    rows = [
        json.loads(line)
        for path in sorted(folder.glob("end_to_end_span_corruption*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    return [
        (config, *([row for row in rows if row["row"] == kind and row["config"] == config["config"]] for kind in kinds))
        for config in rows
        if config["row"] == "config" and (kinds := ("document", "segment"))
    ]


def vocabulary_of(config: dict) -> Vocabulary:
    """The settings of the vocabulary that the configuration names."""
    said = config["vocab"]
    extra_ids = int(found[1]) if (found := re.search(r"extra_ids=(\d+)", said)) else 0
    if "sentencepiece" in said:
        return SentencePiece(str(shared_dir("data", "tokenizers", said.split()[0], "spiece.model")))
    return Bytes("seqio", extra_ids=extra_ids) if extra_ids else Bytes("google", extra_ids=0)


def check_config(config: dict, documents: list[dict], segments: list[dict], directory: Path) -> None:
    corpus = directory / "documents.jsonl"
    corpus.write_text("".join(json.dumps({"text": row["text"]}) + "\n" for row in documents), encoding="utf-8")
    objective = SpanCorruption(
        inputs_length=config["inputs_length"],
        noise_density=config["noise_density"],
        mean_span_length=config["mean_noise_span_length"],
        concat_documents=config["concat_batch_documents"],
    )
    task = Task("golden", TextFiles((str(corpus),), heldout_share=0), vocabulary_of(config), objective)
    data = open_data(tiny_run(task, vocab_size=260_000), directory)
    lengths = lengths_of(objective, data.vocabulary)
    assert (lengths.raw_length, lengths.targets_length) == (config["raw_length"], config["targets_length"])
    assert data.tasks[0].train.store.stream.lengths().tolist() == config["document_token_counts"]
    assert data.train.num_examples == len(segments)
    for example, segment in enumerate(segments):
        assert data.train.raw(example).tolist() == segment["raw"], f"segment {example} of {config['config']}"
        check_noise(segment, data.vocabulary)


def check_noise(segment: dict, vocabulary) -> None:
    mask = np.array([[digit == "1" for digit in segment["mask"]]])
    inputs, targets = apply_mask_block(np.array([segment["raw"]]), mask, vocabulary.sentinels)
    assert [*inputs[0].tolist(), vocabulary.eos_id] == segment["inputs"]
    assert [*targets[0].tolist(), vocabulary.eos_id] == segment["targets"]


@pytest.mark.golden
def test_documents_become_the_segments_of_seqio(tmp_path):
    configs = read_configs(golden_dir("seqio"))
    assert configs
    for number, (config, documents, segments) in enumerate(configs):
        directory = tmp_path / str(number)
        directory.mkdir()
        check_config(config, documents, segments, directory)


def made_case() -> list[dict]:
    """Seven documents of bytes, joined three by three, by the rules and without our code."""
    texts = ["a wooden ship", "déjà vu", "x", "the tale of a fish, and of the sea", "no", "水と火", "end of it"]
    counts, segments = [len(text.encode()) for text in texts], []
    for start in range(0, len(texts), 3):
        stream = [byte + 3 for byte in "".join(texts[start : start + 3]).encode()]
        for begin in range(0, len(stream), 19):
            raw = stream[begin : begin + 19]
            mask = "0" * (len(raw) - 1) + "1"
            noised = {"inputs": [*raw[:-1], 258, 1], "targets": [258, raw[-1], 1]}
            segments.append({"row": "segment", "config": "own", "raw": raw, "mask": mask, **noised})
    config = {
        "row": "config", "config": "own", "vocab": "ByteVocabulary, extra_ids=0, vocab_size 259",
        "inputs_length": 18, "targets_length": 5, "raw_length": 19, "noise_density": 0.15,
        "mean_noise_span_length": 3.0, "concat_batch_documents": 3, "document_token_counts": counts,
    }  # fmt: skip
    return [config, *({"row": "document", "config": "own", "text": text} for text in texts), *segments]


def test_a_case_of_our_own_through_the_golden_code(tmp_path):
    rows = made_case()
    (tmp_path / "end_to_end_span_corruption.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    ((config, documents, segments),) = read_configs(tmp_path)
    (tmp_path / "good").mkdir()
    check_config(config, documents, segments, tmp_path / "good")
    segments[-1]["raw"][0] += 1
    (tmp_path / "bad").mkdir()
    with pytest.raises(AssertionError, match="segment"):
        check_config(config, documents, segments, tmp_path / "bad")
