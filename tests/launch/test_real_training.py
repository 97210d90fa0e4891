"""A launch that trains: killed, it goes on by itself from its checkpoint, with the losses of a run that was not."""

import os
import signal

from crew_process import Crew, furthest, losses
from tiny_training import write_text
from waiting import until

from spanloom.cli.main import main
from spanloom.launch import on_host
from spanloom.launch.record import find, is_watched, read_state
from spanloom.settings.run_layout import steps_in

PATIENCE = 400
BARE = ("--after.baselines", "no", "--after.fills", "0", "--after.export", "no")
"""What comes after the last step is looked at elsewhere."""


def test_a_killed_process_stops_all_and_the_run_goes_on_unattended(home, tmp_path, capsys):
    write_text(tmp_path / "text.txt")
    here = tmp_path / "here"
    straight = Crew(here / "recipe.py", tmp_path / "text.txt", tmp_path / "straight", 1, *BARE)
    out = tmp_path / "out"
    words = ["--on", "local:2", "--keep-going", "--text", str(tmp_path / "text.txt"), "--out", str(out), "--detach"]
    assert main(["launch", "recipe.py", *words, *BARE]) == 0
    launch = find(None)
    said = (launch.folder / "watch.log").read_text
    until(lambda: len(steps_in(out / "checkpoints")) > 0 or not is_watched(launch), PATIENCE, said)
    process = on_host.read(home / ".spanloom" / "launches" / launch.id / "1-1" / "process")
    os.kill(process["id"], signal.SIGKILL)
    until(lambda: not is_watched(launch), PATIENCE, said)
    state = read_state(launch)
    assert (state.state, state.restarts, state.step) == ("done", 1, str(out / "checkpoints" / "20")), said()
    assert "process 1 on this machine failed first: it was killed by SIGKILL" in said()
    assert "restart 1 of at most 20" in said()
    assert "process 1 of 2 is gone (killed" in launch.log(1, 0).read_text()
    assert "resuming after step" in launch.log(2, 0).read_text()
    assert set(straight.wait(PATIENCE).values()) == {0}
    assert furthest(losses(tmp_path / "straight"), losses(out)) < 1e-5
    assert main(["launch", "status", str(out)]) == 0
    assert "done, start 2" in capsys.readouterr().out
