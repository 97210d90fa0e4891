"""`convert --push`: published once the folder is in place, by a process that may be killed at any moment."""

import importlib.util
import os
import subprocess
import sys
import time

import pytest
from conversion.conftest import random_params
from golden_data import ROOT, absent
from model_hub import TOKEN, USER, Fault, model_hub

from spanloom.cli.main import main
from spanloom.conversion.huggingface import write_folder
from spanloom.conversion.stored_model import as_stored
from spanloom.conversion.trained_model import Lineage, TrainedModel
from spanloom.settings.model import Model
from spanloom.settings.vocabulary import Bytes

NAME = f"{USER}/tiny"
TINY = Model(vocab_size=384, d_model=8, d_ff=8, num_heads=1, d_kv=4, num_encoder_layers=1, num_decoder_layers=1)


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "source"
    folder.mkdir()
    model = TrainedModel(TINY, random_params(TINY), Bytes(), Lineage(str(tmp_path / "runs/a/checkpoints/7"), step=7))
    write_folder(folder, as_stored(model), name="source")
    return folder


def environment(hub, home, token=TOKEN):
    found = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    found |= {"HF_ENDPOINT": hub.address, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1", "PYTHONPATH": str(ROOT)}
    return found | ({"HF_TOKEN": token} if token else {})


def command(source, *more):
    exported = source.parent / "exported"
    words = ["convert", str(source), str(exported), "--to", "hf", "--push", NAME, *more]
    return [sys.executable, "-c", "import sys; from spanloom.cli.main import main; sys.exit(main())", *words]


def run(hub, source, *more, token=TOKEN):
    done = subprocess.run(
        command(source, *more),
        env=environment(hub, source.parent / "home", token),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert TOKEN not in done.stdout + done.stderr
    return done


@pytest.fixture
def hub():
    if importlib.util.find_spec("huggingface_hub") is None:
        absent("the package huggingface_hub is not installed: pip install 'spanloom[hub]'")
    with model_hub() as found:
        yield found


def test_a_push_that_is_killed_goes_on_and_a_third_one_has_nothing_to_do(hub, source):
    hub.faults.append(Fault("POST", "/commit/", None, hang=True))
    process = subprocess.Popen(command(source, "--private"), env=environment(hub, source.parent / "home"))
    deadline = time.monotonic() + 300
    while not hub.count("POST .*/commit/") and time.monotonic() < deadline:
        assert process.poll() is None, "it pushes"
        time.sleep(0.05)
    process.kill()
    process.wait()
    hub.release.set()
    assert (source.parent / "exported" / "config.json").is_file(), "the folder is in place before anything is sent"
    assert set(hub.files(NAME)) == {".gitattributes"}, "nothing half there"

    sent = hub.count("PUT /storage")
    assert sent
    done = run(hub, source, "--private")
    assert done.returncode == 0, done.stderr
    assert hub.count("PUT /storage") == sent, "what had arrived is not sent again"
    assert hub.repos[NAME].private and hub.repos[NAME].messages == ["a, step 7"]
    assert f"pushed 7 files: {hub.address}/{NAME} (private)" in done.stdout
    weights = hub.files(NAME)["model.safetensors"]
    assert weights == (source / "model.safetensors").read_bytes()
    assert f'from_pretrained("{NAME}")' in hub.files(NAME)["README.md"].decode()

    again = run(hub, source, "--debug")
    assert again.returncode == 0 and "nothing to push: all is there already" in again.stdout
    assert len(hub.repos[NAME].messages) == 1


def test_what_the_hub_refuses_is_said_before_anything_is_converted(hub, source):
    done = run(hub, source, "--debug", token="hf_wrongOne")
    assert done.returncode == 1 and "the token is not accepted" in done.stderr
    assert "hf_wrongOne" not in done.stdout + done.stderr
    done = run(hub, source, token="")
    assert done.returncode == 1 and "there is no token to write with" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (source.parent / "exported").exists()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--private"], "--private goes with --push"),
        (["--branch", "v1"], "--branch goes with --push"),
        (["--push", ""], "--push is empty"),
        (["--push", "name"], "name it as user/name"),
        (["--push", "me/name", "--to", "t5x"], "--push publishes what Hugging Face loads: --to hf, not t5x"),
    ],
)
def test_flags_that_say_nothing_are_refused(source, capsys, flags, said):
    assert main(["convert", str(source), str(source.parent / "exported"), *flags]) in (1, 2)
    assert said in capsys.readouterr().err
    assert not (source.parent / "exported").exists()
