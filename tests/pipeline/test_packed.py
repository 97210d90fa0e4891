import json
from dataclasses import replace

import numpy as np
import pytest
from pipeline_data import pair_task, sentences, text_task, tiny_run

from spanloom.pipeline.data import open_data
from spanloom.pipeline.examples import DataError
from spanloom.settings.mixture import Mixture, Weighted
from spanloom.settings.packing import Packed, Unpacked

pytestmark = pytest.mark.short

PACKED = Packed(128, 80)
SIDES = (("encoder", "encoder_input_tokens", 0), ("decoder", "decoder_target_tokens", 1))


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    """Text, documents each by themselves, and two tasks of pairs."""
    directory = tmp_path_factory.mktemp("texts")
    texts = directory / "texts.jsonl"
    texts.write_text("".join(json.dumps({"text": text}) + "\n" for text in sentences(80)))
    found = [
        text_task(str(texts)),
        replace(text_task(str(texts), merge=False, random_roll=True, heldout_share=0), name="short"),
    ]
    for name, longest in (("count", 10), ("write", 60)):
        file = directory / f"{name}.tsv"
        rows = (f"{i}{'x' * (i % longest)}\t{i * i}" for i in range(150))
        file.write_text("inputs\ttargets\n" + "\n".join(rows) + "\n")
        found.append(replace(pair_task(str(file), heldout_share=0.1), name=name))
    return tuple(found)


def opened(tasks, directory, packing=PACKED, rates=(1.0, 1.0, 2.0, 3.0), **changes):
    parts = tuple(Weighted(task, rate) for task, rate in zip(tasks, rates, strict=True))
    return open_data(replace(tiny_run(Mixture("all", parts)), packing=packing, **changes), directory)


@pytest.fixture(scope="module")
def directory(tasks, tmp_path_factory):
    """Where the stores stand once they are built."""
    return tmp_path_factory.mktemp("run")


def segments(batch):
    """(inputs, targets) of each segment of each row, as bytes."""
    for row in range(len(batch["encoder_input_tokens"])):
        ids = batch["encoder_segment_ids"][row], batch["decoder_segment_ids"][row]
        for segment in range(1, max(map(int, map(np.max, ids))) + 1):
            yield tuple(batch[field][row][ids[side] == segment].astype(np.int32).tobytes() for _, field, side in SIDES)


def examples(data, count):
    """The same of the first examples, one a row."""
    batch = data.train.batch(0, count)
    for row in range(count):
        weights = batch["decoder_loss_weights"][row] > 0
        inputs = np.trim_zeros(batch["encoder_input_tokens"][row], "b")
        yield inputs.tobytes(), batch["decoder_target_tokens"][row][weights].tobytes()


def test_the_first_window_has_its_draws_each_once_and_unchanged(tasks, directory):
    packed, unpacked = opened(tasks, directory), opened(tasks, directory, Unpacked())
    position, found = packed.train.start, []
    while position["window"] == 0:
        after = packed.train.skip(position, 1)
        rows = 16 if packed.train.skip(position, 16)["window"] == 0 else 1
        batch, after = packed.train.take(position, rows)
        found += segments(batch)
        position = after
    assert sorted(found) == sorted(examples(unpacked, 4096))


def test_rows_are_nearly_full_where_examples_are_pairs(tasks, directory):
    data = opened(tasks[2:], directory, rates=(1.0, 1.0))
    batch, _ = data.train.take(data.train.start, 200)
    used = [(batch[field] > 0).mean() for _, field, _ in SIDES]
    assert max(used) > 0.97
    assert data.train.examples_per_row > 2


def test_no_row_has_more_segments_than_asked_for(tasks, directory):
    data = opened(tasks, directory, Packed(128, 80, max_segments=2))
    batch, _ = data.train.take(data.train.start, 100)
    assert batch["encoder_segment_ids"].max() == 2


def test_slots_are_those_of_the_longest_task_unless_set(tasks, directory):
    data = opened(tasks, directory, Packed())
    longest = [max(getattr(one.train, f"{side}_length") for one in data.tasks) for side in ("inputs", "targets")]
    assert [*data.lengths.values()] == longest
    with pytest.raises(DataError, match=r"packing.inputs_length is 40, but task .* has inputs of up to 64 tokens"):
        opened(tasks, directory, Packed(40, 80))


def test_wider_rows_take_more_examples(tasks, directory):
    narrow, wide = (opened(tasks, directory, Packed(*slots)) for slots in ((96, 64), (192, 128)))
    assert wide.train.examples_per_row > 1.5 * narrow.train.examples_per_row


def test_data_that_end_say_so(tasks, directory):
    parts = (Weighted(tasks[2], epochs=2),)
    run = replace(tiny_run(Mixture("short", parts)), packing=Packed(64, 64), batch_size=8, steps=1)
    data = open_data(run, directory)
    position, found = data.train.start, []
    while len(found) < 2 * data.train.num_examples:
        batch, position = data.train.take(position, 1)
        found += segments(batch)
    with pytest.raises(ValueError, match="the data end 0 rows after"):
        data.train.take(position, 1)
    assert len(found) == 2 * data.train.num_examples
    assert all(found.count(one) == 2 for one in found)
