"""`spanloom launch RECIPE --on ...`: a run on all the hosts that it takes, by one command."""

import dataclasses
import os
import re
import shlex
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from spanloom.cli.errors import CommandError, UsageError
from spanloom.cli.flags import Command, parse
from spanloom.cli.launch_verbs import VERBS, follow_to_the_end
from spanloom.cli.recipe import find
from spanloom.cli.tokens import first_word, split

if TYPE_CHECKING:
    from spanloom.launch.bundle import Bundle
    from spanloom.launch.record import Launch
    from spanloom.launch.targets import Target

USAGE = """usage: spanloom launch RECIPE --on WHERE --out DIR [flags of the recipe]
       spanloom launch status|logs|stop|retry [LAUNCH]

Starts `spanloom train RECIPE` on every host at once: sends the recipe with its repository as it stands (the commit and
what is not committed), builds the same environment everywhere, looks whether all can train together, starts one
process a host that outlives the connection, and follows the first one's output. Ctrl-C leaves it running. If a process
fails, all are stopped, and what the first to fail said is shown; with --keep-going the hosts are found anew and the
run goes on from its last checkpoint.

WHERE is one of
  local:4         four processes on this machine, on CPU (--devices 2 gives each two simulated devices)
  ssh:hosts.txt   a file with a line [user@]host[:port] [processes] for each host; keys, no passwords
  slurm:4         a job of four nodes; inside of an allocation, slurm alone takes its nodes
  tpu:NAME@ZONE   all workers of a Cloud TPU, by gcloud
  sky:4           writes a SkyPilot task file, and says how to start it

DIR is one that all hosts share, under the same name: of a network file system, or of a bucket mounted everywhere; with
sky gs://BUCKET/PATH mounts one.

  spanloom launch quickstart --on local:2 --out runs/two        try it here
  spanloom launch my_recipe.py --on ssh:hosts.txt --out /nfs/runs/a --extras cuda --env HF_TOKEN
  spanloom launch my_recipe.py --on tpu:pod@us-central2-b --out /mnt/bucket/runs/a --keep-going
  spanloom launch my_recipe.py --on slurm:4 --out /scratch/a --slurm partition=gpu gres=gpu:8 time=24:00:00
  spanloom launch my_recipe.py --on ssh:hosts.txt --out /nfs/runs/a --dry-run     every command, none run
  spanloom launch status                                        of the newest; a run's DIR or an ID names another
  spanloom launch RECIPE --help                                 every flag, with its meaning and default
"""


@dataclass(frozen=True)
class Launching:
    """What launch takes beside the flags of the recipe."""

    on: str = ""
    """Where: local:4, ssh:hosts.txt, slurm:4, tpu:NAME@ZONE or sky:4."""
    keep_going: bool = False
    """After a failure or a preemption find the hosts again, and go on from the last checkpoint."""
    restarts: int = 20
    """How often, at most; three starts in a row that get no further end it as well."""
    env: tuple[str, ...] = ()
    """Names of environment variables to hand on (HF_TOKEN). Values go through pipes: onto no disk or command line."""
    dry_run: bool = False
    """Print every command, and run none."""
    detach: bool = False
    """Do not follow the output."""
    python: str | None = None
    """Python on the hosts; unset: the one of this version, by name (python3.11)."""
    build: bool = True
    """Build an environment of the versions that are here; no: --python has all that is needed."""
    extras: tuple[str, ...] = ()
    """Extras of Spanloom for that environment (cuda, s3, ...); a TPU gets `tpu` by itself."""
    packages: tuple[str, ...] = ()
    """Further packages for it, as pip takes them."""
    devices: int = 0
    """Simulated devices of each process, on CPU; 0: what there is."""
    port: int = 0
    """Port of the first process, and the next one; 0: 8476, and with local a free one."""
    ssh_config: str | None = None
    """Configuration file for ssh (ssh -F)."""
    slurm: tuple[str, ...] = ()
    """Options of sbatch, NAME=VALUE: partition=gpu gres=gpu:8 time=24:00:00."""
    coordinator: str | None = None
    """HOST:PORT at which all hosts reach the first; unset: its name in the list of hosts."""
    connect_timeout: float = 300.0
    """Seconds that processes wait for one another."""
    accept_change: tuple[str, ...] = ()
    """As of train."""
    fork: str | None = None
    """As of train."""
    debug: bool = False
    """Show the whole traceback when something fails (or set SPANLOOM_DEBUG=1)."""


HANDED_ON = ("accept_change", "fork", "debug")
"""Options that are those of `train`."""


def main(argv: Sequence[str]) -> int:
    """Run the command; the exit code."""
    word = first_word(argv, USAGE, "the recipe comes first: spanloom launch RECIPE --on WHERE --out DIR [flags]")
    if word in VERBS:
        return VERBS[word](argv[1:])
    prog = f"spanloom launch {word}"
    recipe = find(word)
    if taken := [p.name for p in recipe.parameters if p.name in {f.name for f in dataclasses.fields(Launching)}]:
        raise CommandError(f"the recipe has a parameter {taken[0]!r}, which is an option of launch: rename it there")
    command = parse(recipe, argv[1:], prog, Launching, f"{prog} --on WHERE --out DIR [flags]")
    return _launch(command, argv)


def _launch(command: Command[Launching], argv: Sequence[str]) -> int:
    from spanloom.launch.bundle import make_bundle
    from spanloom.launch.processes import coordinator
    from spanloom.launch.record import save
    from spanloom.launch.targets import hosts_of, target

    asked = command.options
    if not asked.on:
        raise UsageError("--on is missing: local:4, ssh:hosts.txt, slurm:4, tpu:NAME@ZONE or sky:4")
    where = target(asked.on)
    _check(asked, where)
    _refuse_secrets(argv)
    bundle = make_bundle(argv[0], command.recipe.source, Path.cwd())
    launch = _described(command, argv, where, bundle)
    if where.kind == "sky":
        return _write_sky(launch, where, bundle, _address(command, where), asked.dry_run)
    if asked.dry_run:
        return _show(launch, where)
    if where.kind in ("local", "ssh"):
        coordinator(launch, hosts_of(launch))  # what was mistyped is refused before a launch is made of it
    save(launch, bundle.data)
    from spanloom.launch.watcher import spawn

    spawn(launch)
    print(f"launch {launch.id}: {launch.folder}", flush=True)
    if asked.detach:
        print(f"watch it: spanloom launch logs {launch.id}; stop it: spanloom launch stop {launch.id}")
        return 0
    return follow_to_the_end(launch)


def _check(asked: Launching, where: "Target") -> None:
    """Raise UsageError for options that make no sense."""
    if asked.restarts < 0 or asked.devices < 0 or asked.connect_timeout <= 0:
        raise UsageError("--restarts and --devices must be 0 or more, --connect-timeout above 0")
    if asked.port and not 1024 <= asked.port < 65535:
        raise UsageError(f"--port {asked.port}: give one from 1024 to 65534; the next is used as well")
    for name in asked.env:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            told = name.partition("=")[0]
            raise UsageError(
                f"--env takes names alone, whose values are taken from here: --env {told if '=' in name else 'NAME'}"
            )
        if name not in os.environ and where.kind != "sky":
            raise UsageError(f"--env {name}: it is not set here: export {name}=... first")
    for option in asked.slurm:
        if not re.fullmatch(r"[a-z][a-z-]*(=[^\n\r]*)?", option):
            raise UsageError(f"--slurm {option!r}: give options of sbatch as NAME=VALUE: partition=gpu time=24:00:00")
    if asked.slurm and where.kind != "slurm":
        raise UsageError("--slurm is for --on slurm")


def _described(command: Command[Launching], argv: Sequence[str], where: "Target", bundle: "Bundle") -> "Launch":
    from spanloom.launch.environment import lock
    from spanloom.launch.hosts import python_here
    from spanloom.launch.record import Launch, new_id

    asked, local = command.options, where.kind == "local"
    out = _out(command, where)
    builds = asked.build and not local and where.kind != "sky"
    extras = (*asked.extras, "tpu") if where.kind == "tpu" else asked.extras
    locked = lock(extras, asked.packages) if builds or where.kind == "sky" else None
    recipe = bundle.recipe if command.recipe.directory is None else str(command.recipe.directory.absolute())
    flags = [word for flag in _of_training(argv[1:]) for word in flag]
    return Launch(
        id=new_id(command.recipe.name),
        on=f"ssh:{where.name}" if where.kind == "ssh" else asked.on,
        words=(recipe, *flags, "--out", out),
        out=out,
        here=os.getcwd(),
        directory=os.getcwd() if local else bundle.directory,
        bundle=bundle.hash,
        about=bundle.described(),
        python=asked.python or (python_here() if local else f"python3.{sys.version_info.minor}"),
        requirements=locked.requirements if locked else (),
        constraints=locked.constraints if locked else (),
        environment=locked.name if locked else "",
        env=asked.env,
        devices=asked.devices,
        coordinator=asked.coordinator or "",
        port=asked.port or (_free_port() if local else 8476),
        connect_timeout=asked.connect_timeout,
        ssh_config=os.path.abspath(asked.ssh_config) if asked.ssh_config else "",
        keep_going=asked.keep_going,
        restarts=asked.restarts,
        slurm=asked.slurm,
    )


def _of_training(argv: Sequence[str]) -> list[list[str]]:
    """The flags that are for `spanloom train`, as they were typed."""
    own = {field.name for field in dataclasses.fields(Launching)} - set(HANDED_ON)
    _, flags = split(argv)
    return [flag.words() for flag in flags if flag.name not in own and flag.name != "out"]


def _out(command: Command[Launching], where: "Target") -> str:
    """The run directory as the hosts name it. Raises UsageError for one that means another place on each."""
    from spanloom.cli.train import output_directory
    from spanloom.launch.buckets import bucket_of, mount_point

    if address := _address(command, where):
        bucket, path = bucket_of(address)
        return f"{mount_point(bucket)}/{path}"
    out = str(output_directory(command))
    if where.kind == "local":
        return os.path.abspath(out)
    if not out.startswith(("/", "~/")):
        raise UsageError(
            f"--out {out}: hosts do not share this folder's path: give the whole path of a directory that they share "
            "(a network file system, or a bucket that is mounted everywhere)"
        )
    return out


def _address(command: Command[Launching], where: "Target") -> str:
    """The bucket's address where --out is one and sky mounts it. Raises UsageError where that is for the user to do."""
    from spanloom.launch.buckets import bucket_of, creation, mount_point, mounting, region_of
    from spanloom.launch.tpu import on_all_words

    out = command.run.out or ""
    if "out" not in command.asked or "://" not in out or where.kind not in ("sky", "tpu"):
        return ""
    try:
        bucket, path = bucket_of(out)
    except ValueError:
        raise UsageError(
            f"--out {out}: give gs://BUCKET/PATH, or the whole path of a directory that all hosts share"
        ) from None
    if where.kind == "sky":
        return out
    everywhere = shlex.join(on_all_words(where.name, where.zone, mounting(bucket)))
    raise UsageError(
        f"--out {out}: a run is written into a directory, so mount the bucket on every worker (gcsfuse must be "
        f"installed there), and give --out {mount_point(bucket)}/{path}:\n"
        f"  {creation(bucket, region_of(where.zone))}\n  {everywhere}"
    )


def _refuse_secrets(argv: Sequence[str]) -> None:
    """Raise BadInputError for an address with a password in it: words are written down here and on every host."""
    from spanloom.tasks.remote_files import refuse_secrets

    for word in argv:
        for address in re.findall(r"[A-Za-z][A-Za-z0-9+.-]*://\S+", word):
            refuse_secrets(address)


def _free_port() -> int:
    """A port that is free, and so is the next one."""
    while True:
        with socket.socket() as one, socket.socket() as following:
            one.bind(("127.0.0.1", 0))
            port: int = one.getsockname()[1]
            try:
                following.bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):
                continue
            return port


def _show(launch: "Launch", where: "Target") -> int:
    if where.kind == "slurm":
        from spanloom.launch.processes import Place
        from spanloom.launch.slurm import job_script, submission

        environment = f"{launch.home}/environments/{launch.environment}/bin/python"
        place = Place(f"{launch.home}/bundles/{launch.bundle}", environment if launch.environment else launch.python)
        print(f"# code: {launch.about}\n{shlex.join(submission(launch))} <<'EOF'\n{job_script(launch, 1, place)}EOF")
        return 0
    from spanloom.launch.planned import commands, needed_for_tpu
    from spanloom.launch.targets import hosts_of

    if where.kind == "tpu":
        from spanloom.launch.tpu import found_or_imagined

        for line in needed_for_tpu(where.name, where.zone, launch.out):
            print(line)
        hosts, why = found_or_imagined(where.name, where.zone)
        if why:
            print("# its workers cannot be asked for now; as if there were two, with addresses ADDRESS0 and ADDRESS1:")
            print("\n".join(f"#   {line}" for line in why.splitlines()))
    else:
        hosts = hosts_of(launch)
    for line in commands(launch, hosts):
        print(line)
    return 0


def _write_sky(launch: "Launch", where: "Target", bundle: "Bundle", address: str, dry: bool) -> int:
    from spanloom.launch.sky import starting, task, write_task

    nodes = where.count or 1
    if dry:
        name = f"{launch.id}.sky"
        print(f"# would be written: {name}/ ({launch.about}), and {name}.yaml:")
        print(task(launch, nodes, name, address), end="")
        print("".join(f"# {line}\n" for line in starting(launch, address)), end="")
        return 0
    for line in write_task(launch, nodes, bundle.data, Path.cwd(), address):
        print(line)
    return 0
