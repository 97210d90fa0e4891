"""A SkyPilot task file: SkyPilot finds and makes the machines, sends the files and watches; one command starts it.

The fields are those of its documented YAML. Values are written as JSON strings, which are YAML strings as well.
"""

import io
import json
import os
import shlex
import tarfile
from collections.abc import Iterator
from pathlib import Path

from spanloom.launch.buckets import bucket_of, creation, mount_point
from spanloom.launch.record import Launch

ENVIRONMENT = "$HOME/.spanloom-environment"


def write_task(launch: Launch, nodes: int, bundle: bytes, here: Path, address: str = "") -> Iterator[str]:
    """Write NAME.sky/, with what is sent, and NAME.sky.yaml; lines that say so, and what starts it.

    `address`: the bucket's, where the run directory is in one. Raises FileExistsError where another launch of that name
    is in its place.
    """
    name = launch.id
    folder, file = here / f"{name}.sky", here / f"{name}.sky.yaml"
    folder.mkdir()
    with tarfile.open(fileobj=io.BytesIO(bundle), mode="r:gz") as archive:
        archive.extractall(folder, filter="data")
    for kind in ("requirements", "constraints"):
        lines = getattr(launch, kind)
        (folder / f"{kind}.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    file.write_text(task(launch, nodes, folder.name, address), encoding="utf-8")
    yield f"wrote {file} and {folder.name}/ ({launch.about})"
    yield from starting(launch, address)


def starting(launch: Launch, address: str = "") -> Iterator[str]:
    """Lines that say how the task is started."""
    name = f"{launch.id}.sky.yaml"
    secrets = "".join(f" --secret {variable}" for variable in launch.env)
    cluster = f"-c spanloom-{launch.id[-4:]}"
    if address:
        yield f"the bucket, if it is not there yet: {creation(bucket_of(address)[0])}"
    yield "choose hardware in it under `resources`, then:"
    yield f"  sky launch {cluster}{secrets} {shlex.quote(name)}          # once; `sky logs`, `sky down` follow"
    yield f"  sky jobs launch{secrets} {shlex.quote(name)}               # managed: back after preemptions"


def task(launch: Launch, nodes: int, workdir: str, address: str = "") -> str:
    """The task file's text."""
    train = _train(launch)
    port = launch.port
    lines = [
        f"# {launch.about}",
        f"name: {_text('spanloom-' + launch.id[-4:])}",
        f"workdir: {_text('./' + workdir)}",
        f"num_nodes: {nodes}",
        "resources:",
        "  accelerators: H100:8  # what each node has; `sky show-gpus` lists what there is",
    ]
    if address:
        bucket, _ = bucket_of(address)
        lines += ["file_mounts:", f"  {_text(mount_point(bucket))}:", f"    source: {_text(f'gs://{bucket}')}"]
        lines += ["    mode: MOUNT"]
    elif nodes > 1:
        lines.append(f"# All nodes must share {json.dumps(launch.out)}; --out gs://BUCKET/PATH mounts a bucket for it.")
    if launch.env:
        lines += ["secrets:", *(f"  {name}: null" for name in launch.env)]
    lines += ["setup: |", *_indented(_setup(launch))]
    lines += ["run: |", *_indented(["set -e", f"cd {shlex.quote(launch.directory)}"])]
    if nodes > 1:
        lines += _indented(['first=$(echo "$SKYPILOT_NODE_IPS" | head -n 1)'])
        train += f' --processes "$SKYPILOT_NUM_NODES" --process "$SKYPILOT_NODE_RANK" --coordinator "$first:{port}"'
        train += f" --connect-timeout {launch.connect_timeout:g}"
    lines += _indented([f'PYTHONPATH="$HOME/sky_workdir/package" {train}'])
    return "\n".join(lines) + "\n"


def _setup(launch: Launch) -> list[str]:
    python = shlex.quote(os.path.basename(launch.python))
    pip = f"{ENVIRONMENT}/bin/python -m pip install -r requirements.txt -c constraints.txt"
    return ["set -e", f"{python} -m venv {ENVIRONMENT}", pip]


def _train(launch: Launch) -> str:
    recipe, *flags = launch.words
    recipe = f'"$HOME"/sky_workdir/{shlex.quote(recipe)}' if recipe.startswith("code/") else shlex.quote(recipe)
    return f"{ENVIRONMENT}/bin/python -P -m spanloom.cli.main train {recipe} {shlex.join(flags)}"


def _text(value: str) -> str:
    return json.dumps(value)


def _indented(lines: list[str]) -> list[str]:
    """Lines of a literal block. What a shell has quoted may hold line ends."""
    return [f"  {part}" for line in lines for part in line.split("\n")]
