"""What a host does for a launch: this file's text is sent to it with every request, and Python there runs it.

So nothing of ours need be installed on a host before, and both ends always speak alike. Standard library alone, Python
3.8 and later. A request is a line of JSON, what it brings along follows; answers are lines that begin with `MARK`.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import glob
import hashlib
import io
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable
from typing import IO, Any, BinaryIO

MARK = "@spanloom "
BEAT_SECONDS = 5.0
WHOLE = ".whole"
"""File of a bundle and of an environment that are complete."""
VERSIONS = (
    "import importlib.metadata as m, json, platform, sys\n"
    "found = {'python': platform.python_version()}\n"
    "for name in ('jax', 'jaxlib', 'libtpu'):\n"
    "    try: found[name] = m.version(name)\n"
    "    except m.PackageNotFoundError: pass\n"
    "import spanloom; found['spanloom'] = spanloom.__version__\n"
    "print(json.dumps(found))"
)


class RefusedError(Exception):
    """A request that cannot be met; the message names cause and fix."""


def say(**message: Any) -> None:
    """A line of answer."""
    sys.stdout.write(MARK + json.dumps(message) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Answer the request on standard input."""
    given = sys.stdin.buffer
    request = json.loads(given.readline())
    try:
        say(done=VERBS[request["do"]](request, given))
    except BrokenPipeError:
        os._exit(0)  # who asked has gone
    except RefusedError as error:
        say(error=str(error))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        say(error=f"{where}{error.strerror or error}")
    except Exception as error:
        say(error=f"{type(error).__name__}: {error}")


def home(request: dict[str, Any]) -> str:
    """The folder of a host that holds bundles, environments and processes."""
    path = os.path.abspath(os.path.expanduser(request.get("home") or "~/.spanloom"))
    os.makedirs(path, mode=0o700, exist_ok=True)
    return path


def write(path: str, value: Any) -> None:
    """A JSON file, whole or absent."""
    part = f"{path}.part.{os.getpid()}"
    with open(part, "w", encoding="utf-8") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


def read(path: str) -> Any:
    """A JSON file; None where there is none."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


# What is sent, and the environment.


def unpack(request: dict[str, Any], given: BinaryIO) -> dict[str, Any]:
    """Put a bundle in its place, if it is not there; without `size`, say only whether it is."""
    place = os.path.join(home(request), "bundles", request["hash"])
    if os.path.isfile(os.path.join(place, WHOLE)) and not changed_files(place):
        return {"place": place, "there": True}
    if not request.get("size"):
        return {"place": place, "there": False}
    data = given.read(request["size"])
    if hashlib.sha256(data).hexdigest() != request["hash"]:
        raise RefusedError("what was sent arrived damaged (its hash is another): give the same command again")
    part = f"{place}.part.{os.getpid()}"
    os.makedirs(part)
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
            _extract(archive, part)
        open(os.path.join(part, WHOLE), "w").close()
        if os.path.isdir(place):
            shutil.rmtree(place)  # damaged, or left without its sign by a launch that was killed here
        os.rename(part, place)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return {"place": place, "there": True}


def _extract(archive: tarfile.TarFile, place: str) -> None:
    """Unpack what stays below `place`. Raises RefusedError, or an error of tarfile, for what does not."""
    if hasattr(tarfile, "data_filter"):
        archive.extractall(place, filter="data")
        return
    links = set()  # Python before 3.11.4, which Debian 12 and Ubuntu 22.04 have: nothing looks, so we do
    for member in archive.getmembers():
        name, parents = os.path.normpath(member.name), member.name.split("/")[:-1]
        target = os.path.join(os.path.dirname(name), member.linkname) if member.issym() else name
        known = member.isreg() or member.isdir() or member.issym()
        below_link = any("/".join(parents[: n + 1]) in links for n in range(len(parents)))
        if not known or below_link or any(_is_outside(path) for path in (name, target)):
            raise RefusedError(f"{member.name!r} in what was sent would not stay in its folder: nothing is unpacked")
        if member.issym():
            links.add(name)
    archive.extractall(place)


def _is_outside(path: str) -> bool:
    return os.path.isabs(path) or os.path.normpath(path).split("/")[0] == ".."


def changed_files(place: str) -> list[str]:
    """Files of a bundle that are not as they were sent."""
    listed = (read(os.path.join(place, "bundle.json")) or {}).get("files")
    if not listed:
        return ["bundle.json"]
    return [name for name, sha in listed.items() if _sha(os.path.join(place, name)) != sha]


def _sha(path: str) -> str | None:
    try:
        if os.path.islink(path):
            return hashlib.sha256(os.fsencode(os.readlink(path))).hexdigest()
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return None


def environment(request: dict[str, Any], _: BinaryIO) -> dict[str, Any]:
    """Build the virtual environment of a lock, unless it is there; one build at a time."""
    folder = os.path.join(home(request), "environments")
    place = os.path.join(folder, request["name"])
    python = os.path.join(place, "bin", "python")
    os.makedirs(folder, exist_ok=True)
    with open(f"{place}.lock", "a") as lock:
        _lock(lock, request.get("wait", 1800))
        if os.path.isfile(os.path.join(place, WHOLE)):
            return {"python": python, "built": False}
        shutil.rmtree(place, ignore_errors=True)
        _run(
            [sys.executable, "-m", "venv", place],
            "is the venv module there? On Debian and Ubuntu: apt install python3-venv",
        )
        for name in ("requirements", "constraints"):
            with open(os.path.join(place, f"{name}.txt"), "w", encoding="utf-8") as file:
                file.writelines(f"{line}\n" for line in request[name])
        files = [os.path.join(place, f"{name}.txt") for name in ("requirements", "constraints")]
        words = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
        if request["requirements"]:
            say(says=f"installing {len(request['requirements'])} packages and what they need")
            _run([*words, "-r", files[0], "-c", files[1]], "mend it there, or give --python with --build no")
        open(os.path.join(place, WHOLE), "w").close()
    return {"python": python, "built": True}


def _lock(file: IO[Any], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise RefusedError(f"another launch has been building {file.name[:-5]} for {seconds} s") from None
            time.sleep(0.5)


def _run(words: list[str], fix: str) -> None:
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        lines = done.stdout.decode(errors="replace").strip().splitlines()[-15:]
        raise RefusedError("\n".join([f"{' '.join(words)} failed ({fix}):", *lines]))


# Before the start.


def check(request: dict[str, Any], _: BinaryIO) -> dict[str, Any]:
    """What preflight compares among hosts and judges of one."""
    place, python = request["bundle"], os.path.expanduser(request["python"])
    report = {"name": socket.gethostname(), "now": time.time(), "changed": changed_files(place)}
    paths = os.path.join(place, "package")
    found = subprocess.run(
        [python, "-c", VERSIONS],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
    )
    try:
        report["versions"] = json.loads(found.stdout)
    except ValueError:
        report["versions"], report["broken"] = {}, found.stderr.decode(errors="replace").strip()[-1500:]
    report["devices"] = devices()
    report["free"] = shutil.disk_usage(home(request)).free
    report["locks"] = _libtpu_locks()
    out = os.path.expanduser(request.get("out") or "")
    if out:
        report["out_free"] = shutil.disk_usage(_there(out)).free
        report["out_writable"] = os.access(_there(out), os.W_OK)
        if request.get("first") and (holder := _holder(os.path.join(out, ".lock"))):
            report["in_use"] = holder
    return report


def devices() -> dict[str, int]:
    """Accelerators of this machine by their device files, which does not claim them."""
    gpus = [path for path in glob.glob("/dev/nvidia*") if path[len("/dev/nvidia") :].isdigit()]
    tpus = glob.glob("/dev/accel[0-9]*") or [p for p in glob.glob("/dev/vfio/*") if os.path.basename(p).isdigit()]
    return {"gpu": len(gpus), "tpu": len(tpus)}


def _there(path: str) -> str:
    while not os.path.exists(path):
        path = os.path.dirname(path) or "."
    return path


def _libtpu_locks() -> list[str]:
    """Lock files of the TPU runtime that would stop this user: held by a process, or somebody else's."""
    found = []
    for path in glob.glob("/tmp/libtpu_lockfile*"):
        if not os.access(path, os.W_OK):
            found.append(f"{path} belongs to another user: sudo rm -f {path}, once no process uses the TPU")
        elif holder := _holder(path):
            found.append(f"{path} is held ({holder}): another process uses the TPU; stop it (sudo lsof {path})")
    return found


def _holder(path: str) -> str:
    """What a locked file says of who holds it; nothing where nobody does."""
    try:
        with open(path, "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return file.read(100).decode(errors="replace").strip() or "by an unknown process"
    except OSError:
        pass
    return ""


def listen(request: dict[str, Any], given: BinaryIO) -> dict[str, Any]:
    """Answer at the ports of the coordinator until who asked closes the line, to show that they can be reached."""
    with contextlib.ExitStack() as stack:
        for port in request["ports"]:
            try:
                server = stack.enter_context(socket.create_server(("", port)))
            except OSError as error:
                name = socket.gethostname()
                raise RefusedError(
                    f"port {port} of {name} is not free ({error.strerror}): is another run there? Try another --port"
                ) from None
            threading.Thread(target=_answer, args=(server, request["token"].encode()), daemon=True).start()
        say(listening=True)
        select.select([given], [], [], request["seconds"])
    return {}


def _answer(server: socket.socket, token: bytes) -> None:
    with contextlib.suppress(OSError):
        while True:
            with server.accept()[0] as connection:
                connection.sendall(token)


def reach(request: dict[str, Any], _: BinaryIO) -> dict[str, Any]:
    """Find the first host's listener at both ports."""
    for port in request["ports"]:
        where = f"{request['host']}:{port}"
        try:
            with socket.create_connection((request["host"], port), timeout=request["seconds"]) as connection:
                said = connection.recv(100)
        except OSError as error:
            raise RefusedError(
                f"the coordinator {where} cannot be reached from {socket.gethostname()} ({error}): open the port in "
                "the firewall, or give an address that all hosts know with --coordinator HOST:PORT"
            ) from None
        if said != request["token"].encode():
            raise RefusedError(f"something else answers at {where}: is the address right? --coordinator HOST:PORT")
    return {}


# Processes.


def start(request: dict[str, Any], _: BinaryIO) -> dict[str, Any]:
    """Start a process that outlives the connection, with one that waits for it and writes its exit code."""
    place = process_place(request)
    os.makedirs(place, mode=0o700)
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.close(reader)
        _keep_apart()
        try:
            keep(request, place, lambda: os.write(writer, b"."), detached=True)
        except BaseException as error:
            os.write(writer, f"{type(error).__name__}: {error}"[:500].encode())
        os._exit(0)
    os.close(writer)
    said = os.read(reader, 600)
    if said != b".":
        raise RefusedError(f"the process could not be started ({said.decode(errors='replace') or 'it was killed'})")
    return {"place": place}


def process_place(request: dict[str, Any]) -> str:
    """The folder of one process of one attempt."""
    return os.path.join(home(request), "launches", request["launch"], f"{request['attempt']}-{request['process']}")


def _keep_apart() -> None:
    """A session of its own, and nothing left of the line to who asked."""
    os.setsid()
    if os.fork():
        os._exit(0)
    with open(os.devnull, "r+b") as null:
        for number in (0, 1, 2):
            os.dup2(null.fileno(), number)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # no SIG_IGN: the process started here would inherit that


def keep(request: dict[str, Any], place: str, started: Callable[[], object], detached: bool) -> int:
    """Run the process to its end, its output in a log, and write down when it ended and how; its exit code."""
    environment = {**os.environ, **request["env"]}
    with open(os.path.join(place, "log"), "ab") as log:
        child = subprocess.Popen(
            [os.path.expanduser(request["argv"][0]), *request["argv"][1:]],
            cwd=request["directory"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=detached,
        )
    write(os.path.join(place, "process"), {"id": child.pid, "born": born(child.pid), "at": time.time()})
    started()
    code = child.wait()
    write(os.path.join(place, "exit"), {"code": code, "at": time.time()})
    return code


def born(pid: int) -> str | None:
    """What tells a process from a later one of the same number; None where it is gone, or the system does not say."""
    try:
        with open(f"/proc/{pid}/stat") as file, open("/proc/sys/kernel/random/boot_id") as boot:
            fields = file.read().rpartition(")")[2].split()
            return None if fields[0] == "Z" else f"{boot.read().strip()} {fields[19]}"
    except OSError:
        return None


def state(place: str) -> dict[str, Any]:
    """running, ended (with `code` and `ago`, in seconds), gone or absent."""
    for last in (False, True):
        if ended := read(os.path.join(place, "exit")):
            return {"state": "ended", "code": ended["code"], "ago": time.time() - ended["at"]}
        process = read(os.path.join(place, "process"))
        if process is None:
            return {"state": "absent"}
        if _lives(process):
            return {"state": "running", "id": process["id"]}
        if not last:
            time.sleep(1.0)  # its exit code is about to be written
    return {"state": "gone"}


def _lives(process: dict[str, Any]) -> bool:
    if process["born"] is not None:
        return born(process["id"]) == process["born"]
    try:
        os.kill(process["id"], 0)
    except OSError:
        return False
    return not os.path.isdir("/proc/self")


def status(request: dict[str, Any], _: BinaryIO) -> dict[str, Any]:
    """How a process is, and the last step that its run has saved."""
    return {**state(process_place(request)), "step": last_step(request.get("out"))}


def last_step(out: str | None) -> str | None:
    """The path of the newest whole checkpoint of a run or of its stages; None where there is none."""
    if not out:
        return None
    root = glob.escape(os.path.expanduser(out))
    found = [p for way in ("", "*/") for p in glob.glob(f"{root}/{way}checkpoints/*/checkpoint.json")]
    whole = [path for path in found if path.split("/")[-2].isdigit()]
    return os.path.dirname(max(whole, key=os.path.getmtime)) if whole else None


def watch(request: dict[str, Any], _: BinaryIO) -> dict[str, Any]:
    """Tell a process's output from `offset` on, until it ends."""
    place, offset, beat = process_place(request), request["offset"], 0.0
    while True:
        now = state(place)
        offset = _tell_log(os.path.join(place, "log"), offset)
        if now["state"] != "running":
            return now
        if time.monotonic() - beat > BEAT_SECONDS:
            beat = time.monotonic()
            say(alive=True)
        time.sleep(request.get("every", 0.5))


def _tell_log(path: str, offset: int) -> int:
    if not os.path.isfile(path):
        return offset
    with open(path, "rb") as file:
        file.seek(offset)
        while chunk := file.read(65536):
            say(log=base64.b64encode(chunk).decode())
            offset += len(chunk)
    return offset


def stop(request: dict[str, Any], _: BinaryIO) -> dict[str, Any]:
    """End a process: SIGTERM, on which training saves; SIGKILL to all of its group after `grace` seconds."""
    place = process_place(request)
    process, deadline = read(os.path.join(place, "process")), time.monotonic() + request["grace"]
    if state(place)["state"] != "running":
        return state(place)
    with contextlib.suppress(ProcessLookupError):
        os.kill(process["id"], signal.SIGTERM)
    while (now := state(place))["state"] == "running" and time.monotonic() < deadline:
        time.sleep(0.1)
    if now["state"] == "running":
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process["id"], signal.SIGKILL)
        while (now := state(place))["state"] == "running":
            time.sleep(0.1)
    return now


def keep_here(request: dict[str, Any], _: BinaryIO) -> dict[str, Any]:
    """Run a process in the foreground, as a step of SLURM, which says who it is and is to see it end; with its code."""
    number, of = os.environ["SLURM_PROCID"], os.environ["SPANLOOM_PROCESSES"]
    if int(of) > 1:
        together = ["--processes", of, "--process", number, "--coordinator", os.environ["SPANLOOM_COORDINATOR"]]
        request["argv"] += [*together, "--connect-timeout", f"{request['connect_timeout']:g}"]
    request["process"] = int(number)
    place = process_place(request)
    os.makedirs(place, mode=0o700, exist_ok=True)
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, lambda *_: None)  # what ends the step tells the process as well
    code = keep(request, place, lambda: None, detached=False)
    sys.exit(code if code >= 0 else 128 - code)


VERBS = {
    "unpack": unpack,
    "environment": environment,
    "check": check,
    "listen": listen,
    "reach": reach,
    "start": start,
    "status": status,
    "watch": watch,
    "stop": stop,
    "keep": keep_here,
}

if __name__ == "__main__":
    main()
