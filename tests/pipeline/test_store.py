import logging
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pipeline_data import open_or_build, pair_task, sentences, text_task, tokens_of

from spanloom.pipeline import store as store_module
from spanloom.pipeline.fingerprint import FORMAT
from spanloom.pipeline.shards import DamagedStoreError
from spanloom.pipeline.store import open_or_build_all, open_store
from spanloom.settings.vocabulary import Bytes
from spanloom.tasks.read_report import ReadReport
from spanloom.vocabularies.build import build

SHARD_BYTES = 2000


def build_store(task, directory: Path, split: str = "train", **options):
    return open_or_build(task, split, directory, build(task.vocabulary), shard_bytes=SHARD_BYTES, **options)


def stamps(directory: Path) -> dict[str, int]:
    return {path.name: path.stat().st_ino for path in directory.iterdir()}


@pytest.fixture
def task(write_texts):
    return text_task(write_texts(sentences(200)), heldout_share=0)


@pytest.mark.short
def test_the_flat_stream_is_the_text(tmp_path, write_texts):
    store = build_store(text_task(write_texts(["déjà", "", "vu\0"]), heldout_share=0), tmp_path / "a")
    assert (bytes((tokens_of(store) - 3).astype(np.uint8)[[0, 1, 2, 3, 4, 5]])).decode() == "déjà"
    assert tokens_of(store).tolist()[6:] == [1, ord("v") + 3, ord("u") + 3, 3, 1]
    assert store.stream.lengths().tolist() == [7, 4]
    assert (store.num_rows, store.num_tokens, store.text_bytes, tokens_of(store).dtype) == (2, 11, 9, np.uint16)


def test_blocks_are_the_stream_in_pieces(tmp_path, task):
    store = build_store(task, tmp_path / "a")
    np.testing.assert_array_equal(np.concatenate(list(store.blocks(777))), tokens_of(store))


def test_a_store_that_is_up_to_date_is_opened_not_built(tmp_path, task, caplog):
    build_store(task, tmp_path / "a")
    before = stamps(tmp_path / "a")
    told = []
    build_store(task, tmp_path / "a", progress=told.append)
    build_store(replace(task, objective=replace(task.objective, noise_density=0.3)), tmp_path / "a")
    assert stamps(tmp_path / "a") == before
    assert not told and not caplog.records


def test_the_files_are_looked_at_once_for_all_parts(tmp_path, write_texts, monkeypatch):
    task = text_task(write_texts(sentences(200)), heldout_share=0.2)
    directories = {split: tmp_path / split for split in ("train", "heldout")}
    open_or_build_all(task, directories, build(task.vocabulary))
    looks, look = [], store_module.source_fingerprint
    monkeypatch.setattr(store_module, "source_fingerprint", lambda source: looks.append(source) or look(source))
    open_or_build_all(task, directories, build(task.vocabulary))
    assert looks == [task.source]


def test_the_report_of_reading_is_kept(tmp_path, task):
    live = ReadReport()
    built = build_store(task, tmp_path / "a", report=live)
    opened = build_store(task, tmp_path / "a")
    assert live == built.report == opened.report
    assert opened.report.documents == 200


def expect_rebuild(task, directory: Path, caplog, *words: str) -> None:
    before = stamps(directory)
    caplog.clear()
    store = build_store(task, directory)
    assert stamps(directory) != before
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    for word in ("built anew", *words):
        assert word in record.getMessage()
    fresh = build_store(task, directory.with_name("fresh"))
    np.testing.assert_array_equal(tokens_of(store), tokens_of(fresh))
    assert (directory / "meta.json").read_bytes() == (directory.with_name("fresh") / "meta.json").read_bytes()


def test_changed_text_is_noticed(tmp_path, write_texts, task, caplog):
    build_store(task, tmp_path / "a")
    write_texts([*sentences(199), "one more"])
    expect_rebuild(task, tmp_path / "a", caplog, "the source's text files")


def test_text_changed_without_changing_size_or_number_is_noticed(tmp_path, task, caplog):
    build_store(task, tmp_path / "a")
    path = Path(task.source.files[0])
    path.write_text(path.read_text().replace("ship", "boat"))
    expect_rebuild(task, tmp_path / "a", caplog, "the source's text files")


def test_only_the_shards_whose_text_changed_are_made_again(tmp_path, write_texts, task):
    build_store(task, tmp_path / "a")
    before = stamps(tmp_path / "a")
    texts = sentences(200)
    write_texts([*texts[:100], "changed", *texts[101:], "and one more"])
    store = build_store(task, tmp_path / "a")
    after = stamps(tmp_path / "a")
    kept = {name for name in before if before[name] == after.get(name)}
    assert {"shard-00000.arrow", "shard-00001.arrow"} <= kept < {*after} - {"meta.json"}
    fresh = build_store(task, tmp_path / "fresh")
    np.testing.assert_array_equal(tokens_of(store), tokens_of(fresh))
    assert store.meta == fresh.meta
    store.verify()


def test_the_hash_of_the_content_follows_the_text_not_the_file(tmp_path, write_texts, task):
    content = build_store(task, tmp_path / "a").content
    os.utime(task.source.files[0], (1, 1))
    assert build_store(task, tmp_path / "a").content == content
    elsewhere = replace(task, source=replace(task.source, files=(write_texts(sentences(200), "other.jsonl"),)))
    assert build_store(elsewhere, tmp_path / "b").content == content
    write_texts(sentences(200, seed=1))
    assert build_store(task, tmp_path / "a").content != content
    assert build_store(replace(task, vocabulary=Bytes(extra_ids=20)), tmp_path / "a").content != content


def test_a_store_of_another_format_is_refused(tmp_path, task, monkeypatch, caplog):
    build_store(task, tmp_path / "a")
    monkeypatch.setattr("spanloom.pipeline.fingerprint.FORMAT", 99)
    monkeypatch.setattr("spanloom.pipeline.store.FORMAT", 99)
    expect_rebuild(task, tmp_path / "a", caplog, f"is in format {FORMAT} of stores, this version reads format 99")


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"vocabulary": Bytes(extra_ids=20)}, "the vocabulary"),
        ({"version": "2"}, "the task's version (1 -> 2)"),
    ],
)
def test_changed_settings_are_noticed(tmp_path, task, caplog, change, word):
    build_store(task, tmp_path / "a")
    expect_rebuild(replace(task, **change), tmp_path / "a", caplog, word)


def test_another_separator_is_noticed(tmp_path, task, caplog):
    build_store(task, tmp_path / "a")
    changed = replace(task, objective=replace(task.objective, separator="none"))
    expect_rebuild(changed, tmp_path / "a", caplog, "separator between documents (eos -> none)")


def test_changed_code_is_noticed_by_the_probes(tmp_path, task, caplog, monkeypatch):
    build_store(task, tmp_path / "a")
    vocabulary = type(build(task.vocabulary))
    encode = vocabulary.encode_utf8

    def shifted(*arguments):
        values, lengths = encode(*arguments)
        return values + 1, lengths

    monkeypatch.setattr(vocabulary, "encode_utf8", shifted)
    expect_rebuild(task, tmp_path / "a", caplog, " probes give other ids")


def truncate(directory: Path) -> None:
    path = directory / "shard-00001.arrow"
    path.write_bytes(path.read_bytes()[:-8])


def lose_a_shard(directory: Path) -> None:
    (directory / "shard-00002.arrow").unlink()


def swap_shards(directory: Path) -> None:
    (directory / "shard-00000.arrow").write_bytes((directory / "shard-00001.arrow").read_bytes())


def break_meta(directory: Path) -> None:
    (directory / "meta.json").write_bytes((directory / "meta.json").read_bytes()[:-100])


def empty_meta(directory: Path) -> None:
    (directory / "meta.json").write_bytes(b"{}")


@pytest.mark.parametrize("damage", [truncate, lose_a_shard, swap_shards, break_meta, empty_meta])
def test_a_damaged_store_is_refused_and_built_anew(tmp_path, task, caplog, damage):
    build_store(task, tmp_path / "a")
    damage(tmp_path / "a")
    with pytest.raises(DamagedStoreError):
        open_store(tmp_path / "a")
    expect_rebuild(task, tmp_path / "a", caplog, "it is damaged")


def test_a_store_without_its_description_is_none(tmp_path, task):
    build_store(task, tmp_path / "a")
    (tmp_path / "a" / "meta.json").unlink()
    with pytest.raises(FileNotFoundError):
        open_store(tmp_path / "a")
    build_store(task, tmp_path / "a").verify()


def flip_a_bit(directory: Path) -> None:
    path = directory / "shard-00001.arrow"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.unlink()
    path.write_bytes(content)


def test_a_flipped_bit_of_a_small_store_is_found_always_and_of_a_large_one_on_request(
    tmp_path, task, caplog, monkeypatch
):
    build_store(task, tmp_path / "a")
    flip_a_bit(tmp_path / "a")
    expect_rebuild(task, tmp_path / "a", caplog, "it is damaged", "checksum")

    monkeypatch.setattr(store_module, "ALWAYS_CHECKED", 0)
    flip_a_bit(tmp_path / "a")
    with pytest.raises(DamagedStoreError, match="checksum"):
        build_store(task, tmp_path / "a").verify()
    build_store(task, tmp_path / "a", checksum=True).verify()


def test_a_flipped_bit_is_found_on_request(tmp_path, task):
    store = build_store(task, tmp_path / "a")
    flip_a_bit(tmp_path / "a")
    with pytest.raises(DamagedStoreError, match=r"shard-00001\.arrow .*checksum"):
        store.verify()
    with pytest.raises(DamagedStoreError, match="checksum"):
        open_store(tmp_path / "a", checksum=True)


def test_a_store_outlives_its_text_and_says_so(tmp_path, task, caplog):
    store = build_store(task, tmp_path / "a")
    os.unlink(task.source.files[0])
    again = build_store(task, tmp_path / "a")
    np.testing.assert_array_equal(tokens_of(again), tokens_of(store))
    assert "can no longer be read" in caplog.text


def test_parts_are_apart_and_together_everything(tmp_path, write_texts):
    texts = [f"document {i}" for i in range(100)]
    task = text_task(write_texts(texts), heldout_share=0.2)
    rows = []
    for split, number in (("train", 80), ("heldout", 20)):
        store = build_store(task, tmp_path / split, split)
        assert store.num_rows == number
        rows += [store.stream.row(row).tolist() for row in range(number)]
    assert sorted(rows) == sorted([*(ids.tolist()), 1] for ids in build(Bytes()).encode_batch(texts))


def test_pairs_have_two_columns(tmp_path, write_pairs):
    store = build_store(pair_task(write_pairs([("ab", "c"), ("a", "def")])), tmp_path / "a")
    assert [store.columns[name].row(1).tolist() for name in ("inputs", "targets")] == [[100], [103, 104, 105]]
    assert store.meta["counts"]["columns"]["inputs"]["longest"] == 2
    assert store.meta["counts"]["columns"]["targets"]["longest"] == 3


def test_an_open_store_survives_a_rebuild(tmp_path, write_texts, task):
    store = build_store(task, tmp_path / "a")
    tokens = tokens_of(store).copy()
    write_texts(sentences(50, seed=9))
    build_store(task, tmp_path / "a")
    np.testing.assert_array_equal(tokens_of(store), tokens)
