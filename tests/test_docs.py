"""Pages in docs/ and CONTRIBUTING.md: their commands run, page by page, with tiny models; what they name is there."""

import gzip
import importlib
import json
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from pages import CONTRIBUTING, DOCS, FEW_STEPS, README, ROOT, commands, files, kinds, links, make_corpus, read

from spanloom.cli.main import COMMANDS, main
from spanloom.recipes import shipped

OWN = next(page for page in DOCS if page.name == "own_text.md")
RUN_HERE = [page for page in DOCS if page.name not in ("from_t5x.md", "how_it_works.md", CONTRIBUTING.name)]
"""from_t5x.md is run by its own test; the other two have no command of ours."""

TRAINED = 1 + next(number for number, line in enumerate(commands(OWN)) if line.startswith("spanloom pretrain "))
"""How many of its commands make the run that all pages start from."""

PARSED_ALONE = {
    "spanloom watch runs/novels": "serves until it is stopped: tests/report/test_live.py",
    "spanloom convert runs/novels exported --to hf --push someone/novels-t5-small --private": "needs the Hub: "
    "tests/conversion/test_hub_push.py",
    "spanloom plan xxl --slice v4-128 --on v4-128 --shardings": "compiles for minutes: tests/recipes/test_xxl.py",
    "spanloom plan t5_1_1_small_c4 --on v4-8": "compiles for a minute, with libtpu: tests/cli/test_plan.py",
    "spanloom launch quickstart --on tpu:pod@us-central2-b --out /mnt/bucket/runs/a --keep-going --restarts 5": "asks "
    "Google for the hosts: tests/launch/test_tpu.py",
    "spanloom launch quickstart --on ssh:hosts.txt --out /nfs/runs/a --extras cuda --env HF_TOKEN --dry-run": "needs "
    "a list of hosts and a token: tests/launch/test_ssh.py",
    "spanloom launch status": "needs a launch: tests/launch/test_real_training.py",
    "spanloom train quickstart --out /nfs/runs/a --processes 4 --coordinator host0:8476 --process 0 "
    "--connect-timeout 600": "waits for three others: tests/training/test_processes.py",
}
"""Commands that cannot run in a test, with the reason and the tests that run their like. Their flags are parsed."""

SMALLER = (
    (r"(?<!plan )\b(byt5|t5_1_1|mt5)_(nano|micro|small|base|large|xl)(?!\w)", r"\1_tiny"),
    (r"--model\.(d-model|d-ff) \d+", r"--model.\1 16"),
    (r"--model\.(num-heads|num-encoder-layers|num-decoder-layers) \d+", r"--model.\1 2"),
    (r"--size \d+", "--size 300"),
    (r"--steps \d+", "--steps 2"),
    (r"(warmup-steps |warmup_steps=|rewarm-steps |rewarm_steps=)\d+", r"\g<1>1"),
    (r"--(eval|checkpoint)\.every \d+", r"--\1.every 2"),
    (r"--batch-size (?!32)\d+", "--batch-size 4"),
    (r"--batch-size 32", "--batch-size 8"),
    (r"quickstart\b(?=.* --model byt5_tiny)", "quickstart --model.num-heads 4"),
    (r"width = 256 if wide else 128", "width = 16 if wide else 8"),
    (r"num_heads=width // 64", "num_heads=2"),
    (r"batch_size=16, steps=steps", "batch_size=4, steps=2"),
    (r"batch_size=16,\n        steps=\d+", "batch_size=4,\n        steps=2"),
)
"""What is replaced in commands and recipes, so that they take seconds: sizes and numbers of steps alone."""

CHEAP = {"--after.fills": "0", "--after.export": "false", "--after.baselines": "false", "--eval.max-batches": "1"}
"""Added where something trains: what comes after it is the README's test's."""
EXIT = {"spanloom diff runs/novels_py runs/wider_batch": 1}


def smaller(text: str) -> str:
    for pattern, tiny in SMALLER:
        text = re.sub(pattern, tiny, text)
    return text


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all pages run: files that they read, their own files, and the run that they start from."""
    folder = tmp_path_factory.mktemp("docs")
    make_corpus(folder)
    (folder / "corpus/lines.txt").unlink()
    with gzip.open(folder / "corpus/novels.jsonl.gz", "rt", encoding="utf-8") as novels:
        texts = [json.loads(line)["text"] for line in novels]
    write_rows(folder / "german.jsonl.gz", ({"text": text.replace("The", "Die")} for text in texts[:200]))
    letters = ({"noisy": text.replace("e", "c"), "clean": text, "year": 1900} for text in texts[:100])
    write_rows(folder / "letters.jsonl", letters)
    reviews = [{"text": f"film {number} was {number % 7}", "label": number % 2} for number in range(300)]
    write_rows(folder / "reviews.jsonl", reviews)
    write_rows(folder / "others.jsonl", reviews[:20])
    for page in RUN_HERE:
        for name, content in files(page).items():
            (folder / name).write_text(smaller(content), encoding="utf-8")
    (folder / "others.yaml").write_text((folder / "reviews.yaml").read_text().replace("reviews", "other"))
    write_t0(folder, reviews)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for line in commands(OWN)[:TRAINED]:
            run(line, patch)
    return folder


def write_rows(path: Path, rows) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with (gzip.open if path.suffix == ".gz" else open)(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def write_t0(folder: Path, rows) -> None:
    """Templates for all data sets of T0, as promptsource has them, and two of the data sets."""
    from spanloom.tasks.prompts.t0_table import t0_data_sets

    for row in t0_data_sets():
        named = {"trec": "trec1"}.get(row.name[0], "Reviewer_Enjoyment")
        template = {
            "name": named,
            "jinja": "{{text}} So? ||| {{answer_choices[label]}}",
            "answer_choices": "no ||| yes",
        }
        template["metadata"] = {"original_task": True}
        place = folder / "promptsource/templates" / "/".join(filter(None, row.name)) / "templates.yaml"
        place.parent.mkdir(parents=True)
        place.write_text(json.dumps({"dataset": row.name[0], "subset": row.name[1], "templates": {"1": template}}))
    for name in ("rotten_tomatoes", "trec"):
        for split in ("train", "validation"):
            write_rows(folder / "sets" / name / f"{split}.jsonl", rows[:60])


@pytest.mark.parametrize("page", RUN_HERE, ids=lambda page: page.stem)
def test_the_commands_of_a_page_run_in_order(page: Path, world: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(world)
    for line in commands(page)[TRAINED if page is OWN else 0 :]:
        run(line, monkeypatch)


def run(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs a command of ours, or a script of the page, in this process, smaller; or has it parsed alone."""
    words = shlex.split(line)
    if words[0] == "python" and len(words) == 2:
        runpy.run_path(words[1], run_name="__main__")
        return
    assert words[0] == "spanloom", f"{line}: only commands of ours and scripts stand in sh blocks"
    if line in PARSED_ALONE:
        parse_alone(words[1:], monkeypatch)
        return
    words = shlex.split(smaller(line))[1:]
    if words[0] in ("train", "pretrain", "finetune") and "--help" not in words:
        words += FEW_STEPS[:2] if "--steps" not in words else ()
        words += FEW_STEPS[2:4] if "--batch-size" not in words else ()
        words += [word for flag in CHEAP.items() if flag[0] not in words for word in flag]
    assert main(words) == EXIT.get(line, 0), line


class UnderstoodError(Exception):
    """Its flags were parsed."""


def parse_alone(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The command's own parser reads the words, and nothing is done."""
    module = importlib.import_module(f"spanloom.cli.{words[0]}")
    place = importlib.import_module("spanloom.cli.launch_verbs") if words[:2] == ["launch", "status"] else module
    name = "parse" if hasattr(place, "parse") else "options"
    real = getattr(place, name)

    def understood(*given, **named):
        real(*given, **named)
        raise UnderstoodError

    with monkeypatch.context() as patch:
        patch.setattr(place, name, understood)
        with pytest.raises(UnderstoodError):
            module.main(words[1:])


def test_what_is_parsed_alone_stands_in_a_page_and_names_tests_that_are_there():
    every = {line for page in DOCS for line in commands(page)}
    assert set(PARSED_ALONE) | set(EXIT) <= every
    for reason in PARSED_ALONE.values():
        assert (ROOT / reason.rpartition(" ")[2]).is_file(), reason


def test_commands_of_contributors_are_there():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    lines = commands(CONTRIBUTING)
    assert len(lines) > 8
    for line in lines:
        words = shlex.split(line)
        if words[0] == "make":
            assert re.search(rf"^{words[1]}:", makefile, re.MULTILINE), line
        elif words[:3] == ["python", "-m", "pytest"]:
            assert all((ROOT / word).is_file() for word in words[3:] if word != "-q"), line
        else:
            assert words[0] == "python" and "spanloom" not in words, line
            told = subprocess.run([sys.executable, words[1], "--help"], cwd=ROOT, capture_output=True, text=True)
            assert told.returncode == 0, told.stderr
            assert {word for word in words if word.startswith("--")} <= set(re.findall(r"--[\w-]+", told.stdout)), line


def test_blocks_are_of_known_kinds():
    for page in DOCS:
        assert kinds(page) <= {"sh", "text", "python", "yaml"}, page


@pytest.mark.parametrize("page", [README, *DOCS], ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path):
    assert [link for link in links(page) if not link.exists()] == []
    for name, anchor in re.findall(r"\]\(([\w./]*)#([\w-]+)\)", read(page)):
        target = (page.parent / name).resolve() if name else page
        titles = re.findall(r"^#+ (.*)$", read(target), re.MULTILINE)
        assert anchor in [re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles], anchor


def test_every_page_is_linked_from_the_readme():
    assert {page for page in DOCS if page not in links(README)} == set()


def test_every_test_that_is_named_is_there():
    named = [id for page in (README, *DOCS) for id in re.findall(r"tests/[\w/]+\.py(?:::\w+)?", read(page))]
    assert len(named) > 80
    for one in named:
        path, _, function = one.partition("::")
        assert (ROOT / path).is_file(), one
        assert not function or f"\ndef {function}(" in (ROOT / path).read_text(encoding="utf-8"), one


OTHERS = {
    "--xla-force-host-platform-device-count",  # XLA's
    "--gin.MODEL-DIR",  # T5X's
    "--only", "--cases",  # of scripts/check.py and benchmarks/identical_loss.py
    "--wide",  # of a recipe in the page
    "--stage.2",
    "--task.parts", "--optimizer.learning-rte",  # shown as what is refused
}  # fmt: skip


def test_every_flag_that_is_named_exists(capsys: pytest.CaptureFixture[str]):
    """Those in prose and tables as well, which no command runs."""
    asked = [[name] for name in COMMANDS if name not in ("recipes", "vocab", "migrate")]
    asked += [["migrate"], ["launch", "quickstart"], *(["vocab", name] for name in ("train", "check", "trim"))]
    for recipe in shipped():
        asked += [["train", recipe]]
    for kind in ("adafactor", "adamw", "schedule-free", "muon"):
        asked += [["train", "pretrain", "--optimizer", kind]]
    for schedule in ("cosine", "wsd", "rsqrt"):
        asked += [["train", "pretrain", "--schedule", schedule]]
    asked += [["eval", "x", "quickstart"], ["plan", "quickstart"], ["show", "quickstart"], ["cache", "quickstart"]]
    known: set[str] = set()
    for words in asked:
        main([*words, "--help"])
        known |= set(re.findall(r"--[a-z][\w.-]*\w|-n\b", capsys.readouterr().out))
    text = "\n".join(re.sub(r"^```text.*?^```", "", read(page), flags=re.MULTILINE | re.DOTALL) for page in DOCS)
    named = set(re.findall(r"(?<![\w-])--[a-z][\w.-]*\w", text))
    named = {re.sub(r"^--stage\.\d+\.", "--", flag).replace("_", "-") for flag in named}
    assert len(named) > 100
    assert named - {flag.replace("_", "-") for flag in known} == OTHERS
