"""`spanloom show`: what it prints, what it writes (stores and nothing else), and how it meets what is wrong."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import sentencepiece
from pipeline_data import sentences

from spanloom.cli import cache
from spanloom.cli.errors import CommandError
from spanloom.cli.main import main

RECIPE = '''"""Two tasks."""
from spanloom.model.sizes import named
from spanloom.settings.mixture import Mixture, Weighted
from spanloom.settings.objectives import SpanCorruption, Supervised
from spanloom.settings.run import Run
from spanloom.settings.task import PairFiles, Task, TextFiles
from spanloom.settings.vocabulary import Bytes

def recipe(targets: int = 30) -> Run:
    text = Task("novels", TextFiles(("corpus.txt",), heldout_share=0.0), Bytes(), SpanCorruption(inputs_length=64))
    pairs = PairFiles(("pairs.tsv",), heldout_share=0.0)
    sounds = Task("sounds", pairs, Bytes(), Supervised(targets_length=targets, too_long="trim"))
    mixture = Mixture("both", (Weighted(text), Weighted(sounds, 3.0)))
    return Run("both", mixture, named("byt5_tiny"), batch_size=4, steps=10)
'''


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """The working directory: a corpus, pairs and a recipe on them."""
    monkeypatch.chdir(tmp_path)
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "corpus.txt").write_text(
        "".join(f"{line.splitlines()[0]} {n}\n" for n, line in enumerate(sentences(300)))
    )
    (tmp_path / "pairs.tsv").write_text("inputs\ttargets\n" + "".join(f"{n}\t{'y' * (n % 20)}z\n" for n in range(200)))
    (tmp_path / "both.py").write_text(RECIPE)
    return tmp_path


def said(words: list[str], capsys, code: int = 0) -> str:
    assert main(["show", *words]) == code
    told = capsys.readouterr()
    return told.err if code else told.out


def files(folder: Path) -> dict[str, bytes]:
    """All but what Python keeps of a recipe that it imports."""
    found = (path for path in folder.rglob("*") if path.is_file() and path.parent.name != "__pycache__")
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def test_examples_and_tables_of_a_mixture(folder, capsys):
    text = said(["both.py", "-n", "2"], capsys)
    assert text.count("novels, draw ") == text.count("sounds, draw ") == 2
    assert "10 steps of 4 rows of 64 + " in text and "draw 40 examples" in text
    novels = next(line for line in text.splitlines() if line.startswith("novels ") and "25.00%" in line)
    assert novels.split()[-2:] == ["10", f"{10 / int(novels.split()[1].replace(',', '')):.2f}"]
    assert "\x1b" not in text and "<0>" in text and "</0>" in text
    assert "warning" not in text


def test_only_stores_are_written_and_only_once(folder, capsys):
    before = files(folder)
    first = said(["both.py", "--batch", "--ids"], capsys)
    made = files(folder)
    assert {name.split("/")[0] for name in made.keys() - before.keys()} == {"runs"}
    assert all(name.startswith("runs/both/stores/") for name in made.keys() - before.keys())
    assert {name: made[name] for name in before} == before
    assert said(["both.py", "--batch", "--ids"], capsys) == first
    assert files(folder) == made


def test_a_run_directory_shows_its_own_run(folder, capsys):
    said(["both.py", "--out", "there", "-n", "0"], capsys)
    from spanloom.cli.recipe import find
    from spanloom.cli.run_directory import anchored
    from spanloom.training.run_file import write_run

    write_run(anchored(find("both.py").make(), folder).resolve(), Path("there"))
    built = {name: content for name, content in files(folder).items() if "/stores/" in name}
    text = said(["there", "--task", "sounds", "--steps", "20"], capsys)
    assert "sounds, draw 5" in text and "novels, draw" not in text
    assert "20 steps" in text and "1 of 2 tasks" in text
    assert {name: content for name, content in files(folder).items() if "/stores/" in name} == built


def test_number_of_examples(folder, capsys):
    assert said(["both.py"], capsys).count(", draw ") == 10
    none = said(["both.py", "-n", "0"], capsys)
    assert ", draw " not in none and "tokens an epoch" in none and "masked span" not in none
    for words in (["-n1"], ["-n=1"], ["--examples", "1"]):
        assert said(["both.py", *words], capsys).count(", draw ") == 2
    assert said(["both.py", "--task", "sounds", "-n", "1000"], capsys).count(", draw ") == 200
    assert "-n -1: must be 0 or more" in said(["both.py", "-n", "-1"], capsys, code=2)
    assert "must be a whole number" in said(["both.py", "-n", "x"], capsys, code=2)
    assert "takes a value" in said(["both.py", "-n"], capsys, code=2)


def test_tasks_are_chosen_by_name(folder, capsys):
    both = said(["both.py", "--task", "sounds", "--task", "novels", "-n", "0"], capsys)
    assert (
        both
        == said(["both.py", "--task", "novels", "sounds", "-n", "0"], capsys)
        == said(["both.py", "-n", "0"], capsys)
    )
    assert "--task novel: the run has no such task; did you mean novels?" in said(
        ["both.py", "--task", "novel"], capsys, code=2
    )
    assert not (folder / "runs/x").exists()
    said(["both.py", "--task", "novel", "--out", "runs/x"], capsys, code=2)
    assert not (folder / "runs/x").exists(), "nothing is built for a typo"


def test_a_recipe_with_a_parameter_named_task_keeps_it(folder, capsys):
    (folder / "own.py").write_text(
        RECIPE.replace("targets: int = 30", 'task: str = "novels", targets: int = 30').replace(
            'Task("novels"', "Task(task"
        )
    )
    assert "tales, draw 1" in said(["own.py", "--task", "tales", "-n", "1"], capsys)


def test_packed_rows_and_their_borders(folder, capsys):
    text = said(["both.py", "--packing", "packed", "--batch", "-n", "1"], capsys)
    assert "examples share a row" in text and " | " in text and "1 encoder" in text and "2 encoder" in text


def test_a_page_is_written_whole_or_not_at_all(folder, capsys, monkeypatch):
    text = said(["both.py", "--html", "data.html", "--batch"], capsys)
    content = (folder / "data.html").read_bytes()
    assert content.endswith(b"</html>\n") and f"({len(content):,} bytes)" in text and ", draw" not in text
    assert b"The first training batch" in content and b"novels, draw 1" in content

    class Full(io.BytesIO):
        def write(self, data):
            raise OSError(28, "No space left on device")

    real = Path.open
    monkeypatch.setattr(
        Path, "open", lambda path, *a, **k: Full() if path.name.endswith(".html.part") else real(path, *a, **k)
    )
    assert "no room to write data.html" in said(["both.py", "--html", "data.html", "-n", "0"], capsys, code=1)
    assert (folder / "data.html").read_bytes() == content and not list(folder.glob("*.part"))


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--html", ""], 2, "--html is empty"),
        (["--html", "."], 1, "--html . is a directory: name a file in it, such as data.html"),
        (["--html", "no/x.html"], 1, "there is no folder no; make it"),
        (["--hmtl", "x"], 2, "did you mean --html"),
        (["--workers", "2"], 2, "unknown flag --workers"),
        (["--task"], 2, "--task takes a value"),
    ],
)
def test_options_that_make_no_sense(folder, capsys, words, code, message):
    assert message in said(["both.py", *words], capsys, code=code)
    assert not (folder / "runs").exists()


def test_a_page_never_takes_the_place_of_a_device_or_a_pipe(folder, capsys):
    os.mkfifo(folder / "pipe")
    assert "--html pipe is a device, pipe or socket" in said(["both.py", "--html", "pipe"], capsys, code=1)
    assert (folder / "pipe").is_fifo() and not (folder / "runs").exists()


def test_stores_that_a_run_learnt_from_are_not_replaced(folder, capsys, monkeypatch):
    def refuse(run, directory):
        raise CommandError(f"{directory} has the stores that its run learnt from")

    monkeypatch.setattr(cache, "vocabulary_learnt", refuse)
    assert "both has the stores that its run learnt from" in said(["both.py"], capsys, code=1)
    assert not (folder / "runs").exists()


def test_colour_goes_by_the_environment(folder, capsys, monkeypatch):
    plain = said(["both.py"], capsys)
    monkeypatch.setenv("FORCE_COLOR", "1")
    coloured = said(["both.py"], capsys)
    assert "\x1b[" in coloured and "</0>" not in coloured
    monkeypatch.setenv("NO_COLOR", "1")
    assert said(["both.py"], capsys) == plain


def test_a_reader_that_has_read_enough_is_no_error(folder):
    command = (
        f"'{sys.executable}' -m spanloom.cli.main show both.py --ids -n 100 2>err | head -n 3; echo ${{PIPESTATUS[0]}}"
    )
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.splitlines()[-1] == "0" and (folder / "err").read_text() == ""


def test_a_terminal_of_another_encoding_shows_codes(folder):
    environment = {**os.environ, "PYTHONIOENCODING": "ascii:strict", "PYTHONUTF8": "0"}
    command = [sys.executable, "-m", "spanloom.cli.main", "show", "both.py", "-n", "30", "--task", "novels"]
    done = subprocess.run(command, capture_output=True, env=environment, timeout=300, check=True)
    assert b"\\u043a\\u043d\\u0438\\u0433\\u0430" in done.stdout and done.stderr == b""


# Misfits, from files to words. Each is called out here, and none in the tests above.


def test_cut_targets_are_called_out(folder, capsys):
    text = said(["both.py", "-n", "0", "--targets", "20"], capsys)
    assert "warning: targets of 5.0% of the examples of task 'sounds' (10 of 200) are longer than 20 tokens" in text


def test_copies_are_called_out(folder, capsys):
    with (folder / "corpus.txt").open("a") as file:
        file.write("Chapter One\n" * 20)
    text = said(["both.py", "-n", "0"], capsys)
    assert "warning: 5.9% of the documents of task 'novels' are copies of others (19 of 320" in text
    assert "there 20 times: 'Chapter One</s>'" in text


def test_repeated_data_are_called_out(folder, capsys):
    text = said(["both.py", "-n", "0", "--steps", "3000"], capsys)
    assert "warning: task 'novels' is read " in text and "Muennighoff" in text and "'sounds' is read" not in text


@pytest.fixture
def vocabulary(folder) -> str:
    """A SentencePiece model that knows ASCII letters and digits, with three sentinels of its own."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["the ship said a quite long-winded tale 0123456789"] * 50),
        model_writer=model,
        vocab_size=60,
        hard_vocab_limit=False,
        minloglevel=2,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
    )
    (folder / "my.model").write_bytes(model.getvalue())
    return "my.model"


def test_unknown_text_and_sentinels_in_the_text_are_called_out(folder, capsys, vocabulary):
    clean, dirty = folder / "clean.txt", folder / "dirty.txt"
    lines = [f"the ship said a tale {number}" for number in range(300)]
    clean.write_text("\n".join(lines))
    dirty.write_text("\n".join([*(f"\u6c34\u6c34 \u6c34 <extra_id_0> {number}" for number in range(30)), *lines]))
    words = ["pretrain", "--vocabulary", vocabulary, "--model", "t5_1_1_tiny", "--inputs-length", "32", "-n", "0"]
    words += ["--steps", "1", "--batch-size", "2", "--heldout-share", "0"]
    assert "warning" not in said([*words, "--text", "clean.txt", "--out", "c"], capsys)
    text = said([*words, "--text", "dirty.txt", "--out", "d"], capsys)
    assert "of the tokens of task 'text' are unknown to its vocabulary (the commonest: \u6c34" in text
    assert "30 of " in text and "are themselves sentinels (<extra_id_0> 30 times)" in text


def test_every_language_of_a_script_of_its_own_is_shown_in_order(folder, capsys):
    lines = [
        "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd",
        "\u6c34\u306e\u4e2d",
        "\u0936\u093e\u0928\u094d\u0924\u093f",
    ]
    (folder / "scripts.jsonl").write_text("".join(json.dumps({"text": line}) + "\n" for line in lines * 20))
    words = ["pretrain", "--text", "scripts.jsonl", "--model", "byt5_tiny", "--heldout-share", "0"]
    text = said([*words, "--task.objective", "full-lm", "--task.objective.targets-length", "200", "-n", "1"], capsys)
    assert "</s>".join(lines) in text
