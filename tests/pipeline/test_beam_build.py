"""Stores built by Apache Beam, byte for byte those that one process builds.

Run in an environment of their own, which `make check-all` makes: Beam holds other packages at older releases. Beam's
direct runner is what runs anywhere; Prism and Flink need a binary that Beam downloads when they start.
"""

import os
import random
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import task_functions as own
from build_store_process import HANGS
from pipeline_data import kill_seed, pair_task, sentences, text_task

from spanloom.cli.main import main
from spanloom.pipeline import shard_maker as shard_maker_module
from spanloom.pipeline.store import open_or_build_all
from spanloom.settings.objectives import Supervised
from spanloom.settings.vocabulary import Bytes, SentencePiece
from spanloom.vocabularies.build import build

beam_build = pytest.importorskip("spanloom.pipeline.beam_build", reason="the beam extra is not installed")
pytestmark = [pytest.mark.beam, pytest.mark.slow]

HERE = ["--runner", "FnApiRunner"]
PROCESSES = [*HERE, "--direct_running_mode", "multi_processing", "--direct_num_workers", "2"]
OLD = ["--runner", "BundleBasedDirectRunner"]
SHARD_BYTES = 1500
RECIPE = '''"""Texts and pairs."""
from spanloom.model.sizes import named
from spanloom.settings.mixture import Mixture, Weighted
from spanloom.settings.objectives import SpanCorruption
from spanloom.settings.run import Run
from spanloom.settings.task import Task, TextFiles

def shout(example):
    return {"text": example["text"].upper()}

def task(name, *preprocessors):
    source = TextFiles((f"{name}.jsonl",), heldout_share=0.1)
    return Task(name, source, objective=SpanCorruption(inputs_length=64), preprocessors=preprocessors)

def recipe(names: tuple[str, ...] = ("a", "b")) -> Run:
    tasks = [Weighted(task(name, *([shout] if name == "b" else []))) for name in names]
    return Run("many", Mixture("many", tuple(tasks)), named("byt5_tiny"), batch_size=4, steps=10)
'''


def files(directory: Path) -> dict[str, bytes]:
    found = {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    return {name: data for name, data in found.items() if not name.endswith(".lock")}


def places(task, directory: Path):
    return {split: directory / task.name / split for split in ("train", "heldout")}


def build_alone(tasks, vocabulary, directory: Path) -> dict[str, bytes]:
    for task in tasks:
        open_or_build_all(task, places(task, directory), vocabulary, shard_bytes=SHARD_BYTES)
    return files(directory)


def build_beam(tasks, vocabulary, directory: Path, words=HERE, said=None):
    given = [(task, places(task, directory)) for task in tasks]
    warn = (said if said is not None else []).append
    return beam_build.build_with_beam(given, vocabulary, words, shard_bytes=SHARD_BYTES, warn=warn)


@pytest.fixture
def tasks(write_texts, write_pairs):
    pairs = list(zip(sentences(200), sentences(200, seed=1), strict=True))
    text = text_task(write_texts(sentences(300)), heldout_share=0.3)
    source = pair_task(write_pairs(pairs), heldout_share=0.2)
    functions = (own.not_third, own.doubled, own.prefixed)
    made = replace(source, name="made", objective=Supervised(), preprocessors=functions)
    return [text, source, made]


@pytest.mark.parametrize("words", [HERE, PROCESSES, OLD], ids=["threads", "processes", "old"])
def test_the_bytes_are_those_of_one_process(tmp_path, tasks, words):
    vocabulary = build(tasks[0].vocabulary)
    expected = build_alone(tasks, vocabulary, tmp_path / "alone")
    assert build_beam(tasks, vocabulary, tmp_path / "a", words) == dict.fromkeys(["text", "pairs", "made"])
    assert files(tmp_path / "a") == expected and len(expected) > 60
    assert build_beam(tasks, vocabulary, tmp_path / "a", words) == {}  # nothing was missing


def test_sentencepiece_beside_beam(tmp_path, write_texts):
    import sentencepiece

    lines = [text.replace("\n", " ") for text in sentences(300)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_prefix=str(tmp_path / "own"),
        vocab_size=60,
        character_coverage=1.0,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        hard_vocab_limit=False,
    )
    settings = SentencePiece(str(tmp_path / "own.model"))
    task, vocabulary = text_task(write_texts(sentences(300)), vocabulary=settings, heldout_share=0.3), build(settings)
    expected = build_alone([task], vocabulary, tmp_path / "alone")
    assert build_beam([task], vocabulary, tmp_path / "a", PROCESSES) == {"text": None}
    assert files(tmp_path / "a") == expected
    assert not [name for name in sys.modules if name.startswith("sentencepiece") and name.endswith("_pb2")]


def test_a_build_goes_on_with_shards_that_are_whole(tmp_path, tasks, monkeypatch):
    vocabulary, text = build(tasks[0].vocabulary), tasks[:1]
    expected = build_alone(text, vocabulary, tmp_path / "alone")
    write, written = shard_maker_module.write_shard, []

    def fail_late(path, columns, **options):
        if len(written) >= 5:
            raise OSError(5, "Input/output error")
        written.append(path)
        write(path, columns, **options)

    with monkeypatch.context() as patch:
        patch.setattr(shard_maker_module, "write_shard", fail_late)
        outcome = build_beam(text, vocabulary, tmp_path / "a")
    assert isinstance(outcome["text"], beam_build.BeamBuildError) and "Input/output error" in str(outcome["text"])
    assert not any(path.exists() for path in places(text[0], tmp_path / "a").values())
    made = {path.name: path.stat().st_ino for path in written}
    assert len(made) == 5
    assert build_beam(text, vocabulary, tmp_path / "a") == {"text": None}
    assert files(tmp_path / "a") == expected
    kept = {path.name: path.stat().st_ino for path in (tmp_path / "a").rglob("*.arrow")}
    assert sum(kept[name] == inode for name, inode in made.items()) >= 4  # a name may be that of both parts


def test_what_fails_is_named_and_the_others_are_built(tmp_path, tasks, write_texts):
    broken = Path(write_texts(sentences(100), "broken.jsonl"))
    broken.write_text(broken.read_text() + '{"text": broken\n')
    bad = [
        replace(text_task(str(broken), heldout_share=0.3), name="broken"),
        replace(text_task("/nowhere/a.txt", heldout_share=0.3), name="missing"),
        replace(tasks[1], name="raises", preprocessors=(own.fails,)),
    ]
    vocabulary = build(tasks[0].vocabulary)
    outcome = build_beam([*bad, *tasks], vocabulary, tmp_path / "a", PROCESSES)
    assert [name for name, error in outcome.items() if error is None] == ["text", "pairs", "made"]
    assert "broken.jsonl:101: broken JSON" in str(outcome["broken"])
    assert "does not exist" in str(outcome["missing"])
    assert "fails" in str(outcome["raises"]) and "nothing" in str(outcome["raises"])
    for task in bad:
        assert not any(path.exists() for path in places(task, tmp_path / "a").values())
    broken.write_text("\n".join(broken.read_text().splitlines()[:-1]))
    assert build_beam(bad[:1], vocabulary, tmp_path / "a") == {"broken": None}


def test_a_store_of_older_text_is_replaced_and_that_is_said(tmp_path, write_texts):
    task = text_task(write_texts(sentences(300)), heldout_share=0.3)
    vocabulary, said = build(task.vocabulary), []
    build_beam([task], vocabulary, tmp_path / "a")
    write_texts([*sentences(300), "one line more"])
    build_beam([task], vocabulary, tmp_path / "a", said=said)
    assert any("is built anew: changed" in text for text in said)
    assert files(tmp_path / "a") == build_alone([task], vocabulary, tmp_path / "alone")


def test_options_that_beam_lacks():
    said = []
    beam_build.check_options([], said.append)
    beam_build.check_options(PROCESSES, said.append)
    assert not said
    with pytest.raises(beam_build.BeamOptionError, match=r"no option --direct_num_wrkers; .* --direct_num_workers\?"):
        beam_build.check_options(["--direct_num_wrkers=2"], said.append)
    with pytest.raises(beam_build.BeamOptionError, match="begin with --"):
        beam_build.check_options(["FlinkRunner"], said.append)
    beam_build.check_options(["--xyzzy_of_a_cluster", "7"], said.append)
    assert said == ["Beam knows no option --xyzzy_of_a_cluster here: it is left to the runner"]


@pytest.fixture
def folder(tmp_path, write_texts, monkeypatch) -> Path:
    for seed, name in enumerate("ab"):
        write_texts(sentences(2000, seed=seed), f"{name}.jsonl")
    (tmp_path / "many.py").write_text(RECIPE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_command(folder, capsys):
    assert main(["cache", "many.py", "--out", "alone"]) == 0
    capsys.readouterr()
    assert main(["cache", "many.py", "--out", "a", "--runner", "beam", "--", *PROCESSES]) == 0
    said = capsys.readouterr().out
    assert "building with Apache Beam (--runner FnApiRunner " in said and said.count("built together") == 4
    assert files(folder / "a") == files(folder / "alone")
    assert main(["cache", "many.py", "--out", "a", "--runner", "beam", "--", *HERE]) == 0
    assert capsys.readouterr().out.count("there already") == 4
    assert main(["cache", "many.py", "--out", "a", "--runner", "beam", "--", "--runer", "FnApiRunner"]) == 2
    assert "Beam has no option --runer; did you mean --runner?" in capsys.readouterr().err


CODE = """
import sys
from pathlib import Path
from pipeline_data import text_task
from spanloom.pipeline.beam_build import build_with_beam
from spanloom.vocabularies.build import build
corpus, directory, *words = sys.argv[1:]
task = text_task(corpus, heldout_share=0.3)
places = {split: Path(directory) / task.name / split for split in ("train", "heldout")}
print("started", flush=True)
outcome = build_with_beam([(task, places)], build(task.vocabulary), words, shard_bytes=1500, warn=print)
sys.exit(any(outcome.values()))
"""


def start(corpus: str, directory: Path) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    words = [sys.executable, "-c", CODE, corpus, str(directory), *HERE]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
    assert process.stdout is not None and process.stdout.readline() == "started\n"
    return process


def test_kills_of_the_launching_process_leave_stores_that_are_whole_or_none(tmp_path, write_texts):
    chance, corpus = random.Random(kill_seed(fixed=False)), write_texts(sentences(3000))
    expected = build_alone([text_task(corpus, heldout_share=0.3)], build(Bytes()), tmp_path / "alone")
    begun = time.monotonic()
    assert start(corpus, tmp_path / "first").wait(HANGS) == 0
    seconds = time.monotonic() - begun
    for number in range(8):
        out = tmp_path / f"killed-{number}"
        for _ in range(2):
            process = start(corpus, out)
            time.sleep(chance.uniform(0, seconds))
            process.kill()
            process.wait()
            found = files(out)
            shards = sum(".building/entries/" in name for name in found)
            print(
                f"killed with {shards} shards whole, {sum(name.endswith('meta.json') for name in found)} stores whole"
            )
            for name, data in found.items():
                assert ".building" in name or expected[name] == data
        assert start(corpus, out).wait(HANGS) == 0
        assert files(out) == expected
