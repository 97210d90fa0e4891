import re
from dataclasses import replace
from pathlib import Path

import pytest

from spanloom.cli.errors import UsageError
from spanloom.cli.flags import Resuming, parse
from spanloom.cli.recipe import Recipe, find
from spanloom.settings.objectives import UL2, FullLM, IidDenoising, PrefixLM, SpanCorruption, TextInfilling
from spanloom.settings.optimizer import Adafactor, AdamWRMS, Constant
from spanloom.settings.serialize import SettingsError
from spanloom.settings.vocabulary import SentencePiece

pytestmark = pytest.mark.short


def command(*argv, recipe="quickstart"):
    return parse(find(recipe), argv, f"spanloom train {recipe}", Resuming)


def run(*argv, recipe="quickstart"):
    return command(*argv, recipe=recipe).run


@pytest.mark.parametrize("name", ["quickstart", "pretrain", "byt5_small", "t5_1_1_base"])
def test_common_flags_exist_in_every_recipe(name):
    made = run(
        *["--out", "d", "--steps", "7", "--seed", "3", "--batch_size", "5"],
        *["--checkpoint.every", "2", "--eval.every", "4", "--log.every", "6"],
        recipe=name,
    )
    assert (made.out, made.steps, made.seed, made.batch_size) == ("d", 7, 3, 5)
    assert (made.checkpoint.every, made.eval.every, made.log.every) == (2, 4, 6)


def test_dashes_and_underscores_are_alike():
    assert run("--batch-size", "5") == run("--batch_size", "5") == run("--batch-size=5")
    assert run("--optimizer.learning-rate", "2") == run("--optimizer.learning_rate=2.0")


def test_without_flags_the_recipe_is_untouched():
    assert run() == find("quickstart").make()


def test_kinds_and_fields_in_any_order():
    made = run("--optimizer.decay-rate", "0.7", "--optimizer", "adafactor", "--schedule", "constant")
    assert made.optimizer == Adafactor(decay_rate=0.7)
    assert made.schedule == Constant()
    assert run("--optimizer", "adamw_rms").optimizer == find("quickstart").make().optimizer
    assert isinstance(run("--optimizer", "adamw-rms", "--optimizer.min-scale", "1e-2").optimizer, AdamWRMS)


def test_model_by_name_keeps_how_it_is_computed(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from dataclasses import replace\nfrom spanloom.recipes.quickstart import recipe as base\n"
        "def recipe(): return replace(base(), model=replace(base().model, scan_layers=False))\n"
    )
    made = run("--model", "byt5-small", "--model.d-ff", "99", recipe=str(path)).model
    assert (made.name, made.d_model, made.d_ff, made.scan_layers) == ("byt5_small", 1472, 99, False)


def test_kind_with_a_field_that_must_be_given():
    made = run("--task.vocabulary", "sentence-piece", "--task.vocabulary.path", "x.model", "--model", "t5_small")
    assert made.task.vocabulary == SentencePiece("x.model")
    with pytest.raises(UsageError, match=r"Missing .*--task.vocabulary.path"):
        run("--task.vocabulary", "sentence-piece")


OBJECTIVES = {
    "span-corruption": SpanCorruption,
    "iid-denoising": IidDenoising,
    "prefix-lm": PrefixLM,
    "text-infilling": TextInfilling,
    "ul2": UL2,
}


@pytest.mark.parametrize(("name", "kind"), OBJECTIVES.items(), ids=OBJECTIVES.keys())
def test_objectives_by_name_keep_what_all_on_text_share(name, kind):
    flags = ["--task.objective.merge", "false", "--inputs-length", "64", "--task.objective", name]
    assert run(*flags, recipe="pretrain").task.objective == replace(
        kind(64, merge=False), **({"mean_span_length": 20.0} if kind is SpanCorruption else {})
    )
    assert run("--task.objective", name).task.objective.inputs_length == 128, "that of quickstart"


def test_fields_of_objectives_are_flags():
    rates = ["--task.objective.r-rate", "0", "--task.objective.x-mean-span-lengths", "3", "12"]
    shares = ["--task.objective.x-noise-densities", "0.5", "0.5", "--task.objective.modes", "[N]", "[S]", "[X]"]
    assert run("--task.objective", "ul2", *rates, *shares).task.objective == UL2(
        128, r_rate=0.0, x_mean_span_lengths=(3.0, 12.0), x_noise_densities=(0.5, 0.5), modes=("[N]", "[S]", "[X]")
    )
    assert run("--task.objective", "full-lm", "--task.objective.targets-length", "64").task.objective == FullLM(
        targets_length=64
    )
    with pytest.raises(UsageError, match=r"task.objective is prefix-lm here, which has no mean_span_length"):
        run("--task.objective", "prefix-lm", "--task.objective.mean-span-length", "3")


@pytest.mark.parametrize(
    ("flag", "value", "objective"),
    [("--mean-span-length", "3", "text-infilling"), ("--inputs-length", "64", "full-lm")],
)
def test_a_recipes_parameter_that_another_kind_makes_idle_is_refused(flag, value, objective):
    with pytest.raises(UsageError, match=f"{flag} says nothing with --task.objective {objective}"):
        run(flag, value, "--task.objective", objective, recipe="pretrain")


def test_switches():
    assert run("--log.tensorboard", "false").log.tensorboard is False
    assert run("--log.tensorboard", "no", "--log.tensorboard").log.tensorboard is True


@pytest.mark.parametrize("tracker", ["wandb", "trackio"])
def test_a_tracker_is_a_switch_that_may_name_a_project(tracker):
    def chosen(*argv):
        return getattr(run(*argv).log, tracker)

    assert chosen() is chosen(f"--log.{tracker}", "no") is False
    assert chosen(f"--log.{tracker}") is chosen(f"--log.{tracker}", "true") is True
    assert chosen(f"--log.{tracker}", "mine") == "mine"
    assert command("--debug").options.debug is True


def test_unset():
    assert run("--optimizer.global-norm-clip", "None").optimizer.global_norm_clip is None


def test_a_list_is_emptied_by_none(tmp_path):
    """Of a recipe's own parameters and of the run's fields alike, whatever the type of the items."""
    path = tmp_path / "mine.py"
    path.write_text(
        "from dataclasses import replace\nfrom spanloom.recipes.pretrain import recipe as base\n"
        "def recipe(text: tuple[str, ...] = ('a',), sizes: tuple[int, ...] = (1, 2)):\n"
        "    return replace(base(text=text, heldout=('h',)), name=f'n{sizes}')\n"
    )
    made = run("--text", "None", "--sizes=None", "--task.source.heldout-files", "None", recipe=str(path))
    assert (made.task.source.files, made.task.source.heldout_files, made.name) == ((), (), "n()")
    assert run("--text", "None", "b", recipe=str(path)).task.source.files == ("None", "b")
    with pytest.raises(UsageError, match="--text takes a value"):
        run("--text", recipe=str(path))
    with pytest.raises(UsageError, match="--sizes 'None': must be a whole number"):
        run("--sizes", "1", "None", recipe=str(path))


def test_values_are_judged_by_the_kind_that_has_them():
    """beta1 may be unset in one kind of optimizer, not in another; formats of pairs are other ones than of text."""
    assert run("--optimizer", "adafactor", "--optimizer.beta1", "None").optimizer.beta1 is None
    with pytest.raises(UsageError, match=r"--optimizer\.beta1 'None': must be a number"):
        run("--optimizer", "adamw", "--optimizer.beta1", "None")
    assert run("--task.source", "text-files", "--task.source.format", "txt").task.source.format == "txt"
    with pytest.raises(UsageError, match="'txt': must be one of auto, jsonl"):
        run("--task.source", "pair-files", "--task.source.format", "txt")


def test_values_may_begin_with_a_dash(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from pathlib import Path\n"
        "from spanloom.recipes.quickstart import recipe as quickstart\n"
        "def recipe(names: tuple[str, ...] = (), place: Path = Path()):\n"
        "    assert (names, place) == (('-a', '--b', 'c'), Path('-p')), (names, place)\n"
        "    return quickstart()\n"
    )
    words = ["--names", "-a", "--names=--b", "c", "--place=-p", "--out=--out", "--name", "-n"]
    made = command(*words, "--task.name=-t", recipe=str(tmp_path / "mine.py")).run
    assert (made.out, made.name, made.task.name) == ("--out", "-n", "-t")


def test_resuming_flags():
    made = command("--accept-change", "seed,batch_size", "--accept-change", "task", "--fork", "x").options
    assert made.accepted == ("seed", "batch_size", "task")
    assert made.fork == "x"


def test_asked_for():
    assert command("--out", "x", "--batch-size", "3").asked == {"out", "batch_size"}


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--stpes", "4"], r"unknown flag --stpes; did you mean --steps\?"),
        (["--learning-rate", "4"], r"unknown flag --learning-rate; did you mean --optimizer.learning-rate"),
        (["--optimiser.learning_rate", "4"], r"did you mean --optimizer.learning-rate"),
        (["--model.d_modle", "4"], r"did you mean --model.d-model"),
        (["--zzz"], r"unknown flag --zzz; `spanloom train quickstart --help` lists them"),
        (
            ["--optimizer.decay-rate", "1"],
            r"optimizer is adamw-rms here, which has no decay_rate; .*--optimizer adafactor",
        ),
        (["--optimizer", "adam"], r"--optimizer adam: no such kind; did you mean adamw"),
        (["--optimizer"], r"--optimizer takes one name, not 0"),
        (["--model", "byt5_smal"], r"--model byt5_smal: .*did you mean byt5_small"),
        (["--steps", "x"], r"^--steps 'x': must be a whole number$"),
        (["--steps", "1.5"], r"^--steps '1.5': must be a whole number$"),
        (["--steps="], r"^--steps '': must be a whole number$"),
        (["--optimizer.learning-rate", "abc"], r"^--optimizer.learning-rate 'abc': must be a number$"),
        (["--optimizer.global-norm-clip", "no"], r"'no': must be a number or None$"),
        (
            ["--loss.normalizer", "real_token"],
            r"'real_token': must be one of sum, .* \(did you mean real_tokens\?\) or a",
        ),
        (["--model.activations", "gelu", "gleu"], r"'gleu': must be one of .*did you mean gelu"),
        (["--model.activations"], r"^--model.activations takes a value: --model.activations \[\{gelu"),
        (["--accept-change"], r"^--accept-change takes a value: --accept-change \[STR ...\]"),
        (["--log", "5"], r"^--log is a group of settings: name one of them \(--log.every, --log.tensorboard"),
        (["--task"], r"^--task is a group of settings: .*--task.name, --task.source"),
        (["--eval.", "5"], r"unknown flag --eval.; did you mean --eval"),
        (["--steps"], r"^--steps takes a value: --steps INT$"),
        (["--steps", "1", "2"], r"^--steps takes one value, not 2: 1 2$"),
        (
            ["--model.dtype", "float16"],
            r"^--model.dtype 'float16': must be one of float32, bfloat16 \(float16 holds nothing above 65,504",
        ),
        (["--log.tensorboard", "maybe"], r"^--log.tensorboard 'maybe': must be true or false"),
        (["left", "--steps", "1"], r"'left' is left over"),
    ],
)
def test_what_cannot_be_understood_is_one_line(argv, message):
    with pytest.raises(UsageError, match=message) as error:
        command(*argv)
    assert "\n" not in str(error.value)
    assert not re.search("[│─╭╰]", str(error.value))


def test_a_wrong_flag_is_named_before_a_missing_parameter():
    with pytest.raises(UsageError, match="unknown flag --dta; did you mean --data"):
        command("--dta", "x", recipe="finetune")
    with pytest.raises(SettingsError, match="needs --start"):
        command("--data", "x", recipe="finetune")


def test_parameters_of_a_recipe(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from pathlib import Path\nfrom typing import Literal\n"
        "from spanloom.recipes.quickstart import recipe as quickstart\nfrom dataclasses import replace\n"
        "def recipe(letters: tuple[str, ...], count: int | None = None, kind: Literal['a', 'b'] = 'a',\n"
        "           steps: int = 30, twice: bool = False, where: Path = Path('x')):\n"
        "    assert isinstance(where, Path)\n"
        "    made = replace(quickstart(), name='-'.join(letters) + kind, seed=count or 0)\n"
        "    return replace(made, steps=steps * (1 + twice), batch_size=steps)\n"
    )
    made = parse(
        find(str(path)), ["--letters", "x", "y", "--letters", "z", "--count", "4", "--kind", "b"], "prog", Resuming
    ).run
    assert (made.name, made.seed, made.steps) == ("x-y-zb", 4, 30)
    # A parameter named like a field of the run: both get the value.
    made = parse(find(str(path)), ["--letters", "x", "--steps", "5", "--twice"], "prog", Resuming).run
    assert (made.steps, made.batch_size) == (5, 5)
    made = parse(find(str(path)), ["--letters", "x", "--batch_size", "5"], "prog", Resuming).run
    assert made.batch_size == 5
    with pytest.raises(UsageError, match="--letters"):
        parse(find(str(path)), ["--kind", "a"], "prog", Resuming)


def test_help_lists_every_field_with_meaning_and_default(capsys):
    with pytest.raises(SystemExit) as stop:
        command("--help")
    assert stop.value.code == 0
    text = capsys.readouterr().out
    for flag in ["--steps INT", "--optimizer.learning-rate FLOAT", "--model STR", "--schedule {", "--accept-change"]:
        assert flag in text
    assert "Sequences in a training batch" in text
    assert "(default: quickstart)" in text
    assert "Python's own documentation" in text


def test_help_follows_the_kinds_that_are_given(capsys):
    with pytest.raises(SystemExit):
        command("--optimizer", "adafactor", "--task.vocabulary", "sentence-piece", "--help")
    text = capsys.readouterr().out
    assert "--optimizer.decay-rate" in text
    assert "--task.vocabulary.path" in text


@pytest.mark.parametrize("name", ["pretrain", "finetune"])
def test_help_of_recipes_with_parameters(capsys, name):
    with pytest.raises(SystemExit):
        command("-h", recipe=name)
    text = capsys.readouterr().out
    assert {"pretrain": "--text", "finetune": "--data"}[name] in text
    assert "Files or globs" in text
    assert "--optimizer.learning-rate" in text


def test_recipe_without_parameters_and_a_source_is_kept(tmp_path):
    made = find("quickstart")
    assert isinstance(made, Recipe)
    assert Path(made.source).name == "quickstart.py"


# Mixtures.


@pytest.fixture
def mixture(tmp_path):
    path = tmp_path / "mixed.py"
    path.write_text(
        "from dataclasses import replace\nfrom spanloom.recipes.quickstart import recipe as quickstart\n"
        "from spanloom.settings.mixture import ByAlpha, Mixture, Weighted\n"
        "def recipe():\n"
        "    run = quickstart()\n"
        "    parts = [Weighted(replace(run.task, name=f't{i}'), ByAlpha(0.3)) for i in range(300)]\n"
        "    return replace(run, task=Mixture('many', tuple(parts)))\n"
    )
    return str(path)


def test_fields_of_a_mixture_and_of_its_run_are_flags(mixture):
    asked = command("--task.stop", "first", "--steps", "7", "--optimizer.learning-rate", "0.5", recipe=mixture)
    assert (asked.run.task.stop, asked.run.steps, asked.run.optimizer.learning_rate) == ("first", 7, 0.5)
    assert len(asked.run.tasks) == 300
    assert asked.run.task.name == "many"


def test_a_mixture_without_tasks_is_refused(mixture):
    Path(mixture).write_text(Path(mixture).read_text().replace("range(300)", "range(0)"))
    with pytest.raises(UsageError, match="mixture 'many' has no task in it: give it parts"):
        command(recipe=mixture)


def test_settings_of_one_of_many_tasks_are_in_the_recipe(mixture, capsys):
    with pytest.raises(UsageError, match=r"--task.source.files: this run mixes 300 tasks, whose settings stand in"):
        command("--task.source.files", "a.txt", recipe=mixture)
    with pytest.raises(UsageError, match=r"--task.stop 'frist': must be one of .*did you mean first"):
        command("--task.stop", "frist", recipe=mixture)
    with pytest.raises(SystemExit):
        command("--help", recipe=mixture)
    said = capsys.readouterr().out
    assert "--task.stop" in said
    assert "t299" not in said


@pytest.mark.parametrize("name", ["preprocessors", "metrics", "postprocess", "features"])
def test_code_and_lists_of_settings_stand_in_recipes_alone(name):
    with pytest.raises(UsageError, match=f"--task.{name}: no flag can say what this holds .*: write a recipe"):
        run(f"--task.{name}", "x")
    assert run("--task.deduplicate", "text", "title").task.deduplicate == ("text", "title")
