"""Questions about a launch, asked from outside of the process that watches it."""

import time
from collections.abc import Callable, Iterator

from spanloom.launch.attempt import SAVE_SECONDS, stop_processes
from spanloom.launch.calls import HostError, ask, each
from spanloom.launch.failure import how, last_line
from spanloom.launch.hosts import HostsError, Process, processes_of
from spanloom.launch.processes import process_key
from spanloom.launch.record import ENDS, Launch, LaunchError, State, is_watched, read_state, write_state
from spanloom.launch.targets import hosts_of


def stands(launch: Launch) -> Iterator[str]:
    """Lines that say how a launch stands."""
    state, watched = read_state(launch), is_watched(launch)
    ago = time.time() - state.since
    yield f"{launch.id}: {state.state}, start {state.attempt}, for {_span(ago)}"
    yield f"  on {launch.on}, {launch.about}"
    yield f"  run {launch.out}" + (f", saved {state.step}" if state.step else "")
    if state.state in ENDS or watched:
        yield from (f"  {line}" for line in state.processes)
        if state.state == "running" and (said := last_line(launch.log(state.attempt, 0))):
            yield f"  process 0 says: {said}"
    else:
        yield "  nobody watches it (was its watcher killed?); its hosts say:"
        yield from (f"  {line}" for line in _asked(launch, state))
    yield from (f"  {line}" for line in state.message.splitlines())


def _asked(launch: Launch, state: State) -> list[str]:
    def one(process: Process) -> str:
        try:
            key = process_key(launch, state.attempt, process.number)
            said = ask(process.host, launch.python, {"do": "status", **key})
        except HostError as error:
            return str(error)
        return f"{process.name}: {how(said['code']) if said['state'] == 'ended' else said['state']}"

    try:
        return each(processes_of(hosts_of(launch)), one)
    except HostsError as error:
        return [str(error)]


def _span(seconds: float) -> str:
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def stop_launch(launch: Launch, say: Callable[[str], object]) -> None:
    """Have the watcher stop a launch; where there is none, stop its processes from here.

    Raises LaunchError for one that has ended.
    """
    state = read_state(launch)
    watched = is_watched(launch)
    if state.state in ENDS and not watched:
        raise LaunchError(f"{launch.id} has ended already: {state.state}")
    (launch.folder / "stop").touch()
    if watched:
        return
    if launch.on.startswith("slurm"):
        from spanloom.launch.slurm import cancel

        cancel(state.job)
    else:
        stop_processes(launch, state.attempt, processes_of(hosts_of(launch)), SAVE_SECONDS, say)
    write_state(launch, State("stopped", state.attempt, since=time.time(), step=state.step))
