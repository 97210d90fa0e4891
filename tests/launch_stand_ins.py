"""Stand-ins for what a launch meets: a Python that trains nothing, and the programs of SLURM and of Google's cloud."""

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

STUB = """#!{python}
import json, os, sys, time
if sys.argv[1:2] != ["-P"]:
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
here = {here!r}
words = sys.argv
number = words[words.index("--process") + 1] if "--process" in words else "0"
start = len([name for name in os.listdir(here) if name.startswith(f"ran-{{number}}-")]) + 1
with open(f"{{here}}/ran-{{number}}-{{start}}.json.part", "w") as file:
    json.dump({{"argv": words, "env": dict(os.environ), "cwd": os.getcwd()}}, file)
os.rename(file.name, file.name[:-5])
with open(f"{{here}}/behaviour.json") as file:
    behaviour = json.load(file)
print(f"process {{number}} of start {{start}} began", flush=True)
exec(behaviour.get(f"{{number}}-{{start}}", behaviour.get(number, "")))
"""
"""For `train` it writes down its words and does what it is told; all else it leaves to the true one."""


class Stub:
    """A Python for `--python`, in a folder where it writes down how it was called."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.python = folder, folder / "python"
        executable(self.python, STUB.format(python=sys.executable, here=str(folder)))
        self.behave()

    def behave(self, **code: str) -> None:
        """What processes do: Python code by `process` or `process-start`, an underscore before it."""
        told = {key.lstrip("_").replace("_", "-"): text for key, text in code.items()}
        (self.folder / "behaviour.json").write_text(json.dumps(told))

    def ran(self, process: int, start: int = 1) -> dict[str, Any]:
        """How a process was called."""
        found: dict[str, Any] = json.loads((self.folder / f"ran-{process}-{start}.json").read_text())
        return found

    def began(self, process: int, start: int = 1) -> bool:
        return (self.folder / f"ran-{process}-{start}.json").is_file()


PATIENCE = {"attempt.FIRST_WAIT": 0.2, "attempt.AGAIN_SECONDS": 0.3, "slurm.POLL_SECONDS": 0.5}
"""How long watchers of tests wait, in seconds, where it is shorter than for users."""


def hurry(folder: Path, monkeypatch: Any, **seconds: float) -> None:
    """Have watchers, which are processes of their own, wait so long: a module that Python loads as it begins, from
    `folder`, says so. Names have two underscores for a dot: attempt__GRACE_SECONDS.
    """
    folder.mkdir(exist_ok=True)
    told = PATIENCE | {name.replace("__", "."): value for name, value in seconds.items()}
    lines = ["import sys", 'if "spanloom.launch.watcher" in sys.orig_argv:']
    lines.append("    from spanloom.launch import attempt, slurm")
    (folder / "sitecustomize.py").write_text("\n".join([*lines, *(f"    {k} = {v}" for k, v in told.items()), ""]))
    others = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path not in ("", str(folder))]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *others]))


def executable(path: Path, text: str) -> None:
    """A program."""
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def programs(folder: Path, monkeypatch: Any, **texts: str) -> Path:
    """Programs that come first on the PATH; each writes down its words in FOLDER/calls, then runs its text (Python)."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        head = f"#!{sys.executable}\nimport json, os, subprocess, sys, time\nhere = {str(folder)!r}\n"
        record = (
            "with open(here + '/calls', 'a') as file: file.write(json.dumps(sys.argv) + '\\n')\nsys.argv[0] = 'x'\n"
        )
        executable(folder / name, head + record.replace("sys.argv)", f"[{name!r}, *sys.argv[1:]])") + text)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def calls(folder: Path) -> list[list[str]]:
    """How the programs were called, in order."""
    file = folder / "calls"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []
