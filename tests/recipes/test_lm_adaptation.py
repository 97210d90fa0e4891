import pytest
from bare_checkpoint import save_bare

from spanloom.cli.main import main
from spanloom.recipes.lm_adaptation import recipe
from spanloom.recipes.quickstart import recipe as quickstart
from spanloom.settings.mixture import ByAlpha
from spanloom.settings.objectives import PrefixLM
from spanloom.settings.serialize import SettingsError, from_json, to_json


@pytest.fixture
def start(tmp_path):
    save_bare(tmp_path / "start", 5, quickstart().resolve())
    return str(tmp_path / "start")


@pytest.mark.short
def test_languages_go_on_with_text_at_mt5s_rates(start):
    run = recipe(("en=a.txt", "sv=b.txt"), start).resolve()
    assert from_json(to_json(run)) == run
    assert [part.rate for part in run.task.parts] == [ByAlpha(0.3, unit="documents")] * 2
    assert all(isinstance(task.objective, PrefixLM) and task.objective.inputs_length == 512 for task in run.tasks)
    assert (run.batch_size, run.steps, run.model.dropout, run.start) == (2048, 100_000, 0.0, start)
    assert run.batch_size * 512 * run.steps == pytest.approx(1.05e11, rel=0.01)


@pytest.mark.short
def test_what_is_needed(start):
    with pytest.raises(SettingsError, match="lm_adaptation needs --start"):
        recipe(("en=a.txt",))
    with pytest.raises(SettingsError, match="--text is empty"):
        recipe((), start)


def test_rates_count_documents_whatever_their_length(tmp_path, start, capsys):
    (tmp_path / "en.txt").write_text("".join(f"a long line of many words, number {n}\n" * 1 for n in range(320)))
    (tmp_path / "sv.txt").write_text("".join(f"rad {n}\n" for n in range(32)))
    words = ["--text", str(tmp_path / "en.txt"), str(tmp_path / "sv.txt"), "--start", start, "--heldout-share", "0"]
    size = ["--inputs-length", "32", "--batch-size", "8", "--steps", "10", "--out", str(tmp_path / "run")]
    assert main(["show", "lm_adaptation", *words, *size, "-n", "0"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("en ", "sv "))][:2]
    shares = [float(line.split("%")[0].split()[-1]) for line in lines]
    assert shares[0] / shares[1] == pytest.approx(10**0.3, rel=0.02)
