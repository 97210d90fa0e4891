import re
from dataclasses import replace

import pytest
from pipeline_data import text_task

from spanloom.pipeline.fingerprint import changes, make_probes, probes_changed, settings_fingerprint
from spanloom.settings.vocabulary import Bytes
from spanloom.vocabularies.build import build

BYTES = build(Bytes())


def fingerprint(task, split="train"):
    return settings_fingerprint(task, split, BYTES, 1000)


@pytest.mark.short
def test_the_same_settings_have_the_same_fingerprint():
    assert changes(fingerprint(text_task("a.txt")), fingerprint(text_task("a.txt"))) == []


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (text_task("b.txt"), "source's settings.*files.*a.txt.*b.txt"),
        (text_task("a.txt", heldout_share=0.5), "heldout_share 0.05 -> 0.5"),
        (text_task("a.txt", version="2"), "the task's version .1 -> 2"),
        (text_task("a.txt", separator="none"), "the separator between documents .eos -> none"),
    ],
)
def test_a_change_is_said_in_words(changed, words):
    (said,) = changes(fingerprint(text_task("a.txt")), fingerprint(changed))
    assert re.search(words, said)


def test_what_only_decides_the_noise_is_no_change():
    old, new = text_task("a.txt"), text_task("a.txt", noise_density=0.5, inputs_length=512)
    assert changes(fingerprint(old), fingerprint(new)) == []


class Shifted:
    """Bytes whose code changed although all settings and fingerprints are the same."""

    eos_id, unk_id, size = BYTES.eos_id, BYTES.unk_id, BYTES.size

    def encode_utf8(self, texts, dtype, end=None):
        values, lengths = BYTES.encode_utf8(texts, dtype, end)
        return values + 1, lengths


def test_probes_notice_changed_code():
    task = text_task("a.txt")
    probes = make_probes(task, BYTES, {"text": [f"text {i} é".encode() * 500 for i in range(100)]})
    assert len(probes) == 64
    assert all(len(probe["example"]["text"]) == 1000 for probe in probes)
    assert probes_changed(task, BYTES, probes) == 0
    assert probes_changed(task, Shifted(), probes) == 64
    assert probes_changed(replace(task, version="2"), BYTES, probes) == 0
