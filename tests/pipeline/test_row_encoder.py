"""What is in stores of tasks with preprocessors, and who makes them."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import task_functions as own
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pipeline_data import tokens_of
from row_stores import BYTES, build_stores, contents, rows, task_of, write_pairs

from spanloom.pipeline.row_encoder import ChangedCodeError, RowEncoder
from spanloom.settings.feature import Feature
from spanloom.settings.function import Function
from spanloom.settings.objectives import SpanCorruption, Supervised
from spanloom.settings.task import Task, TextFiles
from spanloom.tasks.preprocessing import PreprocessorError


@pytest.fixture
def pairs(tmp_path):
    return write_pairs(tmp_path)


@pytest.mark.short
def test_a_store_holds_what_the_preprocessors_make_and_says_what_they_left_out(pairs, tmp_path):
    stores = build_stores(task_of(pairs, own.not_third, own.doubled, own.prefixed), tmp_path)
    train = stores["train"]
    plain = rows(build_stores(task_of(pairs), tmp_path / "plain")["train"], "inputs")
    expected = [f"say: {text}{end}" for n, text in enumerate(plain) if n % 3 != 2 for end in ("", "!")]
    assert rows(train, "inputs") == expected
    assert train.report.documents == len(plain)
    assert train.report.skipped == {"left out by not_third": len(plain) // 3}
    assert f"the preprocessors made {len(expected)} examples of them" in train.report.describe()
    text = "".join(expected) + "".join(rows(train, "targets"))
    counts = train.meta["counts"]
    assert (counts["characters"], counts["text_bytes"]) == (len(text), len(text.encode()))
    assert counts["examples"] == len(plain) and counts["columns"]["inputs"]["rows"] == len(expected)


@pytest.mark.short
def test_what_is_held_out_does_not_depend_on_preprocessors(pairs, tmp_path):
    plain = build_stores(task_of(pairs), tmp_path / "a")
    made = build_stores(task_of(pairs, own.prefixed), tmp_path / "b")
    for split in ("train", "heldout"):
        assert rows(made[split], "inputs") == ["say: " + text for text in rows(plain[split], "inputs")]


@pytest.mark.short
def test_text_becomes_a_stream_of_what_the_preprocessors_make(tmp_path, pairs):
    task = task_of(pairs, own.text_of, own.Cut(4, ("text",)), objective=SpanCorruption(inputs_length=32))
    train = build_stores(task, tmp_path, shard_bytes=2**20)["train"]
    inputs = rows(build_stores(task_of(pairs), tmp_path / "plain")["train"], "inputs")
    assert bytes(token - 3 for token in tokens_of(train).tolist() if token > 2).decode() == "".join(
        x[:4] for x in inputs
    )
    assert np.count_nonzero(tokens_of(train) == BYTES.eos_id) == train.num_rows == len(inputs)


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.sampled_from([own.not_third, own.doubled, own.prefixed, own.ids, own.lengths_told]), min_size=1, max_size=4
    ),
    st.sampled_from([700, 2000, 2**20]),
    st.booleans(),
)
def test_any_number_of_processes_makes_the_same_bytes(pairs, tmp_path_factory, chosen, shard_bytes, reads):
    if own.ids in chosen and own.prefixed in chosen:
        chosen = [function for function in chosen if function is not own.ids]
    chosen = sorted(chosen, key=lambda function: function is own.ids)  # ids are no text for those after it
    task = task_of(pairs, *chosen, *([own.now_and_then] if reads else []), objective=Supervised(64, 64))
    found = []
    for workers in (1, 2):
        place = tmp_path_factory.mktemp("stores")
        build_stores(task, place, workers=workers, shard_bytes=shard_bytes)
        found.append({split: contents(place / split) for split in ("train", "heldout")})
    assert found[0] == found[1]


class CutShortError(Exception):
    pass


def test_a_build_that_is_cut_short_goes_on_to_the_same_bytes(pairs, tmp_path):
    task = task_of(pairs, own.not_third, own.doubled)
    build_stores(task, tmp_path / "whole")
    seen = []

    def stop(progress):
        seen.append(progress.shards)
        if progress.shards == 3:
            raise CutShortError

    with pytest.raises(CutShortError):
        build_stores(task, tmp_path / "cut", progress=stop)
    encoded = []
    build_stores(task, tmp_path / "cut", progress=lambda progress: encoded.append(progress.bytes_per_second))
    assert encoded[0] == 0  # the first shard was found
    for split in ("train", "heldout"):
        assert contents(tmp_path / "cut" / split) == contents(tmp_path / "whole" / split)


def test_rows_that_are_appended_leave_the_shards_before_them(pairs, tmp_path):
    task = task_of(pairs, own.not_third, own.doubled, share=0.0)
    build_stores(task, tmp_path / "s")
    with open(pairs, "a") as file:
        file.write("more\tmore\n")
    found = []
    build_stores(task, tmp_path / "s", progress=lambda progress: found.append(progress.bytes_per_second))
    build_stores(task, tmp_path / "fresh")
    assert found[0] == 0
    assert contents(tmp_path / "s" / "train") == contents(tmp_path / "fresh" / "train")


def test_rows_that_move_are_made_again_where_their_number_counts(pairs, tmp_path):
    numbered, free = task_of(pairs, own.not_third, share=0.0), task_of(pairs, own.prefixed, share=0.0)
    for task in (numbered, free):
        text = Path(pairs).read_text().splitlines()
        build_stores(task, tmp_path / task.preprocessors[0].qualname, shard_bytes=12)
        Path(pairs).write_text("\n".join([text[0], "new\tnew", *text[1:]]) + "\n")
        build_stores(task, tmp_path / task.preprocessors[0].qualname, shard_bytes=12)
        build_stores(task, tmp_path / "fresh" / task.preprocessors[0].qualname, shard_bytes=12)
        name = task.preprocessors[0].qualname
        assert contents(tmp_path / name / "train") == contents(tmp_path / "fresh" / name / "train")


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_in_any_process_names_the_example(pairs, tmp_path, workers):
    task = task_of(pairs, own.fails_at_200, share=0.0)
    with pytest.raises(PreprocessorError, match=r"task 'p', preprocessor fails_at_200, example 200: KeyError: 'none'"):
        build_stores(task, tmp_path, workers=workers)
    assert not (tmp_path / "train" / "meta.json").exists()


@pytest.mark.short
def test_a_feature_that_is_missing_names_task_feature_and_example(pairs, tmp_path):
    with pytest.raises(
        PreprocessorError,
        match=r"task 'p', example 0: the feature 'inputs' is missing; the fields are 'text': a preproc",
    ):
        build_stores(task_of(pairs, own.text_of), tmp_path)


@pytest.mark.short
def test_features_that_may_be_absent_are_empty_and_others_kept_as_numbers(pairs, tmp_path):
    features = (
        Feature("inputs", required=False), Feature("targets"), Feature("score", dtype="float32", required=False),
    )  # fmt: skip
    store = build_stores(task_of(pairs, own.scored, features=features), tmp_path)["train"]
    assert set(rows(store, "inputs")) == {""}
    assert store.columns["score"].row(0).dtype == np.float32
    assert [store.columns["score"].row(i).tolist() for i in range(4)] == [[0.5], [1.5], [], [3.5]]


@pytest.mark.short
def test_repeated_rows_are_left_out_before_rows_are_divided(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("inputs\ttargets\n" + "".join(f"in {i % 50}\tout {i}\n" for i in range(300)))
    stores = build_stores(task_of(str(path), own.prefixed, deduplicate=("inputs",)), tmp_path / "s")
    found = rows(stores["train"], "inputs") + rows(stores["heldout"], "inputs")
    assert len(found) == len(set(found)) == 50
    assert stores["train"].report.skipped == {"repeated": 250}
    text = Task(
        "t", TextFiles((str(path),), field="inputs"), objective=SpanCorruption(inputs_length=32), deduplicate=("text",)
    )
    stores = build_stores(text, tmp_path / "t")
    assert sum(store.num_rows for store in stores.values()) == 50


@pytest.mark.short
def test_code_that_is_edited_while_a_store_is_built_is_refused(pairs, tmp_path):
    file = tmp_path / "recipe.py"
    file.write_text("def same(example):\n    return example\n")
    encoder = RowEncoder(task_of(pairs, Function(f"{file}:same")), BYTES)
    sent = pickle.dumps(encoder)
    assert pickle.loads(sent).dtypes == encoder.dtypes
    file.write_text("def same(example):\n    return {**example}\n")
    with pytest.raises(ChangedCodeError, match="of task 'p' was edited while its store was built: start again"):
        pickle.loads(sent)
