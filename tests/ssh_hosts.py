"""Real SSH servers on loopback, each with a home directory of its own: hosts for a launch."""

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

SERVER = """
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/key.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
SetEnv HOME={home}
"""
CLIENT = """
Host *
  IdentityFile {folder}/key
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  StrictHostKeyChecking accept-new
"""


class Servers:
    """SSH servers, that can be taken away and brought back."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder = folder
        for name in ("key", "host_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
        (folder / "config").write_text(CLIENT.format(folder=folder))
        self.ports = [_free_port() for _ in range(count)]
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        for number in range(count):
            self.start(number)
        names = [f"{getpass.getuser()}@127.0.0.1:{port}" for port in self.ports]
        (folder / "hosts.txt").write_text("".join(f"{name}\n" for name in names))

    def home(self, number: int) -> Path:
        return self.folder / f"home {number}"

    def start(self, number: int) -> None:
        self.home(number).mkdir(exist_ok=True)
        file, port = self.folder / f"sshd-{number}", self.ports[number]
        file.write_text(SERVER.format(folder=self.folder, port=port, home=f'"{self.home(number)}"'))
        with (self.folder / f"sshd-{number}.log").open("ab") as log:
            words = [shutil.which("sshd", path=_PATH), "-D", "-e", "-f", file]
            self.running[number] = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + 30
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                return
            assert time.monotonic() < deadline, (self.folder / f"sshd-{number}.log").read_text()
            time.sleep(0.05)

    def stop(self, number: int) -> None:
        """The server and every line it holds; what was started by them and set apart lives on."""
        process = self.running.pop(number)
        process.terminate()
        process.wait()


_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@contextlib.contextmanager
def ssh_servers(folder: Path, count: int) -> Iterator[Servers]:
    """Servers until the end of the block. Skips where there is no sshd; CI has one."""
    if shutil.which("sshd", path=_PATH) is None:
        assert os.environ.get("CI") != "true", "CI needs openssh-server: see .ci/run"
        pytest.skip("needs openssh-server")
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where sshd of root sets itself apart
    servers = Servers(folder, count)
    try:
        yield servers
    finally:
        for number in list(servers.running):
            servers.stop(number)
