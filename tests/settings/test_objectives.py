from dataclasses import replace

import pytest

from spanloom.settings.model import Model
from spanloom.settings.objectives import (
    UL2,
    FullLM,
    IidDenoising,
    PrefixLM,
    SpanCorruption,
    Supervised,
    TextInfilling,
    separator_of,
)
from spanloom.settings.run import Run
from spanloom.settings.serialize import SettingsError, from_json, to_json
from spanloom.settings.task import PairFiles, PythonDocs, Task

pytestmark = pytest.mark.short

MODEL = Model(vocab_size=384, d_model=32, d_ff=64, num_heads=2, d_kv=16, num_encoder_layers=2, num_decoder_layers=2)


def run_of(objective) -> Run:
    return Run("a", Task("docs", PythonDocs(), objective=objective), MODEL)


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        (PrefixLM(noise_density=0.6), "noise_density is 0.6: must be above 0 and at most 0.5"),
        (IidDenoising(noise_density=1.0), "noise_density is 1.0: must be above 0 and below 1"),
        (TextInfilling(mean_span_length=0.5), "mean_span_length is 0.5: must be 1 or more"),
        (FullLM(targets_length=0), "targets_length is 0: must be 1 or more"),
        (PrefixLM(concat_documents=-1), "concat_documents is -1"),
        (PrefixLM(concat_documents=4, merge=False), "merge is False and concat_documents 4: .* set one of them"),
        (PrefixLM(separator="eos", merge=False), "an end of sequence ends every document already"),
        (UL2(r_rate=0.0, s_rate=0.0, x_rate=0.0), "one of them above 0"),
        (UL2(x_rate=-1.0), "must be 0 or more"),
        (UL2(r_mean_span_lengths=(3.0,)), "each R-denoiser has one of both"),
        (UL2(x_noise_densities=(), x_mean_span_lengths=()), "each X-denoiser .* set x_rate to 0"),
        (UL2(x_noise_densities=(0.5, 0.5, 0.15, float("nan"))), "x_noise_densities is nan"),
        (UL2(r_mean_span_lengths=(3.0, 0.0)), "r_mean_span_lengths is 0.0"),
        (UL2(s_noise_density=0.7), "s_noise_density is 0.7: must be above 0 and at most 0.5"),
        (UL2(modes=("[R]", "[S]")), "give three texts that differ"),
        (UL2(modes=("[R]", "[S]", "[S]")), "give three texts that differ"),
    ],
)
def test_settings_that_make_no_sense_are_refused_without_files(objective, message):
    with pytest.raises(SettingsError, match=message):
        run_of(objective).resolve()


@pytest.mark.parametrize("kind", [SpanCorruption, IidDenoising, PrefixLM, FullLM, TextInfilling, UL2])
def test_defaults_stand_and_are_written_and_read(kind):
    run = run_of(kind()).resolve()
    assert run.task.objective == replace(kind(), separator="eos")
    assert from_json(to_json(run)) == run
    with pytest.raises(SettingsError, match=f"{kind.__name__} needs plain text"):
        replace(run, task=replace(run.task, source=PairFiles(("a.tsv",)))).resolve()


def test_a_separator_where_documents_share_examples_and_where_nothing_else_ends_them():
    joinings = ({}, {"concat_documents": 2}, {"merge": False})
    assert [separator_of(PrefixLM(**joining)) for joining in joinings] == ["eos", "none", "none"]
    assert [separator_of(FullLM(**joining)) for joining in joinings] == ["eos", "eos", "eos"]
    assert separator_of(SpanCorruption(separator="none")) == "none"


def test_pairs_have_no_stream():
    with pytest.raises(SettingsError, match="the Supervised objective needs pairs"):
        run_of(Supervised()).resolve()
