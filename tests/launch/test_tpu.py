"""Launches on the workers of a TPU, which stand-ins of gcloud and of its machines play."""

import json
import os
import signal
import subprocess

import pytest
from crew_process import two_free_ports
from launch_stand_ins import calls, hurry, programs
from waiting import until

from spanloom.cli.main import main
from spanloom.launch.hosts import HostsError
from spanloom.launch.record import find, is_watched, read_state
from spanloom.launch.tpu import creation, tpu_hosts

IN = ("--zone", "us-central2-b")
GCLOUD = """
words = sys.argv[1:]
said = open(here + "/describe.json").read()
if words[:5] == "compute tpus tpu-vm describe pod".split():
    if not said:
        sys.exit("ERROR: (gcloud.compute.tpus.tpu-vm.describe) NOT_FOUND: no such node")
    print(said)
elif words[:5] == "compute tpus tpu-vm ssh pod".split():
    worker = [word for word in words if word.startswith("--worker=")][0][9:]
    home = f"{here}/worker {worker}"
    if "PREEMPTED" in said:
        sys.exit("ssh: connect to host: Connection timed out")
    os.makedirs(home, exist_ok=True)
    print("Propagating SSH key...done.", file=sys.stderr)
    sys.exit(subprocess.run(["bash", "-c", words[-1]], env={**os.environ, "HOME": home}, cwd=home).returncode)
else:
    sys.exit(f"unknown: {words}")
"""


def describe(cloud, state="READY", addresses=("127.0.0.1", "127.0.0.1")):
    endpoints = [{"ipAddress": address, "port": 8470} for address in addresses]
    node = {"state": state, "acceleratorType": "projects/p/x/v4-16", "networkEndpoints": endpoints}
    (cloud / "describe.json").write_text(json.dumps(node) if state else "")


@pytest.fixture
def cloud(tmp_path, monkeypatch):
    """gcloud, and a TPU of two workers."""
    folder = programs(tmp_path / "cloud", monkeypatch, gcloud=GCLOUD)
    describe(folder)
    return folder


def launch(stub, tmp_path, *more):
    words = ["--on", "tpu:pod@us-central2-b", "--out", f"{tmp_path}/out", "--text", "it's $x"]
    return main(["launch", "recipe.py", *words, "--python", str(stub.python), "--build", "no", *more])


def test_all_workers_are_reached_by_gcloud(home, stub, cloud, tmp_path, capsys):
    port = str(two_free_ports())
    assert launch(stub, tmp_path, "--port", port) == 0, capsys.readouterr()
    for number in (0, 1):
        ran = stub.ran(number)
        assert ran["argv"][5].startswith(f"{cloud}/worker {number}/.spanloom/bundles/")
        assert ran["argv"][6:8] == ["--text", "it's $x"]
        assert ran["argv"][-4:-2] == ["--coordinator", f"127.0.0.1:{port}"]
    made = calls(cloud)
    assert made[0] == ["gcloud", "compute", "tpus", "tpu-vm", "describe", "pod", *IN, "--format=json"]
    ssh = [words for words in made if "ssh" in words]
    assert {words[8] for words in ssh} == {"--worker=0", "--worker=1"}
    assert all("--quiet" in words and words[-2] == "--command" for words in ssh)


def test_a_preempted_slice_is_found_again_at_its_new_addresses(home, stub, cloud, tmp_path, capsys):
    """The first start loses a worker; by the second the slice has another address, which the coordinator has too."""
    port = str(two_free_ports())
    node = json.loads((cloud / "describe.json").read_text())
    node["networkEndpoints"] = [{"ipAddress": "localhost"}, {"ipAddress": "localhost"}]
    new = f"open({str(cloud / 'describe.json')!r}, 'w').write({json.dumps(node)!r})"
    stub.behave(_0_1="time.sleep(1); sys.exit(75)", _1_1=f"{new}; os.kill(os.getpid(), 9)")
    assert launch(stub, tmp_path, "--keep-going", "--port", port) == 0, capsys.readouterr()
    assert stub.ran(0, 1)["argv"][-3] == f"127.0.0.1:{port}" and stub.ran(0, 2)["argv"][-3] == f"localhost:{port}"
    assert read_state(find(None)).restarts == 1


def test_a_slice_that_is_taken_away_whole_is_waited_for_and_goes_on(home, stub, cloud, tmp_path, capsys, monkeypatch):
    """Nobody is left to say that the others are gone: gcloud is asked, which first knows of a preempted slice."""
    hurry(tmp_path / "patience", monkeypatch, attempt__LOST_SECONDS=1.0, attempt__ASK_SECONDS=0.5)
    stub.behave(_0_1="time.sleep(300)", _1_1="time.sleep(300)")
    port = str(two_free_ports())
    assert launch(stub, tmp_path, "--keep-going", "--detach", "--port", port) == 0
    until(lambda: read_state(find(None)).state == "running")
    describe(cloud, "PREEMPTED")
    for pid in lines_to(cloud):
        os.killpg(pid, signal.SIGKILL)
    said = (find(None).folder / "watch.log").read_text
    until(lambda: "is PREEMPTED, not READY" in said(), told=said)
    describe(cloud, addresses=("localhost", "localhost"))
    until(lambda: not is_watched(find(None)), told=said)
    assert "failed first: it is lost" in said() and read_state(find(None)).state == "done"
    assert stub.ran(1, 2)["argv"][-3] == f"localhost:{port}"
    for number in (0, 1):  # which the machine that was taken away would have taken with it
        place = cloud / f"worker {number}" / ".spanloom" / "launches" / find(None).id / f"1-{number}"
        os.kill(json.loads((place / "process").read_text())["id"], signal.SIGKILL)


def lines_to(cloud):
    """Processes of the stand-in that hold a line to a worker."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if f"{cloud}/gcloud".encode() in words:
            yield int(pid)


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ("PREEMPTED", r"pod is PREEMPTED, not READY.*delete pod --zone z; gcloud .* create pod --zone z .* v4-16"),
        ("", r"NOT_FOUND(?s:.*)create pod --zone z --accelerator-type(?s:.*)gcloud storage buckets create"),
    ],
)
def test_a_tpu_that_is_not_there_is_said_with_the_commands_that_make_it(cloud, state, told):
    describe(cloud, state)
    with pytest.raises(HostsError, match=told):
        tpu_hosts("pod", "z")


def test_answers_of_gcloud_that_say_nothing_are_refused(cloud):
    (cloud / "describe.json").write_text("[]")
    with pytest.raises(HostsError, match="says no JSON object"):
        tpu_hosts("pod", "z")
    describe(cloud, addresses=("", "1"))
    with pytest.raises(HostsError, match="names no addresses"):
        tpu_hosts("pod", "z")


def test_without_gcloud_it_is_said_how_to_get_it(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(HostsError, match=r"needs gcloud.*install the Google Cloud CLI.*tpu-vm create pod"):
        tpu_hosts("pod", "")


def test_a_dry_run_prints_what_makes_the_tpu_and_every_command(home, stub, cloud, tmp_path, capsys):
    assert launch(stub, tmp_path, "--dry-run") == 0
    said = capsys.readouterr().out
    assert "gcloud compute tpus tpu-vm create pod --zone us-central2-b" in said
    assert "gcloud compute tpus tpu-vm ssh pod --zone us-central2-b --worker=1" in said
    assert [words[4] for words in calls(cloud)] == ["describe"]


def test_a_dry_run_needs_no_tpu_yet_and_prints_what_makes_it_and_a_bucket(home, stub, cloud, tmp_path, capsys):
    describe(cloud, "")
    assert launch(stub, tmp_path, "--dry-run") == 0
    said = capsys.readouterr().out
    assert "gcloud compute tpus tpu-vm create pod --zone us-central2-b" in said
    assert "gcloud storage buckets create gs://BUCKET --location us-central2" in said and "gcsfuse" in said
    assert "NOT_FOUND" in said and "--process 1 --coordinator ADDRESS0:8476" in said
    words = [line for line in said.splitlines() if not line.startswith("#")]
    assert subprocess.run(["bash", "-n"], input="\n".join(words), text=True).returncode == 0


def test_a_bucket_as_run_directory_says_how_it_is_mounted(home, stub, cloud, capsys):
    words = ["--on", "tpu:pod@us-central2-b", "--text", "x", "--out"]
    assert main(["launch", "recipe.py", *words, "gs://my-bucket/runs/a"]) == 2
    said = capsys.readouterr().err
    assert "give --out /mnt/my-bucket/runs/a" in said and "--worker=all --command" in said
    assert main(["launch", "recipe.py", *words, "s3://my-bucket/runs/a"]) == 2
    assert "give gs://BUCKET/PATH" in capsys.readouterr().err and not calls(cloud)


@pytest.mark.parametrize(
    ("kind", "image"),
    [("v4-32", "tpu-ubuntu2204-base"), ("v5litepod-16", "v2-alpha-tpuv5-lite"), ("v6e-8", "v2-alpha-tpuv6e")],
)
def test_a_tpu_is_made_with_the_image_of_its_kind(kind, image):
    assert creation("pod", "z", kind)[-2:] == ["--version", image]
