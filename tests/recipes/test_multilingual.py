import pytest

from spanloom.cli.main import main
from spanloom.recipes.multilingual import recipe
from spanloom.recipes.pretrain import recipe as pretrain
from spanloom.settings.mixture import ByAlpha, tasks_of
from spanloom.settings.packing import Packed, Unpacked
from spanloom.settings.serialize import SettingsError, from_json, to_json
from spanloom.settings.task import PairFiles, TextFiles

pytestmark = pytest.mark.short


def test_languages_are_tasks_of_their_own_with_pretrains_objective():
    run = recipe(text=("de=a.txt", "texts/sv.jsonl.gz", "de=b.txt"), alpha=0.5, size="tokens").resolve()
    de, sv = run.tasks
    assert (de.name, de.source.files) == ("de", ("a.txt", "b.txt"))
    assert (sv.name, sv.source.files) == ("sv", ("texts/sv.jsonl.gz",))
    assert {part.rate for part in run.task.parts} == {ByAlpha(0.5, unit="tokens")}
    alone = pretrain(text=("a.txt",)).resolve()
    assert de.objective == alone.task.objective and run.model == alone.model and run.packing == Unpacked()


def test_pairs_have_their_share_and_are_packed():
    run = recipe(text=("de=a.txt",), pairs=("qa=qa.tsv", "nli=nli.tsv"), pairs_share=0.25, inputs="0", errors="skip")
    assert [part.rate for part in run.task.parts] == [0.75, 0.25]
    assert [task.name for task in tasks_of(run.task)] == ["de", "qa", "nli"]
    assert run.tasks[1].source == PairFiles(("qa.tsv",), heldout_share=0.01, inputs="0", errors="skip")
    assert isinstance(run.tasks[0].source, TextFiles) and run.packing == Packed()
    assert from_json(to_json(run.resolve())) == run.resolve()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "--text is empty: name the languages"),
        ({"text": ("de=",)}, "--text 'de=': must be NAME=FILES"),
        ({"text": ("=a.txt",)}, "--text '=a.txt': must be NAME=FILES"),
        ({"text": ("corpus/*",)}, r"--text 'corpus/\*': must be NAME=FILES"),
        ({"text": ("a",), "pairs": ("b",), "pairs_share": 1.0}, "--pairs-share is 1.0: must be above 0 and below 1"),
    ],
)
def test_what_names_nothing_is_refused(given, said):
    with pytest.raises(SettingsError, match=said):
        recipe(**given)


def test_it_shows_what_it_would_train_on(tmp_path, capsys):
    for name, lines in (("de", 300), ("sv", 60)):
        (tmp_path / f"{name}.txt").write_text("".join(f"{name} {number} words in a line\n" for number in range(lines)))
    (tmp_path / "qa.tsv").write_text("inputs\ttargets\n" + "".join(f"ask {n}\tsay {n}\n" for n in range(50)))
    words = ["--text", f"de={tmp_path}/de.txt", f"{tmp_path}/sv.txt", "--pairs", f"{tmp_path}/qa.tsv"]
    size = ["--model", "byt5_nano", "--inputs-length", "64", "--batch-size", "8", "--steps", "10"]
    assert main(["show", "multilingual", *words, *size, "--out", str(tmp_path / "run"), "-n", "0"]) == 0
    shown = capsys.readouterr().out
    assert "qa" in shown and "10.00%" in shown
    shares = [float(line.split("%")[0].split()[-1]) for line in shown.splitlines() if line.startswith(("de ", "sv "))][
        :2
    ]
    assert shares[0] / shares[1] == pytest.approx(5**0.3, rel=0.02)
