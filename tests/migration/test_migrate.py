"""A gin configuration becomes the run that it is, and no line of it is dropped in silence."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gin_text import RO_BASE, TOP_LEVEL, written
from golden_data import golden_dir

from spanloom.cli.recipe import find
from spanloom.migration.draft import MigrationError
from spanloom.migration.gin_config import read_gin
from spanloom.migration.migrate import Migrated, migrate
from spanloom.migration.t5x_files import t5x_file
from spanloom.model.sizes import named
from spanloom.settings.follow import Follow
from spanloom.settings.mixture import map_tasks
from spanloom.settings.objectives import SpanCorruption, Supervised
from spanloom.settings.optimizer import Adafactor, AdamW, Constant, Factors, Rsqrt
from spanloom.settings.packing import Packed, Unpacked
from spanloom.settings.row_sources import TfdsFolder
from spanloom.settings.run import Checkpoints, Evaluation, Loss, Run
from spanloom.settings.task import Task
from spanloom.settings.vocabulary import Bytes, SentencePiece

pytest.importorskip("gin")
NAMES = (
    "hmByT5__0_english_operative_config",
    "multilingual-t0__mt0_xl_finetune",
    "multilingual-t0__mt0_xxl_finetune",
    "t5x__examples__scalable_t5__umt5__pretrain_small",
    "t5x_models__ro_mt5x_base",
    "t5x_models__ro_t5x_base",
    *TOP_LEVEL,
)
GIVEN = [("MIXTURE_OR_TASK_NAME", "'my_span_corruption'")]


def gin_file(name: str, folder: Path) -> str:
    """A file that comes to what a golden one comes to."""
    path = folder / f"{name}.gin"
    if name in TOP_LEVEL:
        path.write_text(TOP_LEVEL[name])
    else:
        content = (golden_dir("t5x", "gin", "expected") / f"{name}.json").read_text(encoding="utf-8")
        path.write_text(written(json.loads(content)["bindings"]))
    return str(path)


def given(name: str) -> list[tuple[str, str]]:
    return GIVEN if "umt5" in name else []


def run_of(made: Migrated, folder: Path, **values: Any) -> Run:
    """What the written recipe gives."""
    path = folder / "written.py"
    path.write_text(made.text, encoding="utf-8")
    recipe = find(str(path))
    run = recipe.make(**{one.name: one.default for one in recipe.parameters} | values)
    assert isinstance(run, Run)
    return replace(run, name="written")


def from_text(text: str, folder: Path, *overrides: tuple[str, str]) -> Migrated:
    (folder / "run.gin").write_text(text)
    return migrate([str(folder / "run.gin")], overrides)


@pytest.mark.golden
@pytest.mark.parametrize("name", NAMES)
def test_every_binding_is_carried_over_or_listed(name: str, tmp_path: Path) -> None:
    file = gin_file(name, tmp_path)
    config = read_gin([file], given(name))
    made = migrate([file], given(name))
    fates = [(note.place, note.what) for note in made.notes]
    for binding in config.bindings:
        said = [
            note
            for note in made.notes
            if note.place == str(binding.place) and note.what.startswith(f"{binding.key} = ")
        ]
        assert len(said) == 1, binding
        assert said[0].kind == "carried" or (said[0].why and said[0].kind != "carried")
    assert len(fates) >= len(config.bindings)
    comments = " ".join(re.sub(r"\n#\s*", " ", made.text.partition("\n# ")[2]).split())
    for note in made.notes:
        if note.kind != "carried":
            assert " ".join(f"{note.what} {note.why}".split()) in comments, note


@pytest.mark.golden
@pytest.mark.parametrize("name", NAMES)
def test_the_recipe_gives_the_drafted_run(name: str, tmp_path: Path) -> None:
    made = migrate([gin_file(name, tmp_path)], given(name))
    run = run_of(made, tmp_path)
    assert without_code(run) == without_code(replace(made.draft.run, name="written"))
    assert [one.name for task in run.tasks for one in task.preprocessors] == [
        one.name for task in made.draft.run.tasks for one in task.preprocessors
    ]
    files = {one.name: ("x.tsv",) for one in made.draft.parameters if one.default == "()"}
    run_of(made, tmp_path, **files).resolve()


def without_code(run: Run) -> Run:
    """The run without preprocessors, which have all their arguments where the recipe has made them."""
    return replace(run, task=map_tasks(run.task, lambda task: replace(task, preprocessors=())))


@pytest.mark.golden
@pytest.mark.parametrize("name", NAMES)
def test_what_is_carried_over_decides_something(name: str, tmp_path: Path) -> None:
    """Every number that is said to be carried over changes the recipe when it changes."""
    file = gin_file(name, tmp_path)
    config, made = read_gin([file], given(name)), migrate([file], given(name))
    before, ignored = body(made), []
    for note in made.notes:
        binding = next((one for one in config.bindings if str(one.place) == note.place and is_of(one, note.what)), None)
        if note.kind != "carried" or binding is None or not other(binding.value):
            continue
        try:
            changed = migrate([file], [*given(name), (binding.key, other(binding.value))])
        except MigrationError:
            continue
        listed = [note for note in changed.notes if note.place.startswith("command line") and note.kind == "lost"]
        if body(changed) == before and not listed:
            ignored.append(binding.key)
    assert ignored == []


def is_of(binding: Any, what: str) -> bool:
    return what.startswith(f"{binding.key} = ")


def other(value: Any) -> str:
    """Another value of the same kind, as gin writes it; empty where there is none to try."""
    if isinstance(value, bool):
        return repr(not value)
    if isinstance(value, int | float) and value:
        return repr(value * 2)
    return ""


def body(made: Migrated) -> str:
    """The recipe without what is said of it."""
    return made.text.partition("\n\n\n# ")[0].partition('"""\n')[2].partition('"""\n')[2]


def test_the_documented_run_of_t5x(tmp_path: Path) -> None:
    run = run_of(from_text(TOP_LEVEL["t5x__examples__t5__t5_1_1__examples__small_c4_pretrain"], tmp_path), tmp_path)
    assert run == Run(
        "written",
        Task(
            "c4_v220_span_corruption",
            TfdsFolder("~/tensorflow_datasets/c4/en/2.2.0", "train", "validation"),
            SentencePiece("gs://t5-data/vocabs/cc_all.32000.100extra/sentencepiece.model", "pieces"),
            SpanCorruption(concat_documents=128),
        ),
        named("t5_1_1_small", dtype="bfloat16"),
        Adafactor(),
        Rsqrt(10_000),
        Loss(1e-4, 0.0, "sum"),
        batch_size=256,
        steps=10_000,
        checkpoint=Checkpoints(1000, keep_every=1000),
        eval=Evaluation(1000, 20),
    )


def test_a_fine_tuning_counts_its_steps_from_the_start(tmp_path: Path) -> None:
    made = from_text(TOP_LEVEL["t5x__examples__t5__t5_1_1__examples__base_wmt_finetune"], tmp_path)
    run = run_of(made, tmp_path, start="here")
    assert (run.steps, run.start, run.loss.normalizer) == (20_000, "here", 233472.0)
    assert run.follow == Follow("auto", "continue", "continue")
    assert run.model == named("t5_1_1_base", dropout=0.1, dtype="bfloat16")
    assert (run.schedule, run.optimizer) == (Constant(), Adafactor(learning_rate=0.001))
    assert isinstance(run.task, Task)
    assert run.task.objective == Supervised(256, 256, "trim")
    assert run.packing == Packed(256, 256)
    assert str(run.task.preprocessors[0]).startswith("Translate(source_language='en', target_language='de'")
    assert run.eval == Evaluation(100, 20, answers="all")


@pytest.mark.golden
def test_hmbyt5_of_mesh_tensorflow(tmp_path: Path) -> None:
    made = migrate([gin_file(NAMES[0], tmp_path)])
    run = run_of(made, tmp_path, text=("en.txt",)).resolve()
    assert run.model == named("byt5_small", dtype="bfloat16")
    assert isinstance(run.task, Task)
    assert run.task.vocabulary == Bytes("google")
    assert isinstance(run.task.objective, SpanCorruption)
    assert (run.task.objective.inputs_length, run.task.objective.mean_span_length) == (1024, 20.0)
    assert (run.batch_size, run.microbatch_size, run.steps) == (1024, 64, 100_000)
    assert run.optimizer == Adafactor() and run.schedule == Rsqrt(10_000)
    assert run.loss == Loss(1e-4, 0.0, "all_tokens") and run.packing == Unpacked()
    assert run.checkpoint == Checkpoints(25_000, keep_every=25_000)


@pytest.mark.golden
def test_another_network_of_mesh_tensorflow_is_said(tmp_path: Path) -> None:
    file = gin_file(NAMES[0], tmp_path)
    made = migrate([file], [("encoder/SelfAttention.shared_kv", "True")])
    lost = [note for note in made.notes if note.kind == "lost" and "shared_kv" in note.what]
    assert len(lost) == 1 and "False" in lost[0].why


@pytest.mark.golden
def test_dropout_that_never_took_effect_is_said(tmp_path: Path) -> None:
    made = migrate([gin_file("multilingual-t0__mt0_xl_finetune", tmp_path)])
    assert run_of(made, tmp_path).model.dropout == 0.0
    assert [note.why for note in made.notes if note.what == "DROPOUT_RATE = 0.1"] == [
        "no binding uses this macro, so that it has no effect there either"
    ]


def test_targets_that_were_padding_are_said(tmp_path: Path) -> None:
    (tmp_path / "ro_pretrain.gin").write_text("include 't5x/configs/runs/pretrain.gin'\n")
    made = from_text(RO_BASE, tmp_path)
    run = run_of(made, tmp_path)
    assert run.mesh.tensor == 2 and run.model == replace(named("t5_1_1_base"), vocab_size=64_000, dtype="bfloat16")
    assert "114 tokens" in next(note.why for note in made.notes if note.what == "targets of 256 tokens")


TAIL = "\nMIXTURE_OR_TASK_NAME = 'x'\nTASK_FEATURE_LENGTHS = {'inputs': 8, 'targets': 8}\nTRAIN_STEPS = 7\n"
BASE = "include 't5x/examples/t5/byt5/small.gin'\ninclude 't5x/configs/runs/pretrain.gin'\nDROPOUT_RATE = 0.0\n" + TAIL


def test_settings_of_t5x_that_have_one_of_ours(tmp_path: Path) -> None:
    more = """
trainer.Trainer.num_microbatches = 4
LOSS_NORMALIZING_FACTOR = "AVERAGE_PER_SEQUENCE"
LABEL_SMOOTHING = 0.1
adafactor.Adafactor.beta1 = 0.9
adafactor.Adafactor.factored = False
adafactor.Adafactor.global_norm_clip_threshold = 1.0
adafactor.Adafactor.weight_decay_rate = 1e-5
utils.create_learning_rate_scheduler.factors = "constant * linear_warmup * cosine_decay"
utils.create_learning_rate_scheduler.steps_per_cycle = 500
partitioning.PjitPartitioner.model_parallel_submesh = (2, 2, 1, 1)
partitioning.standard_logical_axis_rules.activation_partitioning_dims = 2
partitioning.standard_logical_axis_rules.parameter_partitioning_dims = 2
utils.SaveCheckpointConfig.keep = 5
RANDOM_SEED = 3
train_eval/utils.DatasetConfig.batch_size = 16
train/utils.DatasetConfig.seed = 3
"""
    made = from_text(BASE + more, tmp_path)
    run = run_of(made, tmp_path)
    assert (run.microbatch_size, run.loss.normalizer, run.loss.label_smoothing) == (32, "sequences", 0.1)
    assert run.optimizer == Adafactor(beta1=0.9, factored=False, global_norm_clip=1.0, weight_decay=1e-5)
    assert run.schedule == Factors("constant * linear_warmup * cosine_decay", 10_000, steps_per_cycle=500)
    assert (run.mesh.tensor, run.mesh.rules, run.seed, run.eval.batch_size) == (4, "t5x_a2_p2", 3, 16)
    assert run.checkpoint == Checkpoints(1000, keep=5)
    assert [note for note in made.notes if note.kind == "lost" and "task x" not in note.what] == []


def test_optax(tmp_path: Path) -> None:
    more = "OPTIMIZER = @optimizers.adamw()\noptimizers.adamw.learning_rate = 3e-4\noptimizers.adamw.b2 = 0.98\n"
    run = run_of(from_text(BASE + more, tmp_path), tmp_path)
    assert run.optimizer == AdamW(3e-4, beta2=0.98, weight_decay=1e-4, global_norm_clip=None)
    assert run.schedule == Constant(), "T5X's optax optimizers do not read the trainer's schedule"


def test_a_schedule_of_optax_is_listed(tmp_path: Path) -> None:
    more = "OPTIMIZER = @optimizers.adamw()\noptimizers.adamw.learning_rate = @optax.cosine_decay_schedule()\n"
    made = from_text(BASE + more, tmp_path)
    assert run_of(made, tmp_path).schedule == Constant()
    assert "a schedule of optax" in next(note.why for note in made.notes if "adamw.learning_rate" in note.what)


def test_a_rate_that_is_not_bound_is_that_of_t5x(tmp_path: Path) -> None:
    """create_learning_rate_scheduler has 0.5 and its own factors where a file binds neither."""
    (tmp_path / "pretrain.gin").write_text(
        (t5x_file("t5x/configs/runs/pretrain.gin") or "")
        .replace("utils.create_learning_rate_scheduler.factors = 'constant * rsqrt_decay'\n", "")
        .replace("utils.create_learning_rate_scheduler.base_learning_rate = 1.0\n", "")
    )
    run = run_of(from_text(BASE.replace("t5x/configs/runs/pretrain", "pretrain"), tmp_path), tmp_path)
    assert (run.optimizer.learning_rate, run.schedule) == (0.5, Factors(warmup_steps=10_000))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("MODEL = @models.DecoderOnlyModel()\n", "encoder-decoders alone"),
        ("OPTIMIZER = @optimizers.lars()\n", r"the optimizer is @optimizers.lars\(\)"),
        ("MIXTURE_OR_TASK_NAME = %gin.REQUIRED\n", "which task or mixture"),
        ("network.T5Config.mlp_activations = ('swish',)\n", "holds 'swish'"),
        ("utils.RestoreCheckpointConfig.path = 'checkpoint_9'\n", "at step 9 already"),
        ("LOSS_NORMALIZING_FACTOR = 'MEAN'\n", "is 'MEAN'"),
        ("network.T5Config.vocab_size = None\n", "vocab_size is not set"),
        ("TRAIN_STEPS = [1]\n", r"total_steps = %TRAIN_STEPS: a value .* wrong kind \(int\(\)"),
        ("TRAIN_STEPS = 'many'\n", r"total_steps = %TRAIN_STEPS: a value .* wrong kind \(invalid literal"),
        ("TASK_FEATURE_LENGTHS = 3\n", "task_feature_lengths is 3, and must be such as"),
    ],
)
def test_what_cannot_be_a_run_is_refused(more: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(MigrationError, match=message):
        from_text(BASE + more, tmp_path)


def test_a_model_alone_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "a.gin").write_text("include 't5x/examples/t5/byt5/small.gin'\n")
    with pytest.raises(MigrationError, match=r"runs/pretrain\.gin"):
        migrate([str(tmp_path / "a.gin")])


def test_an_include_that_is_nowhere_is_listed(tmp_path: Path) -> None:
    made = from_text("include 'nowhere.gin'\n" + BASE, tmp_path)
    assert next(note.what for note in made.notes if note.kind == "lost") == "include 'nowhere.gin'"


@pytest.mark.golden
@pytest.mark.parametrize("name", NAMES)
def test_recipes_are_formatted(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ruff")
    monkeypatch.chdir(tmp_path)
    gin_file(name, Path())
    made = migrate([f"{name}.gin"], given(name))
    path = tmp_path / "written.py"
    path.write_text(made.text, encoding="utf-8")
    for words in (["format", "--check"], ["check", "--select", "E,F,W,I"]):
        line = [sys.executable, "-m", "ruff", *words, "--isolated", "--line-length", "120", "--no-cache", str(path)]
        done = subprocess.run(line, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_texts_that_would_end_a_docstring_or_a_string(tmp_path: Path) -> None:
    more = "MIXTURE_OR_TASK_NAME = 'a\"b'\nutils.RestoreCheckpointConfig.path = '''\"\"\"\\n\\'x\\\\'''\n"
    made = from_text(BASE + more, tmp_path)
    run = run_of(made, tmp_path)
    assert run.start == '"""\n\'x\\' and run.task.name == 'a"b'
