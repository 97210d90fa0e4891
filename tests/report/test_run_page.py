"""The page of runs: what it says, that it stands alone, and that nothing of the data gets out of its place."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from made_runs import (
    HOSTILE,
    START,
    add_evaluation,
    eval_line,
    lines_of,
    make_run,
    make_stages,
    run_of,
    train_line,
    wild_lines,
    write_lines,
)

from spanloom.report.charts import charts_of
from spanloom.report.run_page import page
from spanloom.report.run_view import labelled, views_of

VOID = {"meta", "br", "input"}
RAW = ("script", "style")


class Reader(HTMLParser):
    """Text, tags and attributes of a page; fails where tags do not match."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.raw: dict[str, str] = {}
        self.feed(content)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)
        self.kind = dict(attrs).get("type", tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in RAW:
            self.raw[self.kind] = self.raw.get(self.kind, "") + data
        else:
            self.text += data


def read(*places, **options) -> Reader:
    made = page(views_of([str(place) for place in places]), "made today", **options)
    reader = Reader(made)
    assert made.startswith("<!doctype html>") and made.endswith("</html>\n")
    assert reader.tags.count("script") == 2
    assert not {"link", "img", "iframe", "object", "base", "a", "form"} & {*reader.tags}
    assert not [name for name, _ in reader.attributes if name in ("src", "href") or name.startswith("on")]
    assert "url(" not in made.replace("url(#${clip})", "") and "@import" not in made
    assert not [path for path in re.findall(r' d="([^"]*)"', made) if re.search("nan|inf", path)]
    return reader


def charts(reader: Reader) -> dict:
    return {chart["name"]: chart for chart in json.loads(reader.raw["application/json"])}


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    run = run_of(("en", "de"))
    place = make_run(tmp_path_factory.mktemp("one") / "mine", run)
    add_evaluation(place, run)
    return place


def test_a_run_has_its_curves_tables_fills_data_settings_and_costs(single):
    reader = read(single)
    text = reader.text
    assert "Run mine" in text and "30 of 100" in text and "30% done" in text and "17.1 k" in text
    drawn = charts(reader)
    assert list(drawn)[:4] == ["loss", "eval-heldout_loss", "accuracy", "learning_rate"]
    assert {"grad_norm", "tokens_per_second", "mfu", "data_wait", "time", "padding-encoder"} <= drawn.keys()
    assert [line["label"] for line in drawn["eval-heldout_loss"]["lines"]] == ["en", "de"]
    assert drawn["loss"]["lines"][0]["y"][:2] == [7.0, 4.5]
    assert reader.tags.count("svg") == len(drawn)
    assert "4.0333" in text and "this model  2.5" in text
    assert "dog10" in text and "dog20" in text and text.index("dog10") < text.index("dog20")
    assert "33.33%" in text and "66.67%" in text, "rates of the mixture"
    assert "20.0% of the encoder's tokens" in text
    # 30 steps of 0.36 s, a tenth of the time for evaluating, on 4 devices
    assert "0.0033" in text and "0.013" in text and "4 x TPU v4" in text
    assert "10.8 k" in text, "1,000 tokens a second over 10.8 s"
    assert "spanloom train mine.py --steps 100" in text and "made today" in text


def test_when_a_run_wrote_its_last_line_and_how_long_it_took_is_told(tmp_path):
    lines = [START | {"time": 1.8e9}, train_line(10, time=1.8e9 + 3600)]
    text = read(make_run(tmp_path / "a", lines=lines)).text
    assert "2027-01-15 09:00:00" in text and "1.00" in text[text.index("from start to end") :][:200]


def test_right_and_wrong_fills_differ_and_a_span_has_one_colour(single):
    made = page(views_of([str(single)]), "")
    assert '<span class="right">cat</span>' in made
    assert '<span class="wrong">&lt;b&gt;the</span><span class="known">a mat</span>' in made
    assert len(re.findall(r'class="sentinel s1" dir="ltr">&lt;1&gt;', made)) == 2 * 2 * 4
    assert '<span class="span s0"> dog20 </span>' in made and "&lt;i&gt;up" in made


def test_several_runs_are_side_by_side_and_their_differences_named(tmp_path, single):
    other = make_run(tmp_path / "other", run_of(("en", "de"), seed=7), lines=lines_of(run_of(("en", "de")), 50, 0.5))
    reader = read(single, other)
    drawn = charts(reader)
    assert [line["label"] for line in drawn["loss"]["lines"]] == ["mine", "other"]
    assert [len(line["x"]) for line in drawn["loss"]["lines"]] == [30, 50]
    assert [line["label"] for line in drawn["eval-heldout_loss-1"]["lines"]] == ["mine", "other"]
    assert "How other differs from mine" in reader.text and "seed" in reader.text
    assert "Runs mine and other" in reader.text


def test_stages_are_one_run_with_a_table_of_what_was_forgotten(tmp_path):
    reader = read(make_stages(tmp_path / "hm"))
    drawn = charts(reader)
    assert drawn["loss"]["lines"][0]["x"][-1] == 40 and drawn["loss"]["borders"] == [[0.0, "en"], [20.0, "de"]]
    english, german = drawn["eval-heldout_loss"]["lines"]
    assert (english["x"], english["y"], german["y"]) == ([20, 40], [2.0, 2.5], [4.0, 3.0])
    assert re.search(r"forgotten\s*0\.5000\s*0\.0000", reader.text)
    assert "40 of 40" in reader.text and "done" in reader.text
    half = read(make_stages(tmp_path / "half", done=1))
    assert "50% done in stage 1 of 2" in half.text


def test_a_run_that_has_not_begun_and_one_that_is_empty(tmp_path):
    bare = make_run(tmp_path / "bare", lines=[])
    for name in ("metrics.jsonl", "commands.jsonl", "results.json"):
        (bare / name).unlink()
    reader = read(bare)
    assert "not begun" in reader.text and "No step has been logged yet" in reader.text
    assert charts(reader) == {}
    begun = make_run(tmp_path / "begun", lines=[START, train_line(1)])
    assert "1 of 100" in read(begun).text and charts(read(begun))["loss"]["lines"][0]["y"] == [7.0]
    assert {*charts(read(bare, begun))} == {*charts(read(begun))} - {"time"}


@pytest.mark.parametrize("number", range(2))
def test_nothing_of_the_data_gets_out_of_its_place(tmp_path, number):
    """Names of runs, tasks, measures, devices, files and commands, texts that models wrote: each is only text."""
    run = replace(run_of(), name="n")
    place = make_run(tmp_path / "</title><b>run", run, lines=wild_lines() if number else [START, train_line(1)])
    name = f"{HOSTILE} task"
    entry = {"time": HOSTILE, "command": ["spanloom", HOSTILE], "version": HOSTILE, "step": 10**300, "directory": 3}
    (place / "commands.jsonl").write_text(json.dumps(entry) + "\n[]\n{\n")
    pieces = [[HOSTILE, None, True], [HOSTILE, HOSTILE, True], [HOSTILE, "", False], [1, 2, 3], "x"]
    results = {"text": HOSTILE, "fills": [pieces, pieces[:3], "x"]}
    (place / "results-x.json").write_text(json.dumps({"results": results}))
    folder = place / "eval" / "<b>c-1"
    folder.mkdir(parents=True)
    record = {"example": 0, "inputs": HOSTILE, "targets": f"<extra_id_3>{HOSTILE}", "prediction": HOSTILE}
    (folder / "<b>t.jsonl").write_text(json.dumps(record) + "\n{}\n")
    row = {"checkpoint": HOSTILE, "kind": "task", "data_set": HOSTILE, "template": HOSTILE, "task": name, "examples": 2}
    rows = [{**row, HOSTILE: 1.5, "loss": None, "huge": 10**400}, {"checkpoint": 3}, row | {"examples": "x"}]
    (place / "eval" / "results.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    settings = json.loads((place / "run.json").read_text())
    settings["task"]["source"]["files"] = [HOSTILE]
    (place / "run.json").write_text(json.dumps(settings))
    reader = read(place)
    assert "alert(1)" in reader.text and "\x1b" not in reader.text and "\u202e" not in reader.text
    assert "alert" not in reader.raw["script"] and "b" in reader.tags  # of charts' titles
    assert reader.tags.count("b") == reader.tags.count("figure")
    json.loads(reader.raw["application/json"])
    if number:
        assert "diverged" in reader.text and "lines of metrics.jsonl are damaged" in reader.text


def test_settings_that_cannot_be_read_are_said_and_all_else_is_shown(tmp_path):
    place = make_run(tmp_path / "a")
    (place / "run.json").write_text('{"class": "Run", "nmae": "x"}')
    reader = read(place, make_run(tmp_path / "b"))
    assert "settings cannot be read" in reader.text and "nmae" in reader.text
    assert len(charts(reader)["loss"]["lines"]) == 2


def test_settings_are_those_that_the_baseline_does_not_have(tmp_path, single):
    from spanloom.report.settings_table import Baseline

    run = run_of(("en", "de"))
    reader = read(single, baselines={"mine": [Baseline(replace(run, seed=5), "recipe x")]})
    assert re.search(r"recipe x\s*this run\s*seed\s*5\s*0", reader.text)
    assert "none differs from recipe x" in read(single, baselines={"mine": [Baseline(run, "recipe x")]}).text


def test_hundreds_of_tasks_make_no_endless_page(tmp_path):
    names = [f"t{n}" for n in range(300)]
    lines = [START, train_line(1), *(eval_line(1, name, 1.0, accuracy=0.5) for name in names)]
    one, two = (make_run(tmp_path / name, lines=lines) for name in "ab")
    drawn = charts(read(one))
    assert len(drawn["eval-heldout_loss"]["lines"]) == 16
    assert len(charts(read(one, two))) < 80


def test_a_hundred_thousand_steps_are_a_page_of_a_few_megabytes(tmp_path):
    place = make_run(tmp_path / "long", lines=[])
    with (place / "metrics.jsonl").open("w") as file:
        for step in range(1, 100_001):
            file.write(f'{{"kind": "train", "step": {step}, "loss": {100 if step == 50_000 else 2}, "grad_norm": 1}}\n')
    views = views_of([str(place)])
    made = page(views, "")
    assert len(made) < 1_000_000
    (loss, _) = charts_of(views)
    assert loss.lines[0].columns.high.max() == 100 and len(loss.lines[0].data["x"]) <= 1000
    Reader(made)


def test_published_curves_only_where_losses_compare(tmp_path, single):
    assert "nanoT5" not in read(single).text
    reader = read(single, references="nanot5")
    assert [line["reference"] for line in charts(reader)["loss"]["lines"]] == [False, True, True]
    assert "github.com/PiotrNawrot/nanoT5" in reader.text


def test_fitting_reference_of_base_on_c4():
    from spanloom.model.sizes import named
    from spanloom.report.references import fitting
    from spanloom.settings.objectives import SpanCorruption

    run = run_of(("c4_en",))
    assert fitting(run) == ()
    task = replace(run.task, objective=SpanCorruption(inputs_length=512, mean_span_length=3.0))
    alike = replace(run, task=task, model=named("t5_1_1_base"), batch_size=128)
    assert len(fitting(alike)) == 2
    assert fitting(replace(alike, batch_size=64)) == () and fitting(replace(alike, start="x")) == ()
    assert fitting(replace(alike, model=named("t5_1_1_small"))) == ()


def test_runs_are_called_by_what_tells_them_apart():
    assert labelled(["runs/a", "s3://b/runs/c"]) == ["a", "c"]
    assert labelled(["x/a", "y/a"]) == ["x/a", "y/a"]
    assert labelled(["x/a", "x/a"]) == ["x/a (1)", "x/a (2)"]


def test_lines_that_come_are_seen_by_the_next_look(tmp_path):
    place = make_run(tmp_path / "a", lines=[START, train_line(1)])
    (view,) = views_of([str(place)])
    assert view.steps == 1 and not view.refresh(whole=False)
    write_lines(place, [START, train_line(1), train_line(2)])
    assert view.refresh(whole=False) and view.steps == 2


def test_what_was_filled_in_is_shown_by_example_over_all_stages(tmp_path):
    place = make_stages(tmp_path / "hm")
    for stage, guess in (("1-en", "first"), ("2-de", f"late {HOSTILE}")):
        file = place / stage / "metrics.jsonl"
        examples = [[["The ", None, True], ["cat", guess, True]], [["A ", None, True], ["dog", "dog", True]]]
        wild = [{"kind": "fills", "step": 20, "task": "x", "fills": fills} for fills in ([[["a"]]], 3, [], None)]
        lines = [{"kind": "fills", "step": 20, "task": "en", "fills": examples}, *wild]
        file.write_text(file.read_text() + "".join(json.dumps(line) + "\n" for line in lines))
    made = page(views_of([str(place)]), "")
    shown = made.split("What was filled in, over time")[1].split("<h2>")[0]
    assert shown.index("step 20, stage en") < shown.index("first") < shown.index("step 40, stage de")
    assert shown.count('<span class="right">dog</span>') == 2 and "late &lt;/script&gt;" in shown
    assert shown.count("<dl>") == 2


def test_of_many_evaluations_some_are_shown(tmp_path):
    fills = [[["The ", None, True], ["cat", "dog", True]]]
    lines = [{"kind": "fills", "step": step, "task": "", "fills": fills} for step in range(1, 1001)]
    made = page(views_of([str(make_run(tmp_path / "a", lines=[START, *lines]))]), "")
    shown = re.findall(r"<dt>step ([\d,]+)</dt>", made)
    assert len(shown) == 9 and shown[0] == "1" and shown[-1] == "1,000"
