"""An export is published whole, once, on top of what is its own, and says what stands in the way without a token."""

import json
import signal
import sys
import tempfile
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from conversion.conftest import random_params
from golden_data import absent
from model_hub import TOKEN, USER, Fault, model_hub
from same_weights import different_weights

from spanloom.conversion import hub_push
from spanloom.conversion.hub_errors import HubError, ask
from spanloom.conversion.hub_push import Repository, check_access, check_name, push
from spanloom.conversion.huggingface import import_hf, read_lineage, write_folder
from spanloom.conversion.stored_model import as_stored
from spanloom.conversion.trained_model import Lineage, TrainedModel
from spanloom.model.params import flatten
from spanloom.pipeline.interrupts import Terminated
from spanloom.settings.model import Model
from spanloom.settings.run import Run
from spanloom.settings.task import Task, TextFiles
from spanloom.settings.vocabulary import Bytes

NAME = f"{USER}/novels"
TINY = Model(vocab_size=384, d_model=16, d_ff=24, num_heads=2, d_kv=4, num_encoder_layers=1, num_decoder_layers=1)
RUN = Run(name="novels", task=Task("novels", TextFiles(("/home/anna/secret/*.txt",))), model=TINY, start="/home/anna/s")

UNKNOWN = Lineage("/home/anna/elsewhere")


def library():
    try:
        from huggingface_hub import constants, utils
    except ImportError:
        absent("the package huggingface_hub is not installed: pip install 'spanloom[hub]'")
    return constants, utils


@pytest.fixture
def hub(monkeypatch, tmp_path):
    constants, utils = library()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "none"))
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    utils.disable_progress_bars()
    with model_hub() as found:
        monkeypatch.setattr(constants, "ENDPOINT", found.address)  # read from HF_ENDPOINT when it was imported
        template = constants.HUGGINGFACE_CO_URL_TEMPLATE.split("/{repo_id}")[1]
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", f"{found.address}/{{repo_id}}{template}")
        yield found
        assert all("GET /storage" not in line for line in found.asked)


@pytest.fixture
def waits(monkeypatch):
    """Seconds that were slept in place of waiting, here and in the library."""
    made: list[float] = []
    monkeypatch.setattr(time, "sleep", made.append)
    return made


@pytest.fixture
def export(tmp_path):
    """A function that exports a checkpoint of a run."""

    def make(run: str = "a", step: int = 1, seed: int | None = None, shard: int | None = None):
        params = random_params(TINY, step if seed is None else seed)
        lineage = Lineage(f"/home/anna/runs/{run}/checkpoints/{step}", RUN, step, f"{run}{step}")
        folder = tmp_path / f"{run}-{step}-{seed}"
        folder.mkdir()
        source = as_stored(TrainedModel(TINY, params, Bytes(), lineage))
        write_folder(folder, source, name=NAME, max_shard_bytes=shard)
        return folder

    return make


def written(folder) -> dict[str, bytes]:
    """What must be published of an export, its mark apart."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "spanloom.json"}


def there(hub, branch="main") -> dict[str, bytes]:
    files = hub.files(NAME, branch)
    return {name: content for name, content in files.items() if name not in ("spanloom.json", ".gitattributes")}


def test_a_model_is_published_whole_and_a_second_time_nothing_is_sent(hub, export):
    folder = export()
    (folder / "notes.txt").write_text("not of the export")
    check_access(Repository(NAME, private=True), read_lineage(folder))
    assert hub.repos == {}, "checks change nothing"
    told: list[str] = []
    pushed = push(folder, Repository(NAME, private=True), told.append)
    assert there(hub) == {name: data for name, data in written(folder).items() if name != "notes.txt"}
    assert hub.repos[NAME].private and "(private)" in pushed.describe()
    assert hub.repos[NAME].messages == ["a, step 1"]
    assert pushed.url == f"{hub.address}/{NAME}" and len(pushed.sent) == 7
    assert told[0].startswith("pushing 7 of 7 files, 0.")

    hub.asked.clear()
    again = push(folder, Repository(NAME))
    assert again.sent == () and "nothing to push: all is there already" in again.describe()
    assert {line.split()[0] for line in hub.asked} <= {"GET", "HEAD"}


def test_nothing_that_is_published_tells_of_the_machine(hub, export):
    folder = export()
    push(folder, Repository(NAME))
    assert all(b"anna" not in content for content in hub.files(NAME).values())
    assert b"/home/anna" in (folder / "spanloom.json").read_bytes(), "the folder itself says it"
    copy = folder.parent / "copy"
    copy.mkdir()
    for name, content in hub.files(NAME).items():
        (copy / name).write_bytes(content)
    lineage = read_lineage(copy)
    assert (lineage.step, lineage.checkpoint, lineage.run.name) == (1, "a1", "novels")
    assert lineage.run.task.source.files == ("*.txt",)
    assert different_weights(import_hf(copy).params, import_hf(folder).params) == []


def test_a_later_checkpoint_replaces_an_earlier_one_with_its_shards(hub, export):
    first, later = export(step=1, shard=4000), export(step=2)
    push(first, Repository(NAME))
    assert len([name for name in there(hub) if "-of-" in name]) > 1
    before = len(hub.asked)
    pushed = push(later, Repository(NAME))
    assert there(hub) == written(later)
    assert "model.safetensors.index.json" in pushed.removed
    assert "config.json" not in pushed.sent, "what is the same is not sent"
    assert not any("Authorization" in line for line in hub.asked[before:])


def test_sigterm_leaves_no_folder_among_the_temporary_ones(tmp_path, monkeypatch):
    pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    asked = SimpleNamespace(hf_hub_download=lambda *_, **__: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(Terminated):
        hub_push._mark(asked, "user/name", "0" * 40)
    assert list(tmp_path.iterdir()) == []


def test_another_model_is_not_overwritten_unless_told(hub, export):
    mine, other = export("a"), export("b", seed=5)
    push(mine, Repository(NAME))
    before = dict(hub.files(NAME))
    for act in (
        lambda: check_access(Repository(NAME), read_lineage(other)),
        lambda: push(other, Repository(NAME)),
    ):
        with pytest.raises(HubError, match=r"holds another model \(a/checkpoints/1\).*--overwrite"):
            act()
    assert hub.files(NAME) == before
    push(other, Repository(NAME, overwrite=True))
    assert there(hub) == written(other)


def test_weights_of_a_strange_model_do_not_stay_to_be_loaded(hub, export):
    folder = export(shard=4000)
    strange = {"model.safetensors": b"x", "tokenizer.json": b"{}", "pytorch_model.bin": b"y"}
    hub.put(NAME, strange)
    with pytest.raises(HubError, match=r"no export of Spanloom wrote \(model.safetensors, pytorch_model.bin, tok"):
        push(folder, Repository(NAME))
    push(folder, Repository(NAME, overwrite=True))
    assert there(hub) == written(folder)


@pytest.mark.parametrize("mark", [b"{", b"[]", b"null", b'{"files": 3, "home": null}', b'{"files": ["../x"]}'])
def test_a_strange_mark_is_of_nobody(hub, export, mark):
    folder = export()
    hub.put(NAME, {"spanloom.json": mark})
    with pytest.raises(HubError, match="--overwrite"):
        push(folder, Repository(NAME))
    push(folder, Repository(NAME, overwrite=True))
    assert there(hub) == written(folder)


def test_a_card_that_was_edited_on_the_hub_stays(hub, export):
    first, later = export(step=1), export(step=2)
    push(first, Repository(NAME))
    hub.put(NAME, {"README.md": b"---\nlicense: mit\n---\n"})
    for _ in range(2):
        pushed = push(later, Repository(NAME))
        assert there(hub) == written(later) | {"README.md": b"---\nlicense: mit\n---\n"}
        assert "README.md was edited on the Hub and stays" in pushed.describe()
    push(later, Repository(NAME, overwrite=True))
    assert there(hub) == written(later)


def test_a_branch_is_made_and_the_others_stay(hub, export):
    first, later = export(step=1), export(step=2)
    push(first, Repository(NAME))
    pushed = push(later, Repository(NAME, branch="step-2"))
    assert there(hub) == written(first) and there(hub, "step-2") == written(later)
    assert pushed.url.endswith(f"/{NAME}/tree/step-2")
    assert push(later, Repository(NAME, branch="step-2")).sent == ()
    push(first, Repository(f"{USER}/new", branch="v1"))
    assert "config.json" in hub.files(f"{USER}/new", "v1") and "config.json" not in hub.files(f"{USER}/new")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("novels", "user/name"),
        ("me/a/b", "user/name"),
        ("me/a b", "user/name"),
        ("me/", "user/name"),
        ("../x", "user/name"),
        ("me/a--b", "user/name"),
        ("me/a.git", "user/name"),
        ("me/" + "x" * 99, "at most 96"),
        ("https://x/me/a", "user/name"),
    ],
)
def test_a_name_that_is_none_is_refused_before_anything_is_asked(hub, name, said):
    with pytest.raises(HubError, match=said):
        check_access(Repository(name), UNKNOWN)
    assert hub.asked == []


@pytest.mark.parametrize("name", ["me/a", "Some-Org/By_T5.small-2", "a1/b", "me/novels_"])
def test_names_of_the_hub_are_names(name):
    check_name(name)
    library()[1].validate_repo_id(name)


def test_no_token(hub, monkeypatch):
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(HubError, match="no token to write with: set HF_TOKEN"):
        check_access(Repository(NAME), UNKNOWN)
    assert hub.asked == []


@pytest.mark.parametrize("token", ["hf_tökén", "hf_to\u200bken"])
def test_a_token_that_no_request_can_carry(hub, monkeypatch, export, waits, token):
    monkeypatch.setenv("HF_TOKEN", token)
    for act in (lambda: check_access(Repository(NAME), UNKNOWN), lambda: push(export(), Repository(NAME))):
        with pytest.raises(HubError, match=r"the token holds characters that no token has. Copy it anew") as caught:
            act()
        assert token not in str(caught.value) and "codec" not in str(caught.value)
    assert hub.asked == [] and waits == []


def test_no_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(HubError, match=r"pip install 'spanloom\[hub\]'"):
        check_access(Repository(NAME), UNKNOWN)


def test_offline(hub, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(HubError, match=r"HF_HUB_OFFLINE is set.*Unset it"):
        check_access(Repository(NAME), UNKNOWN)


def test_a_token_that_is_not_known(hub, monkeypatch, export):
    monkeypatch.setenv("HF_TOKEN", "hf_wrongOne")
    folder = export()
    for act in (lambda: check_access(Repository(NAME), UNKNOWN), lambda: push(folder, Repository(NAME))):
        with pytest.raises(HubError, match=r"the token is not accepted. Make a new one") as caught:
            act()
        assert "hf_wrongOne" not in str(caught.value)
    assert folder.is_dir() and hub.repos == {}


def test_a_token_that_may_only_read(hub):
    hub.role = "read"
    with pytest.raises(HubError, match="may only read"):
        check_access(Repository(NAME), UNKNOWN)


def test_the_name_of_somebody_else(hub, export):
    with pytest.raises(
        HubError, match=r"somebody is neither you nor an organisation of yours. Yours are me/x, group/x"
    ):
        check_access(Repository("somebody/x"), UNKNOWN)
    check_access(Repository("group/x"), UNKNOWN)
    hub.role = "fineGrained"  # such a token does not tell of organisations, so only the Hub can
    check_access(Repository("somebody/x"), UNKNOWN)
    with pytest.raises(HubError, match=r"your token may not write there.*You don't have the rights.*stays"):
        push(export(), Repository("somebody/x"))
    hub.put("somebody/x", {".gitattributes": b"#"})
    with pytest.raises(HubError, match="your token may not write there"):
        push(export("b"), Repository("somebody/x"))


def test_a_public_repository_does_not_become_private(hub, export):
    folder = export()
    push(folder, Repository(NAME))
    for act in (lambda repository: check_access(repository, UNKNOWN), lambda repository: push(folder, repository)):
        with pytest.raises(HubError, match="is public, and --private was asked for"):
            act(Repository(NAME, private=True))


ONE_FAILURE = [
    Fault("GET", "^/api/models", 503),
    Fault("GET", "^/api/models", None),
    Fault("POST", "create$", 500),
    Fault("POST", "create$", None, after=True),
    Fault("POST", "validate", 502),
    Fault("POST", "/preupload/", 503),
    Fault("POST", "/batch", 500),
    Fault("PUT", "^/storage", 500),
    Fault("PUT", "^/storage", None),
    Fault("POST", "^/storage", None),
    Fault("POST", "/commit/", 504),
    Fault("POST", "/commit/", None),
    Fault("POST", "/commit/", None, after=True),
    Fault("POST", "/commit/", 500, after=True),
    Fault("POST", "/commit/", 412),
    Fault("POST", "/commit/", 429),
]


@pytest.mark.parametrize("fault", ONE_FAILURE, ids=lambda f: f"{f.method}-{f.path}-{f.status}-{f.after}")
def test_what_fails_once_is_tried_again_and_committed_once(hub, export, waits, fault):
    folder = export()
    hub.faults.append(replace(fault))
    told: list[str] = []
    push(folder, Repository(NAME), told.append)
    assert hub.faults == [] and waits, "it did fail"
    assert there(hub) == written(folder)
    assert hub.repos[NAME].messages == ["a, step 1"]
    assert TOKEN not in "".join(told)


def test_large_files_that_arrived_are_not_sent_again(hub, export, waits):
    """What a killed push left behind is what a failed one leaves: content without a commit."""
    folder = export(shard=4000)
    shards = [name for name in written(folder) if name.endswith(".safetensors")]
    hub.faults.append(Fault("POST", "/commit/", 400, times=1))
    with pytest.raises(HubError, match="the Hub refuses it"):
        push(folder, Repository(NAME))
    assert len(hub.stored) >= len(shards) > 1
    assert there(hub) == {}, "nothing half there"
    hub.asked.clear()
    push(folder, Repository(NAME))
    assert hub.count("storage") == 0
    assert there(hub) == written(folder)


def test_a_network_that_stays_away_ends_with_what_to_do(hub, export, waits):
    folder = export()
    hub.faults.append(Fault("GET", "^/api/models", None, times=1000))
    told: list[str] = []
    with pytest.raises(HubError, match=r"cannot be reached, or broke off.*a-1-None is whole and stays: give the same"):
        push(folder, Repository(NAME), told.append)
    assert len(told) == 3 and sum(waits) < 60
    assert import_hf(folder)


def test_no_server_at_all(hub, monkeypatch, waits):
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(HubError, match="cannot be reached"):
        check_access(Repository(NAME), UNKNOWN)


@pytest.mark.parametrize("place", ["create$", "/preupload/", "/batch", "/storage/", "/commit/"])
def test_no_error_tells_the_token(hub, export, waits, place):
    folder = export()
    for status in (400, 401, 402, 403, 404, 413, 422, 500, 503):
        hub.faults[:] = [Fault("PUT" if "storage" in place else "POST", place, status, times=1000)]
        told: list[str] = []
        with pytest.raises(HubError) as caught:
            push(folder, Repository(NAME), told.append)
        assert TOKEN not in str(caught.value) + "".join(told)
        assert str(status) in str(caught.value)
        chain = [caught.value.__cause__, caught.value.__context__]
        assert all(one is None or isinstance(one, HubError) for one in chain)


def test_what_did_not_arrive_as_sent_is_noticed(hub, export, monkeypatch):
    monkeypatch.setattr(hub, "commit", lambda repo, branch, files: type(hub).commit(repo, branch, {"config.json": "0"}))
    hub.stored["0"] = b""
    with pytest.raises(HubError, match=r"after the commit .* are not there as sent"):
        push(export(), Repository(NAME))


def test_a_folder_that_is_no_whole_export_is_not_published(hub, export):
    for strange in ("gone.bin", "../secret"):
        folder = export(strange[:4].strip("./"))
        mark = json.loads((folder / "spanloom.json").read_text())
        (folder / "spanloom.json").write_text(json.dumps(mark | {"files": [*mark["files"], strange]}))
        (folder.parent / "secret").write_text("mine")
        with pytest.raises(ValueError, match="is not a whole export"):
            push(folder, Repository(NAME))
    assert hub.asked == []


def test_errors_of_files_here_are_what_they_are():
    def full():
        raise OSError(28, "No space left on device", "/tmp/x")

    with pytest.raises(OSError, match="No space left"):
        ask(NAME, full)


def test_weights_come_back_as_they_were(hub, export):
    folder = export(shard=6000)
    push(folder, Repository(NAME))
    back = folder.parent / "back"
    back.mkdir()
    for name, content in hub.files(NAME).items():
        (back / name).write_bytes(content)
    for name, array in flatten(import_hf(folder).params).items():
        assert np.array_equal(array, flatten(import_hf(back).params)[name]), name


def test_the_library_is_asked_for_nothing_by_its_import():
    assert "huggingface_hub" not in vars(hub_push)
