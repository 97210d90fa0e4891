"""In which order a launch is shown, whenever one looks."""

import io

import pytest

from spanloom.launch import follow as following
from spanloom.launch.follow import follow
from spanloom.launch.record import Launch, State, save


@pytest.mark.parametrize("looked", ["before it was written down as failed", "afterwards"])
def test_a_verdict_stands_below_all_that_was_said(tmp_path, monkeypatch, looked):
    monkeypatch.setenv("SPANLOOM_HOME", str(tmp_path / "home"))
    launch = Launch(
        "20260101-000000-a-0000", "local:2", ("a",), str(tmp_path / "out"), "/", "/", "0" * 64, "", "python"
    )
    save(launch, b"")
    launch.log(1, 0).parent.mkdir(exist_ok=True)
    launch.log(1, 0).write_text("another is gone\n")
    (launch.folder / "watch.log").write_text("start 1 of a\nprocess 1 failed first: it ended with exit code 1\n")
    states = [State("running", 1)] * (3 if looked.startswith("before") else 1)  # one is read before the first look
    monkeypatch.setattr(following, "read_state", lambda _: states.pop(0) if states else State("failed", 1))
    monkeypatch.setattr(following, "is_watched", lambda _: bool(states))
    out = io.StringIO()
    assert follow(launch, out=out).state == "failed"
    said = out.getvalue()
    assert said.count("another is gone") == said.count("failed first") == 1
    assert said.index("another is gone") < said.index("failed first")
