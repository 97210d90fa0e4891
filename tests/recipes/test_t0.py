import json

import pytest
from bare_checkpoint import save_bare
from golden_data import shared_dir
from tfrecord_files import example, write_records

from spanloom.cli.main import main
from spanloom.recipes.quickstart import recipe as quickstart
from spanloom.recipes.t0 import recipe
from spanloom.settings.feature import Feature
from spanloom.settings.mixture import BySize
from spanloom.settings.packing import Packed
from spanloom.settings.row_sources import HuggingFaceDataset, RowFiles, SeqioCaches
from spanloom.settings.serialize import SettingsError, from_json, to_json
from spanloom.tasks.prompts.prompted import ANSWER_NUMBER, CACHED_PROMPT
from spanloom.tasks.prompts.t0_table import t0_data_sets
from spanloom.tasks.rates import task_rates

CHOICES = {
    "name": "Is it?",
    "jinja": "{{text}} Is it? ||| {{answer_choices[label]}}",
    "answer_choices": "no ||| yes",
    "metadata": {"original_task": True},
}
OPEN = {"name": "write", "jinja": "Write {{label}} ||| {{text}}", "metadata": {"original_task": False}}


@pytest.fixture
def start(tmp_path):
    """A checkpoint as far as recipes look at it."""
    save_bare(tmp_path / "start", 5, quickstart().resolve())
    return str(tmp_path / "start")


@pytest.fixture
def prompts(tmp_path):
    """Two templates for each data set of T0, in promptsource's layout."""
    for row in t0_data_sets():
        place = tmp_path / "promptsource" / "templates" / "/".join(filter(None, row.name))
        place.mkdir(parents=True)
        about = {"dataset": row.name[0], "subset": row.name[1], "templates": {"1": CHOICES, "2": OPEN}}
        (place / "templates.yaml").write_text(json.dumps(about))
    return str(tmp_path / "promptsource")


def write_rows(place, **splits):
    place.mkdir(parents=True)
    for split, count in splits.items():
        rows = ({"text": f"{split} {number}", "label": number % 2} for number in range(count))
        (place / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_cache(place, count=8):
    """A task as P3 has it."""
    place.mkdir(parents=True)
    rows = []
    for number in range(count):
        label = "yes" if number % 2 else "no"
        rows.append(
            {
                "inputs": [5, 6],
                "inputs_pretokenized": [f"Cached {number}. Is it?"],
                "targets": [7, 1],
                "targets_pretokenized": [f"\n{label}"],
                "answer_choices": ["no", "yes"],
            }
        )
    ids, text = {"shape": [None], "dtype": "int32"}, {"shape": [], "dtype": "string"}
    features = {"inputs": ids, "targets": ids, "answer_choices": {"shape": [None], "dtype": "string"}}
    features |= {"inputs_pretokenized": text, "targets_pretokenized": text}
    for split in ("train", "validation"):
        (place / f"info.{split}.json").write_text(json.dumps({"num_shards": 1, "features": features}))
        write_records(place / f"{split}.tfrecord-00000-of-00001", map(example, rows))
    (place / "COMPLETED").touch()


@pytest.mark.short
def test_what_is_not_there_is_listed_at_once_with_what_is_left(tmp_path, prompts, start):
    data = tmp_path / "data"
    write_rows(data / "glue_mrpc", train=6, validation=4)
    write_rows(data / "trec", train=6)
    write_cache(data / "imdb_write")
    with pytest.raises(SettingsError) as error:
        recipe(str(data), (prompts,), start)
    said = str(error.value)
    assert "lacks 36 of the 38 data sets of t0_train: " in said
    for name, tasks, rate in (
        ("xsum", "2 tasks", "408,090"),
        ("amazon_polarity", "2 tasks", "500,000"),
        ("imdb", "1 task", "25,000"),
    ):
        assert f"{name} ({tasks}, rate {rate})" in said
    assert "glue/mrpc (" not in said and "trec (" not in said
    assert "5 of 76 tasks, with 43,240 of a total rate of " in said and "--missing skip goes on with these" in said
    (tmp_path / "none").mkdir()
    with pytest.raises(
        SettingsError, match=r"lacks 38 of the 38 data sets of t0_train: .* What is there makes no task"
    ):
        recipe(str(tmp_path / "none"), (prompts,), start, missing="skip")


@pytest.mark.short
@pytest.mark.parametrize(
    ("mixture", "there", "one", "left"),
    [
        ("t0_train", "glue_mrpc", "trec (2 tasks, rate 10,904)", "2 of 76 tasks, with 7,336 of a total rate of "),
        ("t0+_train", "glue_mrpc", "trec (2 tasks, rate 10,904)", "2 of 96 tasks, with 7,336 of a total rate of "),
        ("t0++_train", "glue_mrpc", "trec (2 tasks, rate 10,904)", "2 of 108 tasks, with 7,336 of a total rate of "),
        ("t0_train_one_og_prompt", "glue_mrpc", "trec (1 task, rate 5,452)", "1 of 38 tasks, with 3,668 of a total"),
        ("t0_train_all_og_prompts", "glue_mrpc", "trec (1 task, rate 5,452)", "1 of 38 tasks, with 3,668 of a total"),
        ("t0_train_score_eval", "glue_mrpc", "xsum (1 task, rate 204,045)", "1 of 24 tasks, with 3,668 of a total"),
        ("t0_eval_score_eval", "super_glue_rte", "super_glue/cb (1 task)", "1 of 11 tasks; --missing skip goes on"),
        ("bias_fairness_eval_score_eval", "crows_pairs", "super_glue/axg (1 task)", "1 of 7 tasks; --missing skip"),
    ],
)
def test_what_is_not_there_has_no_rate_where_t0_has_none(tmp_path, prompts, start, mixture, there, one, left):
    write_rows(tmp_path / "data" / there, train=6, validation=4, test=4)
    with pytest.raises(SettingsError) as error:
        recipe(str(tmp_path / "data"), (prompts,), start, mixture)
    said = str(error.value)
    assert one in said and left in said
    assert "rate 0" not in said and " 0 of a total" not in said
    assert ("rate" in said) == ("total rate" in said)


@pytest.mark.short
def test_the_mixture_of_what_is_there(tmp_path, prompts, start):
    data = tmp_path / "data"
    write_rows(data / "glue" / "mrpc", train=6, validation=4)
    write_cache(data / "data" / "imdb_Is_it_")
    run = recipe(str(data), (prompts,), start, missing="skip").resolve()
    assert from_json(to_json(run)) == run
    tasks = {task.name: task for task in run.tasks}
    assert list(tasks) == ["glue_mrpc_Is_it_", "glue_mrpc_write", "imdb_Is_it_"]
    assert [part.rate for part in run.task.parts] == [3668, 3668, 25_000]
    mrpc, imdb = tasks["glue_mrpc_Is_it_"], tasks["imdb_Is_it_"]
    files = [str(data / "glue" / "mrpc" / f"{split}.jsonl") for split in ("train", "validation")]
    assert mrpc.source == RowFiles((files[0],), (files[1],))
    assert imdb.source == SeqioCaches((str(data / "data" / "imdb_Is_it_"),), heldout_split="validation")
    assert imdb.preprocessors == (CACHED_PROMPT,)
    assert mrpc.features == (Feature("inputs", add_eos=False), Feature("targets"))
    assert (mrpc.postprocess, tasks["glue_mrpc_write"].postprocess) == (ANSWER_NUMBER, None)
    assert (run.packing, run.batch_size, run.steps) == (Packed(1024, 256), 1024, 12_200)
    assert run.model.dropout == 0.1 and run.start == start


@pytest.mark.short
def test_a_mixture_for_evaluation_holds_all_out(tmp_path, prompts, start):
    data = tmp_path / "data"
    write_rows(data / "anli", train_r1=6, dev_r1=4, train_r2=6, dev_r2=3)
    write_rows(data / "story_cloze_2016", validation=5, test=5)
    run = recipe(str(data), (prompts,), start, "t0_eval_score_eval", missing="skip")
    sources = {task.name: task.source for task in run.tasks}
    assert set(sources) == {
        "anli_Is_it__r1_score_eval",
        "anli_Is_it__r2_score_eval",
        "story_cloze_2016_Is_it__score_eval",
    }
    assert sources["anli_Is_it__r2_score_eval"].heldout_files == (str(data / "anli" / "dev_r2.jsonl"),)
    assert sources["story_cloze_2016_Is_it__score_eval"].files == (str(data / "story_cloze_2016" / "test.jsonl"),)
    assert {part.rate for part in run.task.parts} == {BySize(maximum=500_000)}
    write_rows(data / "crows_pairs", test=5)
    run = recipe(str(data), (prompts,), start, "bias_fairness_eval_score_eval", missing="skip")
    assert run.tasks[0].source == HuggingFaceDataset(
        str(data / "crows_pairs"), split="test[:1]", heldout_split="test"
    ), "there is nothing else to hold out"


@pytest.mark.short
@pytest.mark.parametrize(
    ("mixture", "count", "total"), [("t0_train", 313, 17_277_798), ("t0++_train", 464, 23_118_591)]
)
def test_with_all_data_sets_the_mixture_is_t0s(tmp_path, start, mixture, count, total):
    released = str(shared_dir("data", "promptsource", "v0.1.0"))
    for row in t0_data_sets():
        write_rows(tmp_path / "data" / "_".join(filter(None, row.name)), train=1)
    rates = task_rates(recipe(str(tmp_path / "data"), (released,), start, mixture).task)
    assert (len(rates.tasks), rates.total) == (count, total)


@pytest.mark.short
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "t0 needs --data, the folder of its data sets, and --prompts"),
        ({"data": "d", "prompts": ("p",)}, "t0 needs --start"),
    ],
)
def test_what_is_needed(given, said):
    with pytest.raises(SettingsError, match=said):
        recipe(**given)


def test_it_shows_what_it_would_train_on(tmp_path, prompts, start, capsys):
    data = tmp_path / "data"
    write_rows(data / "glue_mrpc", train=40, validation=4)
    write_cache(data / "imdb_Is_it_")
    words = ["--data", str(data), "--prompts", prompts, "--start", start, "--missing", "skip"]
    more = ["--batch-tokens", "1024", "--inputs-length", "64", "--targets-length", "16", "--out", str(tmp_path / "run")]
    assert main(["show", "t0", *words, *more, "-n", "2"]) == 0
    shown = capsys.readouterr().out
    assert "Is it?" in shown and "Cached" in shown and "Write" in shown
    assert "77.3" in shown and "11.3" in shown, "25,000 and twice 3,668 of 32,336"
