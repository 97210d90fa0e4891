import dataclasses
import shutil

import pytest
from made_runs import make_run, make_stages, run_of, write_store

from spanloom.report.difference_table import difference_text
from spanloom.report.differences import differences
from spanloom.report.run_files import NoRunError, RunFiles, opened
from spanloom.settings.optimizer import Adafactor, AdamW
from spanloom.settings.run import Logging
from spanloom.tasks.read_report import BadInputError

pytestmark = pytest.mark.short


def between(first, second):
    return {(one.about, one.name): one for one in differences(opened(str(first)), opened(str(second)))}


def test_runs_of_the_same_settings_data_and_versions_do_not_differ(tmp_path):
    run = run_of()
    first = make_run(tmp_path / "a", dataclasses.replace(run, out="a"), 30)
    copied = dataclasses.replace(run.log, copy_to="s3://bucket/b")
    second = make_run(tmp_path / "b", dataclasses.replace(run, out="b", log=copied), 20)
    assert between(first, second) == {}
    assert between(first, first / "checkpoints" / "30") == {}
    assert between(first / "run.json", second / "checkpoints") == {}


def test_settings_kinds_and_rates(tmp_path):
    first = make_run(tmp_path / "a", run_of(("en", "de")))
    changed = run_of(("en", "de"), optimizer=AdamW(learning_rate=0.5), log=Logging(every=3))
    task = dataclasses.replace(changed.task, parts=(dataclasses.replace(changed.task.parts[0], rate=7.0),))
    second = make_run(tmp_path / "b", dataclasses.replace(changed, task=task, model=run_of().model))
    shutil.rmtree(second / "stores")
    found = between(first, second)
    assert found.keys() == {("settings", name) for name in ("optimizer.learning_rate", "log.every", "task.parts")}
    assert found["settings", "log.every"].shown == ("1", "3")
    assert (
        "de is gone" in found["settings", "task.parts"].text
        and "en: rate 1.0  ->  7.0" in found["settings", "task.parts"].text
    )
    third = make_run(tmp_path / "c", run_of(("en", "de"), optimizer=Adafactor()))
    kind = between(first, third)["settings", "optimizer"]
    assert (kind.first["class"], kind.second["class"]) == ("AdamW", "Adafactor")


def test_data_by_hashes_counts_and_fingerprints(tmp_path):
    import json

    first, second = make_run(tmp_path / "a"), make_run(tmp_path / "b")
    write_store(second, "en", "train", 91, source="def")
    shutil.rmtree(second / "stores" / "en" / "heldout")
    for place, content in ((first, "1" * 64), (second, "2" * 64)):
        file = place / "checkpoints" / "30" / "checkpoint.json"
        facts = json.loads(file.read_text())
        facts |= {"content": {"train": content, "vocabulary": "same"}, "machine": {"jax": content[:1], "python": "3"}}
        file.write_text(json.dumps(facts))
    found = between(first, second)
    assert found["data", "hash of train"].first == "1" * 64
    assert found["data", "en/train, examples"].shown == ("90", "91")
    assert found["data", "en/train, fingerprint source"].shown == ("abc", "def")
    assert found["data", "store en/heldout"].shown == ("there", "-")
    assert found["versions", "jax"].shown == ("1", "2")
    assert ("data", "hash of vocabulary") not in found and ("versions", "python") not in found


def test_stages_are_compared_with_their_like(tmp_path):
    first, second = make_stages(tmp_path / "a"), make_stages(tmp_path / "b", done=1)
    assert between(first, second) == {}
    text = (second / "stages.json").read_text().replace('"mean_span_length": 3.0', '"mean_span_length": 4.0')
    (second / "stages.json").write_text(text)
    names = [name for _, name in between(first, second)]
    assert names == [f"stage {n} ({task}) task.objective.mean_span_length" for n, task in ((1, "en"), (2, "de"))]
    with pytest.raises(NoRunError, match="holds stages, and the other is one run: name one of the stages"):
        between(first, second / "1-en")
    assert ("settings", "task.name") in between(first / "1-en", first / "2-de")
    listed = between(first / "1-en", first / "2-de")
    assert listed["settings", "eval.also.de"].shown == ("there", "-")


def test_what_is_no_run_is_named(tmp_path):
    make_run(tmp_path / "runs" / "a")
    make_stages(tmp_path / "runs" / "s")
    with pytest.raises(NoRunError, match=r"holds neither run.json nor stages.json; there are runs in it: a, s"):
        opened(str(tmp_path / "runs"))
    with pytest.raises(NoRunError, match="is no directory"):
        opened(str(tmp_path / "absent"))
    with pytest.raises(BadInputError, match="holds a password"):
        opened("https://me:secret@example.org/run")
    (tmp_path / "runs" / "a" / "run.json").write_text("{")
    with pytest.raises(NoRunError, match=r"run.json: the settings cannot be read"):
        differences(RunFiles(str(tmp_path / "runs" / "a")), RunFiles(str(tmp_path / "runs" / "a")))


def test_the_table_has_short_values_in_columns_and_long_ones_below(tmp_path):
    first, second = make_run(tmp_path / "a"), make_run(tmp_path / "b", run_of(optimizer=Adafactor(), steps=7))
    found = differences(opened(str(first)), opened(str(second)))
    text = difference_text(found, "runs/a\x1b[31m", "runs/b", width=None, colour=False)
    lines = text.splitlines()
    assert lines[0].split() == ["settings", "runs/a\\x1b[31m", "runs/b"]
    assert ["steps", "100", "7"] in [line.split() for line in lines]
    (long,) = [line for line in lines if "optimizer:" in line]
    assert "AdamW (learning_rate 0.01" in long and " -> Adafactor (" in long
    assert max(map(len, difference_text(found, "a", "b", width=80, colour=False).splitlines())) <= 80
