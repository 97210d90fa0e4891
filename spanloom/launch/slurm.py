"""A job of SLURM: its script, how it is submitted, and how it is watched. Nodes share a file system, as they do there.

Inside of an allocation the same script runs at once, on that allocation's nodes.
"""

import dataclasses
import json
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from spanloom.launch import on_host
from spanloom.launch.attempt import SAVE_SECONDS, Outcome
from spanloom.launch.calls import ask
from spanloom.launch.failure import Ended, how
from spanloom.launch.hosts import Host
from spanloom.launch.preflight import look
from spanloom.launch.processes import Place, build, environment_of, process_key, send, train_words
from spanloom.launch.record import Launch, LaunchError
from spanloom.launch.targets import target

POLL_SECONDS = 5.0
SECONDS = 60.0
HERE = Host("the submitting machine", "127.0.0.1")
FINAL_TRIES = 6
"""A job that the queue does not name for so many polls has ended."""


def submission(launch: Launch) -> list[str]:
    """The command that takes the script on its standard input."""
    if "SLURM_JOB_ID" in os.environ:
        return ["bash"]
    return ["sbatch", "--parsable"]


def job_script(launch: Launch, attempt: int, place: Place) -> str:
    """The job: a process a node, which finds its number, and the first node's name, in what SLURM says."""
    folder = launch.folder
    nodes = target(launch.on).count
    log = shlex.quote(f"{folder}/logs/{attempt}-job.log")
    options = [f"job-name={launch.id}", f"output={log}", "ntasks-per-node=1", "export=ALL"]
    options += [f"nodes={nodes}"] if nodes else []
    # Two minutes before its time is over, and when it is preempted, training is told to save.
    options += ["signal=TERM@120", *launch.slurm]
    request = shlex.quote(str(folder / f"request-{attempt}.json"))
    program = os.path.expanduser(f"{place.bundle}/package/spanloom/launch/on_host.py")
    run = shlex.join([os.path.expanduser(place.python), program])
    return "\n".join(
        [
            "#!/bin/bash",
            *(f"#SBATCH --{option}" for option in options),
            "set -e",
            'hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")',
            'export SPANLOOM_PROCESSES=$(echo "$hosts" | wc -l)',
            f'export SPANLOOM_COORDINATOR="$(echo "$hosts" | head -n 1):$(({launch.port} + SLURM_JOB_ID % 1000 * 2))"',
            'srun --ntasks="$SPANLOOM_PROCESSES" --ntasks-per-node=1 --kill-on-bad-exit=1 '
            f"sh -c {shlex.quote(f'exec {run} < {request}')}",
            "",
        ]
    )


def cancel(job: str) -> None:
    """Tell a job's processes to save and end. Raises LaunchError."""
    if job:
        _slurm(["scancel", "--signal=TERM", job])


def _slurm(words: Sequence[str], script: str | None = None) -> str:
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, input=script)
    except FileNotFoundError:
        raise LaunchError(
            f"{words[0]} is not here: --on slurm is for a login node of a SLURM cluster, or an allocation"
        ) from None
    except subprocess.TimeoutExpired:
        raise LaunchError(
            f"no answer from `{shlex.join(words)}` in {SECONDS:.0f} s: is SLURM's controller up?"
        ) from None
    if done.returncode:
        raise LaunchError(f"`{shlex.join(words)}` failed: {done.stderr.strip()[-1000:] or done.stdout.strip()[-1000:]}")
    return done.stdout.strip()


class SlurmAttempt:
    """One job. Its processes write their output and exit codes where this machine sees them."""

    def __init__(
        self,
        launch: Launch,
        number: int,
        say: Callable[[str], object],
        tell: Callable[..., object],
        stopping: Callable[[], bool],
    ) -> None:
        self.launch, self.number = launch, number
        self.say, self.tell, self.stopping = say, tell, stopping
        self._inside: subprocess.Popen[str] | None = None

    def run(self) -> Outcome:
        """Raises HostError or LaunchError where it does not come to a job."""
        launch, say = self.launch, self.say
        say(f"preparing {launch.about}")
        place = Place(send(launch, [HERE], say)[0], build(launch, [HERE], say)[0])
        say(
            "the submitting machine has "
            + look([HERE], launch.python, {"home": launch.home, "out": launch.out}, [place])
        )
        request = {
            "do": "keep",
            **process_key(launch, self.number, 0),
            "argv": train_words(launch, place),
            "directory": os.path.join(place.bundle, launch.directory),
            "env": environment_of(dataclasses.replace(launch, env=()), place, False),
            "connect_timeout": launch.connect_timeout,
        }
        path = launch.folder / f"request-{self.number}.json"
        path.write_text(json.dumps(request) + "\n", encoding="utf-8")
        job = self._submit(job_script(launch, self.number, place))
        self.tell((f"job {job}: submitted",), job=job)
        say(f"job {job} is submitted")
        self._until_over(job)
        ended = self._ended()
        told = {number: "done" if end.code == 0 else how(end.code) for number, end in ended.items()}
        self.tell([f"process {number} of job {job}: {said}" for number, said in told.items()], job=job)
        step = ask(HERE, launch.python, {"do": "status", **process_key(launch, self.number, 0)}).get("step")
        if not ended:
            return Outcome({0: Ended(None, time.time())}, {0: f"job {job}"}, step)
        return Outcome(ended, {number: f"process {number} of job {job}" for number in ended}, step)

    def _submit(self, script: str) -> str:
        (self.launch.folder / f"job-{self.number}.sh").write_text(script, encoding="utf-8")
        words = submission(self.launch)
        if words[0] == "sbatch":
            return _slurm(words, script).splitlines()[-1].partition(";")[0]
        with (self.launch.folder / "logs" / f"{self.number}-job.log").open("ab") as log:
            self._inside = subprocess.Popen(
                [*words, str(self.launch.folder / f"job-{self.number}.sh")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        return os.environ["SLURM_JOB_ID"]

    def _until_over(self, job: str) -> None:
        missing, said, asked = 0, "", 0.0
        while missing < FINAL_TRIES:
            state = self._state(job)
            missing = 0 if state else missing + 1
            if state and state != said:
                said = state
                self.say(f"job {job} is {state}")
                self.tell((f"job {job}: {state}",), job=job)
            self._link_logs()
            if self.stopping() and not asked:
                asked = time.monotonic()
                self.say("stopping: every process saves and ends")
                self._signal(job, "TERM")
            elif asked and time.monotonic() - asked > SAVE_SECONDS:
                self._signal(job, "KILL")
                asked = float("inf")
            if not state and self._complete():
                return
            time.sleep(POLL_SECONDS / 5 if missing else POLL_SECONDS)

    def _state(self, job: str) -> str:
        """What the queue says of the job; empty once it has left it."""
        if self._inside is not None:
            return "RUNNING in this allocation" if self._inside.poll() is None else ""
        try:
            return _slurm(["squeue", "--noheader", "--jobs", job, "--format=%T"])
        except LaunchError as error:
            if "Invalid job id" in str(error):
                return ""
            self.say(str(error))
            return "unknown: the queue does not answer"

    def _signal(self, job: str, name: str) -> None:
        if self._inside is not None:
            os.killpg(self._inside.pid, signal.Signals[f"SIG{name}"])
            return
        try:
            _slurm(["scancel", job] if name == "KILL" else ["scancel", f"--signal={name}", job])
        except LaunchError as error:
            self.say(str(error))

    def _places(self) -> list[Path]:
        folder = Path(self.launch.home).expanduser() / "launches" / self.launch.id
        return sorted(folder.glob(f"{self.number}-*"), key=lambda path: int(path.name.rpartition("-")[2]))

    def _link_logs(self) -> None:
        """The output of each process under the names that all launches have."""
        for place in self._places():
            link = self.launch.log(self.number, int(place.name.rpartition("-")[2]))
            if not link.exists() and not link.is_symlink():
                link.symlink_to(place / "log")

    def _complete(self) -> bool:
        return bool(self._places()) and all((place / "exit").is_file() for place in self._places())

    def _ended(self) -> dict[int, Ended]:
        self._link_logs()
        found: dict[int, Ended] = {}
        for place in self._places():
            said: dict[str, Any] | None = on_host.read(str(place / "exit"))
            code = None if said is None else int(said["code"])
            found[int(place.name.rpartition("-")[2])] = Ended(code, time.time() if said is None else float(said["at"]))
        return found
