"""Files that change or vanish between two commands of one run."""

import json

import jax
import pytest
from tiny_training import losses, write_text, write_vocabulary

from spanloom.cli.main import main

FLAGS = {
    "model.d-model": 16,
    "model.d-ff": 32,
    "model.num-heads": 2,
    "model.d-kv": 8,
    "model.num-encoder-layers": 1,
    "model.num-decoder-layers": 1,
    "batch-size": 2,
    "eval.max-batches": 1,
    "inputs-length": 32,
    "mean-span-length": 3,
    "heldout-share": 0.2,
    "log.every": 1,
    "after.fills": 0,
    "after.baselines": False,
    "after.export": False,
}
TINY = [word for name, value in FLAGS.items() for word in (f"--{name}", str(value))]


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPANLOOM_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
    jax.config.update("jax_compilation_cache_dir", None)


def test_a_rewritten_text_stops_a_run_until_it_is_accepted_or_forked(tmp_path, capsys):
    text, out = write_text(tmp_path / "a.txt"), tmp_path / "run"
    assert (
        main(["pretrain", "--text", str(text), "--model", "byt5_tiny", "--out", str(out), "--steps", "2", *TINY]) == 0
    )
    write_text(text, seed=1)
    capsys.readouterr()
    go_on = ["train", str(out), "--steps", "4"]
    stores = files_of(out / "stores")
    for words in ([], ["--task.source.heldout-share", "0.3"]):
        assert main(["cache", str(out), *words]) == 1
        said = capsys.readouterr().err
        assert "none is built over them" in said and "--accept-change task.source" in said
        assert files_of(out / "stores") == stores
    assert main(go_on) == 1
    captured = capsys.readouterr().err
    assert "the training text and the held-out text changed" in captured
    assert "--accept-change task.source" in captured
    assert main([*go_on, "--fork", str(tmp_path / "fork")]) == 0
    assert [step for kind, step in losses(tmp_path / "fork") if kind == "train"] == [3, 4]
    assert max(step for _, step in losses(out)) == 2
    assert main([*go_on, "--accept-change", "task.source"]) == 0
    assert losses(tmp_path / "fork")["train", 3] == losses(out)["train", 3]
    commands = [json.loads(line) for line in (out / "commands.jsonl").read_text().splitlines()]
    assert commands[-1]["command"][-2:] == ["--accept-change", "task.source"]
    assert main(["train", str(out), "--steps", "5"]) == 0


def files_of(directory):
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize("results", [False, True])
def test_a_vocabulary_that_is_gone_is_in_the_checkpoint(tmp_path, capsys, results):
    text, model, out = write_text(tmp_path / "a.txt"), write_vocabulary(tmp_path / "my.model"), tmp_path / "run"
    argv = ["pretrain", "--text", str(text), "--vocabulary", str(model), "--model", "t5_1_1_small", "--out", str(out)]
    shown = ["--after.baselines", "True", "--after.fills", "1"] if results else []
    assert main([*argv, "--steps", "2", *TINY, *shown]) == 0
    model.unlink()
    stores = files_of(out / "stores")
    assert main(["cache", str(out)]) == 0, capsys.readouterr().err
    assert files_of(out / "stores") == stores
    assert main(["train", str(out), "--steps", "4"]) == 0, capsys.readouterr().err
    assert [step for kind, step in losses(out) if kind == "train"] == [1, 2, 3, 4]
    write_vocabulary(model, 30)
    assert main(["train", str(out), "--steps", "6"]) == 1
    assert "the vocabulary changed" in capsys.readouterr().err
