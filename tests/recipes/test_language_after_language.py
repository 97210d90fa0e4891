import pytest

from spanloom.cli.flags import Resuming, parse
from spanloom.cli.recipe import find
from spanloom.cli.stages import resolved_runs
from spanloom.settings.follow import Follow
from spanloom.settings.serialize import SettingsError

pytestmark = pytest.mark.short
TEXT = ["--text", "en=en.txt", "de=a.txt", "fr=fr.jsonl", "de=b.txt"]


def runs(*flags):
    return resolved_runs(parse(find("language_after_language"), [*TEXT, *flags], "train", Resuming))


def test_each_language_is_a_stage_that_goes_on_from_the_one_before_it():
    first, second, third = runs("--out", "o", "--steps", "5", "--stage.2.steps", "9")
    assert [run.name for run in (first, second, third)] == ["en", "de", "fr"]
    assert [run.steps for run in (first, second, third)] == [5, 9, 5]
    assert [run.out for run in (first, second, third)] == ["o/1-en", "o/2-de", "o/3-fr"]
    assert [name.rpartition("/")[2] for name in second.task.source.files] == ["a.txt", "b.txt"]
    assert first.start is None and second.start.endswith("/o/1-en") and third.start.endswith("/o/2-de")
    assert (first.follow, second.follow) == (Follow(), Follow(optimizer="continue", schedule="continue"))
    assert [task.name for task in second.eval.also] == ["en", "fr"]


@pytest.mark.parametrize(
    ("policy", "follow"),
    [("reset", Follow()), ("rewarm", Follow(optimizer="continue", schedule="restart", rewarm_steps=1000))],
)
def test_policies(policy, follow):
    assert [run.follow for run in runs("--policy", policy)] == [Follow(), follow, follow]


def test_one_language_is_one_run():
    (run,) = resolved_runs(parse(find("language_after_language"), ["--text", "en=en.txt"], "train", Resuming))
    assert run.name == "en" and run.start is None and run.eval.also == ()


def test_without_text_it_says_what_is_missing():
    with pytest.raises(SettingsError, match=r"--text is empty: name the languages in order"):
        parse(find("language_after_language"), [], "train", Resuming)
