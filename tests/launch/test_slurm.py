"""Launches as jobs of SLURM, whose programs stand-ins are that record how they are called."""

import os
import shutil
import subprocess

import pytest
from crew_process import two_free_ports
from launch_stand_ins import calls, programs
from waiting import until

from spanloom.cli.main import main
from spanloom.launch.record import find, read_state

SBATCH = """
script = sys.stdin.read()
open(here + "/script", "w").write(script)
own = {"SLURM_JOB_ID": "77", "SLURM_JOB_NODELIST": "n[1-2]", "JOB_HERE": here}
with open(here + "/output", "w") as out:
    job = subprocess.Popen(["bash", here + "/script"], env={**os.environ, **own}, stdout=out, stderr=out)
open(here + "/job", "w").write(str(job.pid))
print("a banner of the site\\n77;cluster")
"""
SCONTROL = "print('n1\\nn2')"
SRUN = """
count = int([word for word in sys.argv if word.startswith("--ntasks=")][0][9:])
words = sys.argv[[n for n, word in enumerate(sys.argv) if n and not word.startswith("--")][0]:]
tasks = [subprocess.Popen(words, env={**os.environ, "SLURM_PROCID": str(n)}) for n in range(count)]
open(here + "/tasks", "w").write(" ".join(str(task.pid) for task in tasks))
while any(task.poll() is None for task in tasks):
    if any(task.poll() for task in tasks):
        [task.terminate() for task in tasks]
    time.sleep(0.1)
sys.exit(max(task.poll() != 0 for task in tasks))
"""
SQUEUE = """
try:
    os.kill(int(open(here + "/job").read()), 0)
    state = open(f"/proc/{open(here + '/job').read()}/stat").read().rpartition(")")[2].split()[0]
except OSError:
    state = "Z"
if state == "Z":
    sys.exit("slurm_load_jobs error: Invalid job id specified")
print("RUNNING")
"""
SCANCEL = """
for pid in open(here + "/tasks").read().split():
    subprocess.run(["sh", "-c", f"kill -TERM $(cat /proc/{pid}/task/{pid}/children)"])
"""


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """The programs of SLURM."""
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    found = {"sbatch": SBATCH, "scontrol": SCONTROL, "srun": SRUN, "squeue": SQUEUE, "scancel": SCANCEL}
    return programs(tmp_path / "bin", monkeypatch, **found)


def launch(stub, tmp_path, *more, on="slurm:2"):
    words = ["--on", on, "--out", f"{tmp_path}/out", "--python", str(stub.python), "--build", "no", "--text", "it's $x"]
    return main(["launch", "recipe.py", *words, *more])


def test_a_job_starts_a_process_on_each_node_with_its_number(home, stub, slurm, tmp_path, capsys):
    assert launch(stub, tmp_path, "--slurm", "partition=gpu", "gres=gpu:8") == 0, capsys.readouterr()
    script = (slurm / "script").read_text()
    for option in ("partition=gpu", "gres=gpu:8", "nodes=2", "ntasks-per-node=1", "signal=TERM@120"):
        assert f"#SBATCH --{option}\n" in script
    assert subprocess.run(["bash", "-n", slurm / "script"]).returncode == 0
    first, second = stub.ran(0), stub.ran(1)
    assert first["argv"][6:8] == ["--text", "it's $x"]
    together = ["--processes", "2", "--process", "0", "--coordinator", f"n1:{8476 + 2 * 77}"]
    assert first["argv"][-8:-2] == together
    assert [a for a, b in zip(first["argv"], second["argv"], strict=True) if a != b] == ["0"]
    said = capsys.readouterr().out
    assert "job 77 is submitted" in said and "process 0 of start 1 began" in said
    assert find(None).log(1, 1).read_text() == "process 1 of start 1 began\n"
    assert read_state(find(None)).state == "done"
    assert ["sbatch", "--parsable"] in calls(slurm)


def test_the_task_that_failed_first_is_shown(home, stub, slurm, tmp_path, capsys):
    stub.behave(_0="time.sleep(2); sys.exit(75)", _1="raise RuntimeError('no such node')")
    assert launch(stub, tmp_path) == 1
    said = capsys.readouterr().out
    assert "process 1 of job 77 failed first" in said and "RuntimeError: no such node" in said


def test_stop_has_the_job_save(home, stub, slurm, tmp_path, capsys):
    saving = "import signal\nsignal.signal(15, lambda *_: sys.exit(0))\nprint('up', flush=True)\ntime.sleep(90)"
    stub.behave(_0=saving, _1=saving)
    assert launch(stub, tmp_path, "--detach") == 0
    until(lambda: all(find(None).log(1, n).exists() and "up" in find(None).log(1, n).read_text() for n in (0, 1)))
    assert main(["launch", "stop"]) == 0
    assert read_state(find(None)).state == "stopped"
    assert ["scancel", "--signal=TERM", "77"] in calls(slurm)


def test_values_are_neither_in_the_script_nor_in_the_request(home, stub, slurm, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "s3cr3t")
    assert launch(stub, tmp_path, "--env", "HF_TOKEN") == 0
    assert stub.ran(0)["env"]["HF_TOKEN"] == "s3cr3t"  # sbatch hands the environment on
    files = [path for folder in (home, slurm) for path in folder.rglob("*") if path.is_file()]
    assert not [path for path in files if b"s3cr3t" in path.read_bytes()]


def test_inside_of_an_allocation_its_nodes_are_taken(home, stub, slurm, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SLURM_JOB_ID", "55")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-2]")
    assert launch(stub, tmp_path, on="slurm") == 0, capsys.readouterr()
    assert stub.ran(1)["argv"][-3] == f"n1:{8476 + 2 * 55}"
    assert "sbatch" not in {words[0] for words in calls(slurm)}


def test_without_slurm_it_is_said(home, stub, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert launch(stub, tmp_path) == 1
    assert "sbatch is not here: --on slurm is for a login node" in capsys.readouterr().out


def test_a_dry_run_shows_the_script(home, stub, slurm, tmp_path, capsys):
    assert launch(stub, tmp_path, "--dry-run", "--slurm", "time=1:00:00") == 0
    said = capsys.readouterr().out
    assert "sbatch --parsable <<'EOF'" in said and "#SBATCH --time=1:00:00" in said and "srun --ntasks=" in said
    assert not calls(slurm) and not os.path.exists(home)


CONFIG = """
ClusterName=one
SlurmctldHost=localhost
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmctldPort={port}
SlurmdPort={next_port}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
ReturnToService=2
NodeName=localhost CPUs=2 RealMemory=1000 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """A real SLURM of one machine (Debian's slurmctld and slurmd, as root)."""
    if not (shutil.which("slurmctld") and shutil.which("slurmd") and os.getuid() == 0):
        pytest.skip("needs slurmctld and slurmd, and root")
    folder = tmp_path / "slurm"
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    port = two_free_ports()
    (folder / "slurm.conf").write_text(CONFIG.format(folder=folder, port=port, next_port=port + 1))
    monkeypatch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    running = []
    try:
        for words in (["slurmctld", "-D"], ["slurmd", "-D", "-N", "localhost"]):
            with (folder / f"{words[0]}.log").open("wb") as log:
                running.append(subprocess.Popen(words, stdout=log, stderr=log))
        sinfo = ["sinfo", "--noheader", "--format=%T"]
        until(lambda: subprocess.run(sinfo, capture_output=True, text=True).stdout.strip() == "idle")
        yield folder
    finally:
        for process in reversed(running):
            process.terminate()
            process.wait()


@pytest.mark.slow
def test_a_real_slurm_runs_shows_failures_and_has_a_job_save(home, stub, cluster, tmp_path, capsys):
    assert launch(stub, tmp_path, on="slurm:1") == 0, capsys.readouterr()
    assert stub.ran(0)["argv"][6:8] == ["--text", "it's $x"] and read_state(find(None)).state == "done"
    stub.behave(_0="raise RuntimeError('in the job')")
    assert launch(stub, tmp_path, on="slurm:1") == 1
    assert "RuntimeError: in the job" in capsys.readouterr().out
    stub.behave(
        _0="import signal\nsignal.signal(15, lambda *_: (print('saved', flush=True), sys.exit(0)))\ntime.sleep(90)"
    )
    assert launch(stub, tmp_path, "--detach", on="slurm:1") == 0
    until(lambda: stub.began(0, 3))
    assert main(["launch", "stop"]) == 0
    assert "saved" in find(None).log(1, 0).read_text() and read_state(find(None)).state == "stopped"
