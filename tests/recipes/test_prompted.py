import json
import re

import pytest
from bare_checkpoint import save_bare
from row_stores import BYTES

from spanloom.cli.main import main
from spanloom.evaluation.exact_match import Prediction
from spanloom.evaluation.task_metrics import example_of, task_metrics
from spanloom.pipeline.data import open_data
from spanloom.pipeline.examples import DataError
from spanloom.pipeline.watched import open_watched
from spanloom.recipes.prompted import recipe
from spanloom.recipes.quickstart import recipe as quickstart
from spanloom.settings.mixture import PerTemplate
from spanloom.settings.packing import Packed
from spanloom.settings.row_sources import RowFiles
from spanloom.settings.serialize import SettingsError, from_json, to_json

PROMPTS = """
templates:
  - {name: good, inputs: "{{text}} Good?", targets: "{{answer_choices[label]}}", answer_choices: [bad, good]}
  - {name: which, inputs: "{{text}} {{ ['So?', 'Well?'] | choice }}", targets: "{{answer_choices[label]}}",
     answer_choices: "{{ ['awful', 'great'] | join('|||') }}"}
  - {name: write, inputs: "Write a review.", targets: "{{text}}"}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory: a checkpoint, rows and templates of our own."""
    monkeypatch.chdir(tmp_path)
    save_bare(tmp_path / "start", 5, quickstart().resolve())
    (tmp_path / "reviews.yaml").write_text(PROMPTS)
    rows = ({"text": f"film {number}", "label": number % 2} for number in range(200))
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


GIVEN = {"data": ("reviews=rows.jsonl",), "prompts": ("reviews.yaml",), "start": "start"}


@pytest.mark.short
def test_each_template_is_a_task_with_t0s_cap(folder):
    run = recipe(**GIVEN, maximum=300).resolve()
    assert from_json(to_json(run)) == run
    assert [task.name for task in run.tasks] == ["reviews_good", "reviews_which", "reviews_write"]
    assert {part.rate for part in run.task.parts} == {PerTemplate(3, 300)}
    assert run.tasks[0].source == RowFiles(("rows.jsonl",), heldout_share=0.05)
    assert run.packing == Packed(1024, 256) and run.eval.also == ()


@pytest.mark.short
def test_templates_may_be_held_out(folder):
    run = recipe(**GIVEN, judge=("*_which",), learn=("reviews_g*", "reviews_which"))
    assert [task.name for task in run.tasks] == ["reviews_good"]
    assert [task.name for task in run.eval.also] == ["reviews_which"]
    assert run.task.parts[0].rate == PerTemplate(1)


def test_a_data_set_that_is_only_judged_may_be_held_out_whole(folder):
    pytest.importorskip("datasets")
    (folder / "films.yaml").write_text(PROMPTS)
    (folder / "films").mkdir()
    rows = ({"text": f"a film {number}", "label": number % 2} for number in range(7))
    (folder / "films" / "validation.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    more = {"data": (*GIVEN["data"], "films=films"), "prompts": ("reviews.yaml", "films.yaml")}
    run = recipe(**GIVEN | more, judge=("films_*",), inputs_length=64, targets_length=16).resolve()
    assert {task.name for task in run.tasks} == {"reviews_good", "reviews_which", "reviews_write"}
    watched = open_watched(run, folder / "run", BYTES, progress=None, workers=1, warn=print)
    names = ("films_good", "films_which", "films_write")
    assert {name: part.num_examples for name, part in watched.items()} == dict.fromkeys(names, 7)
    with pytest.raises(SettingsError, match="--data films=films: nothing to learn in it, neither a split called train"):
        recipe(**GIVEN | more, judge=("films_good",))


@pytest.mark.short
def test_a_folder_of_splits(folder):
    (folder / "parts").mkdir()
    for split in ("train", "dev"):
        (folder / "parts" / f"{split}.jsonl").write_text((folder / "rows.jsonl").read_text())
    run = recipe(**GIVEN | {"data": ("reviews=parts",)})
    assert run.tasks[0].source == RowFiles(("parts/train.jsonl",), ("parts/dev.jsonl",))
    (folder / "parts" / "train.jsonl").unlink()
    with pytest.raises(
        SettingsError, match=r"--data reviews=parts: nothing to learn in it, neither a split called train"
    ):
        recipe(**GIVEN | {"data": ("reviews=parts",)})


@pytest.mark.short
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"data": ()}, "prompted needs --data NAME=FILES"),
        ({"prompts": ()}, "prompted needs --data NAME=FILES"),
        ({"start": None}, "prompted needs --start"),
        ({"data": ("review=rows.jsonl",)}, "--data review: no templates for it in reviews.yaml; did you mean reviews"),
        ({"judge": ("*",)}, r"--learn \*: --judge \* takes all of them"),
        ({"learn": ("nothing",)}, "--learn nothing: no task is called so; known are reviews_good, reviews_which"),
        ({"learn": ("*_good", "*like*")}, r"--learn \*like\*: no task is called so"),
        ({"judge": ("reviews_wich",)}, "--judge reviews_wich: no task is called so; did you mean reviews_which"),
        ({"judge": ("*_good", "*_wich")}, r"--judge \*_wich: no task is called so"),
    ],
)
def test_what_names_nothing_is_refused(folder, given, said):
    with pytest.raises(SettingsError, match=said):
        recipe(**GIVEN | given)


@pytest.mark.short
@pytest.mark.parametrize(
    ("data_set", "name", "said"),
    [
        ("reviews", "good ", "templates 'good ' of reviews and 'good_' of reviews would both be task reviews_good_"),
        (
            "reviews_good",
            "x",
            "templates 'good x' of reviews and 'x' of reviews_good would both be task reviews_good_x",
        ),
    ],
)
def test_two_templates_whose_tasks_are_called_alike_are_named(folder, data_set, name, said):
    first = "good x" if data_set != "reviews" else "good_"
    (folder / "reviews.yaml").write_text(PROMPTS.replace("name: good,", f"name: {first},"))
    line = f'templates: [{{name: "{name}", inputs: "{{{{text}}}}", targets: b}}]'
    (folder / "more.yaml").write_text(f"dataset: {data_set}\n{line}\n")
    files = {name: f"{name}=rows.jsonl" for name in ("reviews", data_set)}
    given = GIVEN | {"data": tuple(files.values()), "prompts": ("reviews.yaml", "more.yaml")}
    with pytest.raises(SettingsError, match=f"{said}: rename one"):
        recipe(**given)
    with pytest.raises(SettingsError, match=f"{said}: rename one"):
        recipe(**given, judge=("reviews_good*",))
    assert {task.name for task in recipe(**given, learn=("*_write",)).tasks} == {"reviews_write"}


@pytest.mark.short
def test_a_misspelt_metric_of_a_template_is_named(folder):
    written = PROMPTS.replace('targets: "{{text}}"}', 'targets: "{{text}}", metrics: [Other, ROGUE]}')
    (folder / "reviews.yaml").write_text(written)
    assert all(task.metrics == () for task in recipe(**GIVEN).tasks), "they are told, not asked for"
    said = r"^reviews, template 'write': metrics: there is none called 'ROGUE'; did you mean rouge\b"
    with pytest.raises(SettingsError, match=said):
        recipe(**GIVEN, own_metrics=True)
    (folder / "reviews.yaml").write_text(PROMPTS.replace("[bad, good]}", "[bad, good], metrics: [Accuracie]}"))
    recipe(**GIVEN, own_metrics=True)  # ranks judge it, no metric


def test_held_out_examples_keep_their_choices_and_label(folder):
    run = recipe(**GIVEN, inputs_length=64, targets_length=16).resolve()
    data = open_data(run, folder / "run")
    one = next(one for one in data.tasks if one.task.name == "reviews_which")
    assert one.heldout.num_examples > 0

    target = BYTES.decode(one.heldout.raw(0))
    other = "awful" if target == "great" else "great"
    right, wrong = (Prediction("", target, text, number=0) for text in (f" {target}", other))
    example = example_of(one.heldout, right)
    assert example["answer_choices"] == ["awful", "great"]
    assert example["answer_choices"][example["label"]] == example["targets"]
    assert example["targets"] == target and example["inputs"].endswith(("So?", "Well?"))
    assert task_metrics(one.task, one.heldout, [right, wrong, right, right]) == {"exact_match": 0.75}


LEAVES_OUT = {
    "no parts": "jinja: '{{text}} Good?'",
    "three parts": "jinja: '{{text}} ||| a ||| b'",
    "no inputs": "inputs: ' ', targets: '{{text}}'",
    "no such choice": "inputs: '{{text}}', targets: '{{answer_choices[label + 5]}}', answer_choices: [bad, good]",
    "a condition": "jinja: '{% if label > 5 %}{{text}} ||| a{% endif %}'",
}


@pytest.mark.parametrize("template", LEAVES_OUT.values(), ids=LEAVES_OUT)
def test_a_template_that_leaves_out_all_is_blamed(folder, capsys, template):
    (folder / "reviews.yaml").write_text(f"templates: [{{name: a, {template}}}]")
    words = ["--data", "reviews=rows.jsonl", "--prompts", "reviews.yaml", "--start", "start", "--out", "run"]
    for _ in ("the stores are built", "the stores are there"):
        assert main(["show", "prompted", *words, "--inputs-length", "64", "--targets-length", "16"]) == 1
        said = " ".join(capsys.readouterr().err.split())
        found = re.search(
            r"the training part of task 'reviews_a' is empty: all (\d+) rows were left out by its preprocessors: "
            r"(\d+) left out by template 'a'; a template must give inputs and targets",
            said,
        )
        assert found and found[1] == found[2] and 150 < int(found[1]) < 200


LEARNT = "{name: part, jinja: \"{% if text != 'held' %}{{text}} ||| a{% endif %}\"}"


def test_a_template_that_leaves_out_all_that_is_held_out_is_blamed(folder):
    (folder / "reviews.yaml").write_text(f"templates: [{LEARNT}, {{name: all, inputs: '{{{{text}}}}', targets: b}}]")
    (folder / "parts").mkdir()
    (folder / "parts" / "train.jsonl").write_text((folder / "rows.jsonl").read_text())
    (folder / "parts" / "validation.jsonl").write_text('{"text": "held", "label": 0}\n' * 3)
    given = GIVEN | {"data": ("reviews=parts",), "inputs_length": 64, "targets_length": 16}
    why = "the held-out part of task 'reviews_part' is empty: all 3 rows were left out by its preprocessors: 3"
    with pytest.raises(DataError, match=f"{why} left out by template 'part'; a template must"):
        open_data(recipe(**given).resolve(), folder / "run")
    said: list[str] = []
    run = recipe(**given, judge=("*_part",)).resolve()
    assert open_watched(run, folder / "run", BYTES, progress=None, workers=1, warn=said.append) == {}
    assert len(said) == 1 and said[0].startswith(f"{why} left out by template 'part'")


def test_it_shows_what_it_would_train_on(folder, capsys):
    words = ["--data", "reviews=rows.jsonl", "--prompts", "reviews.yaml", "--start", "start", "--out", "run"]
    assert main(["show", "prompted", *words, "--inputs-length", "64", "--targets-length", "16", "-n", "1"]) == 0
    shown = capsys.readouterr().out
    assert "Good?" in shown and "Write a review." in shown and "reviews_which" in shown
    (folder / "rows.jsonl").write_text('{"txt": "a", "label": 0}\n' * 30)
    assert main(["show", "prompted", *words]) != 0
    assert "no column 'text', which the template names; the columns are" in capsys.readouterr().err
