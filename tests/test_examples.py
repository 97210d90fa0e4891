"""What stands in examples/: programs that the README's runs begin and end with."""

import gzip
import json
import os
import runpy
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest
from golden_data import shared_dir
from labelled_data import write_labelled

from spanloom.tasks.prompts.rendering import Prompt
from spanloom.tasks.prompts.template_files import read_collection

pytestmark = pytest.mark.short

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
PREPARE = EXAMPLES / "prompted_small" / "prepare.py"
PAIRS = EXAMPLES / "prompted_small" / "pairs.py"
SHARED_WORDS = EXAMPLES / "prompted_small" / "shared_words.py"
TABLE = EXAMPLES / "words_to_sounds" / "table.py"


def test_the_run_on_prompts_ends_where_its_first_step_fails(tmp_path):
    places = [tmp_path / name for name in ("nothing", "novels.jsonl", "prompts", "out")]
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    line = ["bash", PREPARE.with_name("run.sh"), *places]
    done = subprocess.run(line, capture_output=True, text=True, env=environment, timeout=60)
    assert done.returncode == 1
    (said,) = done.stderr.splitlines()
    assert said.startswith(f"{places[0]} is not as these data sets were published: FileNotFoundError")
    assert not list(places[-1].glob("data")) and not list(places[-1].glob("pairs*"))


def rows_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("labelled")
    write_labelled(folder / "raw", rows=60)
    done = subprocess.run(
        [sys.executable, str(PREPARE), str(folder / "raw"), str(folder / "rows")],
        check=True,
        capture_output=True,
        text=True,
    )
    assert "60 rows" in done.stdout and "super_glue_copa/validation.jsonl" in done.stdout
    return folder / "rows"


def test_odd_encodings_marks_and_quotes_come_through(prepared):
    reviews, held = (rows_of(prepared / "rotten_tomatoes" / f"{part}.jsonl") for part in ("train", "validation"))
    assert (len(reviews), len(held)) == (108, 12)
    assert reviews[0] == {"text": "film 0 is dull … and cafés .", "label": 0} and held[0]["text"].startswith("film 9 ")
    questions = rows_of(prepared / "trec" / "train.jsonl")
    assert questions[2] == {"text": "What is thing 2 , señor ?", "label_coarse": 1, "label_fine": 2}
    pairs = rows_of(prepared / "sick" / "validation.jsonl")
    assert pairs[2]["entailment_AB"] == "A_contradicts_B" and pairs[2]["relatedness_score"] == 3.2
    said = rows_of(prepared / "glue_mrpc" / "train.jsonl")
    assert len(said) == 60
    assert said[1] == {"sentence1": '"It is 1, he said.', "sentence2": 'He said "it is 1".', "label": 1}
    assert rows_of(prepared / "text" / "glue_mrpc.jsonl")[1] == {"text": '"It is 1, he said. He said "it is 1".'}
    assert rows_of(prepared / "text" / "trec.jsonl")[0] == {"text": "What is thing 0 , señor ?"}
    causes = rows_of(prepared / "super_glue_copa" / "validation.jsonl")
    assert causes[1]["choice1"] == "It was pushed & shoved."
    assert [(row["question"], row["label"]) for row in causes[:3]] == [("cause", 0), ("effect", 1), ("cause", 0)]


def test_the_real_data_sets_fit_their_templates(tmp_path):
    prepare = runpy.run_path(str(PREPARE))["prepare"]
    counts = prepare(shared_dir("data", "labelled"), tmp_path)
    assert counts == {
        "rotten_tomatoes/train.jsonl": 9596,
        "rotten_tomatoes/validation.jsonl": 1066,
        "trec/train.jsonl": 5452,
        "trec/validation.jsonl": 500,
        "sick/train.jsonl": 4500,
        "sick/validation.jsonl": 500,
        "sick/test.jsonl": 4927,
        "glue_mrpc/train.jsonl": 3576,
        "glue_mrpc/validation.jsonl": 500,
        "glue_mrpc/test.jsonl": 1725,
        "super_glue_copa/validation.jsonl": 1000,
        "text/rotten_tomatoes.jsonl": 9596,
        "text/trec.jsonl": 5452,
        "text/sick.jsonl": 4500,
        "text/glue_mrpc.jsonl": 3576,
    }
    folder = shared_dir("data", "promptsource", "v0.2.3", "templates")
    for name in ("rotten_tomatoes", "trec", "sick", "glue/mrpc", "super_glue/copa"):
        rows = rows_of(tmp_path / name.replace("/", "_") / "validation.jsonl")
        (templates,) = read_collection([str(folder / name)]).values()
        for template in templates.templates:
            prompt = Prompt(template.name, template.jinja, template.answer_choices)
            assert any(map(prompt, rows)), f"{name}: {template.name}"


def test_fine_classes_are_numbered_as_their_templates_number_them(tmp_path):
    numbered = runpy.run_path(str(PREPARE))["questions"](shared_dir("data", "labelled", "trec"))["train"]
    (trec,) = read_collection([str(shared_dir("data", "promptsource", "v0.2.3", "templates", "trec"))]).values()
    template = next(one for one in trec.templates if one.name == "fine_grained_open")
    prompt = Prompt(template.name, template.jinja, template.answer_choices)
    asked = {row["text"]: prompt(row)["targets"] for row in numbered}
    assert asked["What films featured the character Popeye Doyle ?"] == "Creative Piece"
    assert asked["When was Ozzy Osbourne born ?"] == "Date"


def test_shared_words_tell_pairs_apart_where_a_bound_does(tmp_path):
    program = runpy.run_path(str(SHARED_WORDS))
    assert program["shared"]("The dog runs.", "the DOG sits!") == 2 / 6
    assert program["best_bound"]([(0.2, False), (0.4, True), (0.4, False), (0.6, True), (0.8, True)]) == 0.2
    assert program["best_bound"]([(0.2, True), (0.4, True)]) < 0.2, "yes is always right"
    assert program["best_bound"]([(0.2, False), (0.4, False)]) == 0.4, "no is always right"
    for name, (one, other, yes) in program["PAIRS"].items():
        same = {one: "a b c", other: "a b d", "label": yes}
        other_thing = {one: "a b c", other: "a e f", "label": 1 - yes}
        wrong = {one: "a b c", other: "a b c", "label": 1 - yes}
        (tmp_path / name).mkdir()
        for part, rows in {"train": [same, other_thing], "validation": [same] * 2, "test": [same, same, wrong]}.items():
            (tmp_path / name / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert program["table"](tmp_path).splitlines()[2:] == [
        "| glue_mrpc, validation | 2 | 100.0 | 100.0 |",
        "| glue_mrpc, test | 3 | 66.7 | 66.7 |",
        "| sick, validation | 2 | 100.0 | 100.0 |",
        "| sick, test | 3 | 66.7 | 66.7 |",
    ]


def test_pairs_out_of_text_say_what_they_share(tmp_path):
    words = [f"w{number}" for number in range(40)]
    texts = [
        " ".join([f"n{row}", *(words[(7 * row + step**2) % 40] for step in range(4 + row % 20))])
        for row in range(1_100)
    ]
    with gzip.open(tmp_path / "a.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": f"{text}. Too short. {text}."}) + "\n" for text in texts)
    run = [sys.executable, str(PAIRS), str(tmp_path / "out"), str(tmp_path / "a.jsonl.gz")]
    done = subprocess.run(run, check=True, capture_output=True, text=True)
    assert done.stdout.startswith("1,100 pairs of each kind")
    parts = {}
    for kind in ("short", "mixed"):
        parts[kind] = [rows_of(tmp_path / "out" / kind / f"{part}.jsonl") for part in ("train", "validation")]
        assert [len(rows) for rows in parts[kind]] == [100, 1_000]
        assert all({row["same"] for row in rows} == {0, 1} for rows in parts[kind])
        (prompts,) = read_collection([str(tmp_path / "out" / f"{kind}.yaml")]).values()
        for one in prompts.templates:
            assert all(map(Prompt(one.name, one.jinja, one.answer_choices), parts[kind][0])), one.name
    for row in chain(*parts["short"]):
        first, second = (row[name].split() for name in ("sentence1", "sentence2"))
        assert len(first) == len(second) and first != second
        assert (sorted(first) == sorted(second)) == bool(row["same"])
    shared = runpy.run_path(str(SHARED_WORDS))["shared"]
    for row in chain(*parts["mixed"]):
        share = shared(row["sentence1"], row["sentence2"])
        assert (row["share"], row["same"]) == (min(4, int(5 * share)), int(share > 0.5))
    whole = {f"{text}." for text in texts}
    train, heldout = (
        {row[name] for row in rows for name in ("sentence1", "sentence2")} & whole for rows in parts["mixed"]
    )
    assert len(train) >= 100 and len(heldout) >= 1_000 and not train & heldout


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("few.jsonl", b'{"text": "One sentence of six words, here."}\n', "1 sentences of 5 to 24 words"),
        ("none.jsonl", b'{"text": "a"}\n{"words": "b"}\n', "none.jsonl, line 2"),
        ("torn.jsonl", b'{"text": "a"}\n{"tex', "torn.jsonl, line 2"),
        ("torn.jsonl.gz", gzip.compress(b'{"text": "a"}\n' * 999, mtime=0)[:-9], "torn.jsonl.gz, line"),
        ("latin.jsonl", b'{"text": "caf\xe9"}\n', "latin.jsonl, line"),
        ("nowhere.jsonl", None, "nowhere.jsonl"),
    ],
    ids=["too few", "no text", "torn", "torn gzip", "not UTF-8", "missing"],
)
def test_pairs_are_not_made_of_damaged_text(tmp_path, name, content, said):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    run = [sys.executable, str(PAIRS), str(tmp_path / "out"), str(tmp_path / name)]
    done = subprocess.run(run, capture_output=True, text=True)
    assert done.returncode == 1 and said in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_rates_stand_beside_those_of_copying_and_those_published(tmp_path):
    table = runpy.run_path(str(TABLE))["table"]
    record = {"inputs": " aba abc", "targets": "a b k", "prediction": "a b k"}
    (tmp_path / "aba.jsonl").write_text(f"{json.dumps(record)}\n{json.dumps(record | {'prediction': 'a b'})}\n")
    record = {"inputs": " hun ab", "targets": "a b", "prediction": "x y"}
    (tmp_path / "hun.jsonl").write_text(f"{json.dumps(record)}\n")
    assert table(tmp_path).splitlines()[2:] == [
        "| aba | 2 | 50.0 | 16.7 | 100.0 | 33.3 |  |  |",
        "| hun | 1 | 100.0 | 100.0 | 0.0 | 0.0 | 3.1 | 0.6 |",
        "| mean | 3 | 75.0 | 58.3 | 50.0 | 16.7 |  |  |",
    ]
    (tmp_path / "none").mkdir()
    with pytest.raises(ValueError, match="no file of predictions"):
        table(tmp_path / "none")
