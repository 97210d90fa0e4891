"""Processes that were not started alike are refused before anything is trained."""

import dataclasses
import json

import pytest
from tiny_training import tiny_run

from spanloom.scale.processes import Crew
from spanloom.settings.serialize import to_json
from spanloom.training.together import TOKEN, NotTogetherError, check_together, write_token


class Others(Crew):
    """A crew whose second process says what it is told to."""

    def gather(self, name, value):
        return [value, json.dumps(self.second)]


@pytest.fixture
def run(tmp_path):
    return tiny_run(tmp_path / "text.txt", 4)


def crew_of(**second):
    crew = Others(0, 2)
    object.__setattr__(crew, "second", second)
    return crew


def said(run, place, **changes):
    token = (place / TOKEN).read_text()
    return {"run": to_json(run), "token": token, "directory": str(place), **changes}


def test_the_same_run_in_the_same_directory(run, tmp_path):
    write_token(tmp_path)
    check_together(Crew(), run, tmp_path)
    other = dataclasses.replace(run, out="/another/name/of/it")
    check_together(crew_of(**said(other, tmp_path)), run, tmp_path)


def test_other_settings_are_named(run, tmp_path):
    write_token(tmp_path)
    other = dataclasses.replace(run, seed=3, steps=9)
    with pytest.raises(NotTogetherError, match="process 1 was started with other settings") as error:
        check_together(crew_of(**said(other, tmp_path)), run, tmp_path)
    assert "seed: 0 -> 3" in str(error.value) and "steps: 4 -> 9" in str(error.value)


def test_another_directory_is_named(run, tmp_path):
    write_token(tmp_path)
    with pytest.raises(NotTogetherError, match="does not see the run directory of process 0: /elsewhere"):
        check_together(crew_of(**said(run, tmp_path, token="", directory="/elsewhere")), run, tmp_path)
