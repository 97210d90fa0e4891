import json
from pathlib import Path

import pytest

from spanloom.recipes.quickstart import recipe
from spanloom.settings.run_layout import RUN_FILE
from spanloom.settings.serialize import from_json
from spanloom.training.run_file import restore_run, write_run


@pytest.mark.short
def test_the_run_is_read_back_as_it_was_and_nothing_else_is_left(tmp_path: Path) -> None:
    run = recipe().resolve()
    write_run(run, tmp_path)
    write_run(run, tmp_path)  # a start over the last one
    assert [path.name for path in tmp_path.iterdir()] == [RUN_FILE]
    assert from_json(json.loads((tmp_path / RUN_FILE).read_text())) == run


@pytest.mark.short
def test_a_run_is_written_again_where_it_is_gone_and_only_there(tmp_path: Path) -> None:
    run, directory = recipe().resolve(), tmp_path / "removed"
    restore_run(run, directory)
    assert from_json(json.loads((directory / RUN_FILE).read_text())) == run
    (directory / RUN_FILE).write_text("kept")
    restore_run(run, directory)
    assert (directory / RUN_FILE).read_text() == "kept"
