import dataclasses

import numpy as np
import pytest
from tiny_model import TINY, tiny_source

from spanloom.evaluation.loaded import LoadedModel
from spanloom.evaluation.sequences import check_sequences, most_sequences
from spanloom.evaluation.writing import Request
from spanloom.model import decoding
from spanloom.model.decoding_rules import Rules
from spanloom.settings.generation import Generation

pytestmark = pytest.mark.short


def test_as_many_sequences_fit_as_the_compiler_says_that_a_step_takes():
    config, room, count = TINY, 64, 128
    weights = decoding.get_ready(tiny_source().params, config)
    begin = decoding._begin(
        weights, np.ones((1, 32), np.int32), config=config, count=count, room=room, place=decoding.ANYWHERE
    )
    drawn = decoding.Sampling(*(np.ones(1, kind) for kind in ("f4", "i4", "f4", "f4", "u4")))
    rules, limit = Rules(np.zeros((1, room), np.int32)), np.array([room], np.int32)
    step = decoding._run.lower(weights, begin, rules, limit, drawn, config=config, eos_id=1, place=decoding.ANYWHERE)
    memory = step.compile().memory_analysis()
    if memory is None:
        pytest.skip("this compiler does not say what a step takes")
    takes = memory.temp_size_in_bytes + memory.output_size_in_bytes
    assert most_sequences(config, takes, room) == pytest.approx(count, rel=0.1)


def test_more_memory_and_shorter_sequences_let_more_be_written():
    assert most_sequences(TINY, 0, 128) == 8  # always tried
    few, many = most_sequences(TINY, 10**9, 128), most_sequences(TINY, 4 * 10**9, 128)
    assert many == pytest.approx(2 * few, rel=0.02)
    assert most_sequences(TINY, 10**9, 32) == pytest.approx(2 * few, rel=0.05)
    assert most_sequences(dataclasses.replace(TINY, vocab_size=10**6), 10**9, 128) < 90  # of 12 MB each


def test_as_many_as_fit_are_no_error_and_one_more_is():
    most = most_sequences(TINY, 10**9, 128)
    for settings in (Generation(beams=most), Generation(temperature=1, outputs=most)):
        check_sequences(settings, TINY, 10**9)
    for name, settings in {"beams": Generation(beams=most + 1), "outputs": Generation(outputs=most + 1)}.items():
        check_sequences(settings, TINY, None)
        with pytest.raises(ValueError, match=f"{name} is {most + 1}, and memory takes about {most} of max_length 128"):
            check_sequences(settings, TINY, 10**9)


def test_a_request_for_more_than_memory_takes_is_refused_before_it_is_tried():
    model = LoadedModel(tiny_source(), available=10**9)
    with pytest.raises(ValueError, match=r"request 2: outputs is 1,000,000,000, and memory takes about \d+ of"):
        model.write([Request([5, 1]), Request([5, 1], Generation(temperature=1, outputs=10**9))])
