"""`spanloom plan`: tables and JSON of runs and stages on devices that are not here, and how it meets what is wrong."""

import json
import os
import subprocess
import sys

import pytest
from libtpu_here import needs_libtpu

from spanloom.cli.main import main

STAGES = '''"""Two languages."""
from spanloom.model.sizes import named
from spanloom.settings.run import Run
from spanloom.settings.task import Task, TextFiles

def recipe() -> list[Run]:
    return [
        Run(name, Task(name, TextFiles((f"{name}.txt",))), named("byt5_nano"), batch_size=8, steps=steps)
        for name, steps in (("en", 10), ("de", 30))
    ]
'''


def said(words: list[str], capsys, code: int = 0) -> str:
    assert main(["plan", *words]) == code
    told = capsys.readouterr()
    return told.err if code else told.out


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_a_table_that_reads_and_writes_nothing(folder, capsys):
    text = said(["t5_1_1_base", "--on", "h100x8", "--model.dtype", "bfloat16"], capsys)
    assert text.startswith("run t5_1_1_base on h100x8: 8 chips, 8 cores; mesh: data 8\n")
    assert "t5_1_1_base, 248 M parameters; 12 + 12 layers, d_model 768" in text
    assert "embedding 24.7 M, encoder 85 M, decoder 113 M, head 24.7 M\n" in text
    assert "computes in bfloat16, keeps weights in float32; attention auto, remat none\n" in text
    assert "128 rows of 512 + 114 tokens: a step takes 65,536 encoder and 14,592 decoder tokens" in text
    assert "524,288 steps, 42 G tokens; epochs are unknown" in text and ": fits (" in text
    assert "formula, right within a third or so: nothing here compiles for h100x8" in text and "\x1b" not in text
    assert not list(folder.iterdir())


def test_json_is_one_object_for_each_kind_of_devices(folder, capsys):
    text = said(["quickstart", "--on", "h100x8", "a100x2", "--json", "--batch-size", "32"], capsys)
    first, second = (json.loads(line) for line in text.splitlines())
    assert (first["on"]["name"], second["on"]["name"]) == ("h100x8", "a100x2")
    assert first["batch_size"] == second["batch_size"] == 32
    assert first["parameters"]["total"] == 1_804_416 and first["bytes"]["weights"] == 4 * 1_804_416


def test_shardings_of_every_parameter(folder, capsys):
    words = ["quickstart", "--on", "h100x8", "--mesh.fsdp", "4", "--mesh.tensor", "2", "--shardings"]
    lines = {line.split()[0]: line for line in said(words, capsys).splitlines() if "/" in line.split(" ")[0]}
    query = lines["encoder/layers/attention/query/kernel"].split()
    assert query[1:] == ["4x128x128", "-,", "fsdp,", "tensor", "32.8", "kB"]
    assert lines["decoder/logits_dense/kernel"].split()[2:4] == ["fsdp,", "tensor"] and len(lines) == 29
    _, _, alone = said(["quickstart", "--on", "h100x1", "--shardings"], capsys).partition("divided along")
    assert alone.count(" nothing ") == 29


@pytest.mark.parametrize(
    ("flags", "mesh"),
    [
        (["--mesh.data", "auto"], "data 8"),
        (["--mesh.data", "1", "--mesh.fsdp", "auto"], "fsdp 8"),
        (["--mesh.data", "auto", "--mesh.tensor", "2"], "data 4 x tensor 2"),
    ],
)
def test_auto_as_a_flag_takes_the_devices_that_are_left(folder, capsys, flags, mesh):
    assert f"; mesh: {mesh}\n" in said(["quickstart", "--on", "h100x8", *flags], capsys)


@pytest.mark.long
def test_this_machine_by_name(folder, capsys, monkeypatch):
    """The step is compiled, for the devices that are here."""
    monkeypatch.setattr("spanloom.training.machine.measured_peak", lambda dtype: 1e11)
    text = said(["quickstart", "--model", "byt5_tiny", "--on", "cpu"], capsys)
    assert text.startswith("run quickstart on cpu: ") and "\nknown by    compiled for cpu in " in text


def test_stages_have_a_plan_each_and_a_sum(folder, capsys):
    (folder / "two.py").write_text(STAGES)
    text = said(["two.py", "--on", "h100x2", "--stage.2.steps", "50"], capsys)
    assert text.index("run en on h100x2") < text.index("run de on h100x2")
    assert "all 2 stages on h100x2: 60 steps" in text
    assert len(said(["two.py", "--on", "h100x2", "--json"], capsys).splitlines()) == 2


def test_what_does_not_fit_by_formula_has_flags_to_paste(folder, capsys):
    words = ["t5_1_1_base", "--on", "h100x8", "--model.dtype", "bfloat16", "--batch-size", "4096"]
    text = said(words, capsys)
    assert "DOES NOT FIT" in text
    flags = next(line for line in text.splitlines() if line.startswith("what fits")).removeprefix("what fits")
    again = said([*words, *flags.partition("(")[0].split()], capsys)
    assert "DOES NOT FIT" not in again and ": fits (" in again
    assert "nothing that was found" not in text


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["quickstart", "--on", "v4-7"], 2, "--on v4-7: no devices are called 'v4-7'; the nearest is v4-8"),
        (["quickstart", "--on", "h100x3"], 1, "on h100x3: batch_size is 16, which 3 parts of the mesh"),
        (["quickstart", "--on", "h100x8", "--mesh.fsdp", "3"], 1, "fsdp 3 does not fit 8 devices"),
        (["quickstart", "--shardigns"], 2, "did you mean --shardings"),
        (["quikstart", "--on", "v4-8"], 2, "did you mean quickstart"),
        (["--on", "v4-8"], 2, "the recipe comes first"),
        (["quickstart", "--on", "h100x8", "--batch-size", "0"], 1, "batch_size is 0"),
    ],
)
def test_what_makes_no_sense_is_refused(folder, capsys, words, code, message):
    assert message in said(words, capsys, code=code)


def test_help_teaches(capsys):
    assert main(["plan", "--help"]) == 0
    text = capsys.readouterr().out
    assert "--on" in text and "pip install 'spanloom[tpu]'" in text and "without it, this machine" in text


@needs_libtpu
@pytest.mark.long
def test_a_tpu_in_a_process_of_its_own(folder):
    """Nothing but the table and our own word on the wait: libtpu without a TPU has much to say."""
    words = ["plan", "quickstart", "--model", "byt5_tiny", "--on", "v5e-4"]
    environment = {name: value for name, value in os.environ.items() if name != "JAX_PLATFORMS"}
    command = [sys.executable, "-m", "spanloom.cli.main", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.startswith("run quickstart on v5e-4: 4 chips, 4 cores; mesh: data 4\n")
    assert done.stderr == "compiling for v5e-4 ...\n"
    assert "compiled for v5e-4 in" in done.stdout and "all-reduce" in done.stdout and ": fits (" in done.stdout
