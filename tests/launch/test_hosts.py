"""What --on and a file of hosts may say, and the commands that reach each host."""

import shlex
import subprocess

import pytest

from spanloom.launch.hosts import BOOT, Host, HostsError, in_file, processes_of, shell_path, this_machine
from spanloom.launch.targets import Target, target


def read(tmp_path, text, config=None):
    (tmp_path / "hosts.txt").write_text(text)
    return in_file(tmp_path / "hosts.txt", config)


def test_hosts_with_users_ports_slots_and_comments(tmp_path):
    text = "# the cluster\nroot@node1:2222 2\n\nnode2  # the new one\n[fe80::1]:22\n"
    hosts = read(tmp_path, text, "/my config")
    assert [(host.name, host.address, host.slots) for host in hosts] == [
        ("root@node1:2222", "node1", 2),
        ("node2", "node2", 1),
        ("[fe80::1]:22", "fe80::1", 1),
    ]
    assert hosts[0].command[-4:] == ("-p", "2222", "--", "root@node1")
    assert "BatchMode=yes" in hosts[0].command and hosts[0].command[-6:-4] == ("-F", "/my config")
    assert [(p.number, p.host.name, p.slot) for p in processes_of(hosts)] == [
        (0, "root@node1:2222", 0),
        (1, "root@node1:2222", 1),
        (2, "node2", 0),
        (3, "[fe80::1]:22", 0),
    ]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("-oProxyCommand=x", "is no host"),
        ("a@-oProxyCommand=x", "is no host"),
        ("a b c", "is no host"),
        ("a@b@c", "is no host"),
        ("node:0", "ports are 1 to 65535"),
        ("node:70000", "ports are 1 to 65535"),
        ("node:x", "is no host"),
        ("node 0", "write a number from 1 to 1024"),
        ("node -1", "write a number from 1 to 1024"),
        ("node ²", "write a number from 1 to 1024"),
        ("node\nnode", "has node twice"),
        ("# nothing", "names no host"),
    ],
)
def test_lines_that_are_no_hosts_are_refused_with_their_place(tmp_path, line, why):
    with pytest.raises(HostsError, match=why) as error:
        read(tmp_path, line)
    assert "hosts.txt" in str(error.value)


def test_a_file_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "hosts.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(HostsError, match="no text file"):
        in_file(tmp_path / "hosts.txt", None)


@pytest.mark.parametrize("path", ["/a b/$(touch x)'\"/python", "~/my env/$HOME/python"])
def test_a_shell_takes_the_python_of_a_host_as_one_word(path, tmp_path):
    line = Host("h", "h", ("ssh", "h")).words(path)[-1]
    said = subprocess.run(
        ["sh", "-c", f"printf '%s\\n' {line.replace(shlex.quote(BOOT), 'end')}"],
        capture_output=True,
        text=True,
        env={"HOME": "/home/me", "PATH": "/usr/bin:/bin"},
        cwd=tmp_path,
    )
    assert said.stdout.splitlines() == [path.replace("~", "/home/me", 1), "-c", "end"]
    assert not list(tmp_path.iterdir())
    assert shell_path("python3.11") == "python3.11"


def test_where_a_launch_may_go(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert target("local:4").count == 4
    assert target("slurm").count == 0 and target("slurm:3").count == 3
    assert target("ssh:hosts.txt") == Target("ssh", str(tmp_path / "hosts.txt"))
    assert target("tpu:pod@us-central2-b") == Target("tpu", "pod", "us-central2-b")
    assert this_machine(3)[0].slots == 3


WRONG = """local local: local:0 local:x local:9999999999 local:² slurm: slurm:-1 sky:x k8s:4
ssh ssh: tpu: tpu:A tpu:a@ tpu:--zone tpu:a@$(x)"""


@pytest.mark.parametrize("wrong", ["", "tpu:a b", *WRONG.split()])
def test_where_it_may_not_go_says_what_may_be_said(wrong):
    with pytest.raises(HostsError, match=r"--on .*(give|name)"):
        target(wrong)
