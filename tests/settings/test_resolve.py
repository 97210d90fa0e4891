from dataclasses import replace

import pytest

from spanloom.settings.follow import Follow
from spanloom.settings.mixture import Mixture, Weighted
from spanloom.settings.model import Model
from spanloom.settings.objectives import FullLM, PrefixLM, SpanCorruption, Supervised
from spanloom.settings.optimizer import WSD, AdamW, Cosine, Factors, Linear, Rsqrt
from spanloom.settings.packing import Packed, Unpacked
from spanloom.settings.run import Checkpoints, Evaluation, Loading, Logging, Loss, Run
from spanloom.settings.serialize import SettingsError
from spanloom.settings.task import PairFiles, PythonDocs, Task, TextFiles
from spanloom.settings.vocabulary import Bytes

pytestmark = pytest.mark.short

MODEL = Model(vocab_size=384, d_model=32, d_ff=64, num_heads=2, d_kv=16, num_encoder_layers=2, num_decoder_layers=2)
TASK = Task("docs", PythonDocs())
PAIRS = Task("pairs", PairFiles(("a.tsv",)), objective=Supervised())
RUN = Run(name="a", task=TASK, model=MODEL, batch_size=7, steps=100)


@pytest.mark.parametrize("kind", [Linear, Cosine, WSD])
def test_decay_steps_follow_from_steps(kind):
    assert replace(RUN, schedule=kind()).resolve().schedule == kind(decay_steps=100)
    assert replace(RUN, schedule=kind(decay_steps=200)).resolve().schedule == kind(decay_steps=200)


def test_eval_batch_size_follows_from_batch_size():
    assert RUN.resolve().eval.batch_size == 7
    assert replace(RUN, eval=Evaluation(batch_size=3)).resolve().eval.batch_size == 3


def test_separator_follows_from_concat_documents():
    seqio = replace(RUN, task=replace(TASK, objective=SpanCorruption(concat_documents=128)))
    assert seqio.resolve().task.objective.separator == "none"
    assert RUN.resolve().task.objective.separator == "eos"


def test_resolving_twice_changes_nothing_more():
    once = replace(RUN, schedule=Linear()).resolve()
    assert once.resolve() == once


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_size": 0}, "batch_size is 0: must be 1 or more"),
        ({"steps": -1}, "steps is -1: must be 0 or more"),
        ({"seed": -1}, "seed is -1"),
        ({"name": "a/b"}, "name is 'a/b'"),
        ({"log": Logging(every=0)}, "log.every is 0: must be 1 or more .to do it never"),
        ({"eval": Evaluation(every=0)}, "eval.every is 0"),
        ({"eval": Evaluation(batch_size=0)}, "eval.batch_size is 0"),
        ({"checkpoint": Checkpoints(every=0)}, "checkpoint.every is 0"),
        ({"checkpoint": Checkpoints(keep=0)}, "checkpoint.keep is 0"),
        ({"optimizer": AdamW(learning_rate=0.0)}, "optimizer.learning_rate is 0.0: must be above 0"),
        ({"loss": Loss(label_smoothing=1.0)}, "loss.label_smoothing"),
        ({"loss": Loss(normalizer=0.0)}, "loss.normalizer"),
        ({"schedule": Rsqrt(warmup_steps=-1)}, "schedule.warmup_steps is -1"),
        ({"schedule": Rsqrt(warmup_steps=0)}, "schedule.warmup_steps is 0: must be 1 or more"),
        ({"schedule": Linear(warmup_steps=100)}, "warm-up must end before"),
        ({"schedule": Linear(warmup_steps=50, decay_steps=50, end_factor=0.1)}, "decay_steps is 50 .* must end before"),
        ({"schedule": Linear(decay_steps=50)}, "learning rate is 0 from schedule.decay_steps = 50"),
        ({"schedule": WSD(decay_share=0.0)}, "schedule.decay_share"),
        ({"schedule": Cosine(end_factor=2.0)}, "schedule.end_factor"),
        ({"schedule": Linear(), "steps": 0}, "steps is 0, so that the schedule Linear has no end: give"),
        (
            {"schedule": WSD(decay_steps=0), "steps": 0},
            "schedule.decay_steps is 0, so that the schedule WSD has no end",
        ),
        ({"schedule": Factors("constant * rsqrt_decai")}, "unknown factor 'rsqrt_decai' .*did you mean 'rsqrt_decay'"),
        ({"schedule": Factors("linear_warmup", warmup_steps=0)}, "'linear_warmup' needs warmup_steps of at least 1"),
        ({"model": replace(MODEL, vocab_size=300)}, "vocabulary has 384 ids and model.vocab_size is 300: raise"),
        ({"model": replace(MODEL, d_kv=0)}, "model.d_kv is 0"),
        ({"model": replace(MODEL, dropout=1.0)}, "model.dropout is 1.0"),
        ({"model": replace(MODEL, activations=())}, "model.activations"),
        ({"model": replace(MODEL, relative_position_buckets=3)}, "relative_position_buckets"),
        ({"model": replace(MODEL, relative_position_max_distance=16)}, "relative_position_max_distance"),
        ({"task": replace(TASK, name="")}, "task.name is ''"),
        ({"task": replace(TASK, source=PythonDocs(heldout_share=-0.1))}, "task.source.heldout_share is -0.1"),
        ({"task": replace(TASK, source=TextFiles())}, "task.source.files is empty"),
        ({"task": replace(TASK, source=TextFiles(("a",), heldout_share=1.0))}, "or name task.source.heldout_files"),
        ({"task": replace(TASK, vocabulary=Bytes(extra_ids=-1))}, "extra_ids is -1"),
        ({"task": replace(TASK, objective=SpanCorruption(noise_density=1.0))}, "noise_density is 1.0"),
        ({"task": replace(TASK, objective=SpanCorruption(mean_span_length=0.5))}, "mean_span_length is 0.5"),
        ({"task": replace(TASK, objective=SpanCorruption(inputs_length=0))}, "inputs_length is 0"),
        ({"task": replace(TASK, objective=Supervised())}, "needs pairs"),
        ({"task": replace(TASK, name="a\ud800")}, r"task.name is 'a\\ud800'.*half a character"),
        ({"task": replace(TASK, source=PairFiles(("a.tsv",)))}, "needs plain text"),
        ({"task": Task("p", PairFiles(("a.tsv",)), Bytes(), Supervised(1))}, "inputs_length is 1"),
    ],
)
def test_contradictions_are_refused(change, message):
    with pytest.raises(SettingsError, match=message):
        replace(RUN, **change).resolve()


def test_all_problems_are_named_at_once():
    with pytest.raises(SettingsError, match=r"batch_size is 0(.|\n)*steps is -1"):
        replace(RUN, batch_size=0, steps=-1).resolve()


def test_what_is_fine_passes():
    heldout = TextFiles(("a",), heldout_files=("b",), heldout_share=1.0)
    replace(RUN, task=replace(TASK, source=heldout)).resolve()
    replace(RUN, task=replace(TASK, source=PythonDocs(heldout_share=0.0))).resolve()
    replace(RUN, schedule=Linear(decay_steps=50, end_factor=0.1)).resolve()
    replace(RUN, task=replace(TASK, vocabulary=Bytes("google")), model=replace(MODEL, vocab_size=259)).resolve()
    replace(RUN, steps=0, schedule=Linear(warmup_steps=10, decay_steps=20, end_factor=0.1)).resolve()


@pytest.mark.parametrize(
    ("objective", "packing", "rows"),
    [
        (SpanCorruption(inputs_length=64), Unpacked(), 64),
        (SpanCorruption(inputs_length=64), Packed(), 64),
        (SpanCorruption(inputs_length=64), Packed(inputs_length=256, targets_length=512), 16),
        (FullLM(targets_length=128), Unpacked(), 32),
        (PrefixLM(inputs_length=100), Unpacked(), 40),
    ],
)
def test_batch_tokens_say_how_many_rows_a_batch_has(objective, packing, rows):
    run = replace(RUN, task=replace(TASK, objective=objective), packing=packing, batch_tokens=4096).resolve()
    assert (run.batch_size, run.eval.batch_size, run.batch_tokens) == (rows, rows, 4096)
    assert run.resolve() == run


def test_batch_tokens_go_by_the_longest_task():
    tasks = (replace(TASK, name=f"{n}", objective=SpanCorruption(inputs_length=n)) for n in (32, 128))
    assert replace(RUN, task=Mixture("all", tuple(map(Weighted, tasks))), batch_tokens=1024).resolve().batch_size == 8


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"batch_tokens": 0}, r"batch_tokens is 0, but one row has \d+ tokens"),
        ({"batch_tokens": 10}, r"batch_tokens is 10, but one row has \d+ tokens"),
        (
            {"task": PAIRS, "batch_tokens": 100},
            r"how long rows are only the data can say: give --task.objective.inputs-",
        ),
        ({"packing": Packed(inputs_length=0)}, "packing.inputs_length is 0: must be 1 or more"),
        ({"packing": Packed(max_segments=-1)}, "packing.max_segments is -1: must be 1 or more"),
        ({"loading": Loading(workers=-1)}, "loading.workers is -1: must be 0 or more"),
        ({"loading": Loading(ahead=0)}, "loading.ahead is 0: must be 1 or more"),
    ],
)
def test_rows_and_reading_ahead_that_make_no_sense_are_refused(change, said):
    with pytest.raises(SettingsError, match=said):
        replace(RUN, **change).resolve()


def test_packed_pairs_need_no_lengths_of_their_own_for_batch_tokens():
    run = replace(RUN, task=PAIRS, packing=Packed(inputs_length=128), batch_tokens=1024)
    assert run.resolve().batch_size == 8


def test_microbatches_follow_from_tokens_and_eval_batches_from_them():
    run = replace(RUN, task=replace(TASK, objective=SpanCorruption(inputs_length=64)), batch_tokens=4096)
    resolved = replace(run, microbatch_tokens=1024).resolve()
    assert (resolved.batch_size, resolved.microbatch_size, resolved.microbatches) == (64, 16, 4)
    assert resolved.eval.batch_size == 16 and resolved.resolve() == resolved
    assert RUN.resolve().microbatches == 1


def test_a_microbatch_that_does_not_divide_the_batch_names_the_nearest_that_does():
    with pytest.raises(SettingsError, match=r"microbatch_size is 5, which does not divide the batch_size 12: .* is 4"):
        replace(RUN, batch_size=12, microbatch_size=5).resolve()
    with pytest.raises(SettingsError, match="microbatch_size is 0: must be 1 or more"):
        replace(RUN, microbatch_size=0).resolve()


def test_nothing_is_taken_over_from_a_run_that_nobody_named():
    with pytest.raises(SettingsError, match=r"follow.optimizer is 'continue', and this run follows none.*--start"):
        replace(RUN, follow=Follow(optimizer="continue")).resolve()
    replace(RUN, follow=Follow(optimizer="continue"), start="other").resolve()
