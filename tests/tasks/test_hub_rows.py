import json
import os
import subprocess
import sys

import numpy as np
import pytest
from golden_data import ROOT, absent
from hub_server import NAME, TOKEN, hub_server

from spanloom.settings.row_sources import HuggingFaceDataset
from spanloom.tasks import hub_rows
from spanloom.tasks.read_report import BadInputError, ReadReport
from spanloom.tasks.remote_files import retried
from spanloom.tasks.row_sources import read_row_source, row_source_bytes, row_source_fingerprint

ROWS = [{"text": f"größe {n}", "label": n % 2, "meta": {"ids": [n, 1]}, "none": None} for n in range(40)]


@pytest.fixture
def datasets(tmp_path, monkeypatch):
    try:
        import datasets
    except ImportError:
        absent("the package datasets is not installed: pip install 'spanloom[hub]'")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()
    return datasets


@pytest.fixture
def saved(datasets, tmp_path):
    whole = datasets.Dataset.from_list(ROWS)
    whole.save_to_disk(tmp_path / "one", num_shards=2)
    datasets.DatasetDict(train=whole, test=whole.select(range(3))).save_to_disk(tmp_path / "both")
    (tmp_path / "files").mkdir()
    for name, rows in (("train", ROWS), ("validation", ROWS[:5])):
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / "files" / f"{name}.jsonl").write_text(lines)
    return tmp_path


def read(source, split="train"):
    return list(read_row_source(source, split, ReadReport()))


def test_what_save_to_disk_wrote(saved):
    one, both = str(saved / "one"), str(saved / "both")
    assert read(HuggingFaceDataset(one)) == ROWS
    assert read(HuggingFaceDataset(one, split="train[10%:20%]+train[-1:]")) == [*ROWS[4:8], ROWS[-1]]
    source = HuggingFaceDataset(both, heldout_split="test")
    assert read(source) == ROWS and read(source, "heldout") == ROWS[:3]
    assert read(HuggingFaceDataset(both, take=4)) == ROWS[:4]
    assert row_source_bytes(source, ["train", "heldout"]) > row_source_bytes(source, ["train"]) > 500
    report = ReadReport()
    assert list(read_row_source(source, "train", report)) == ROWS
    assert report.files == 1 and report.file_bytes == row_source_bytes(source, ["train"])


def test_arrow_files(saved):
    assert read(HuggingFaceDataset(f"{saved}/one/*.arrow")) == ROWS
    with pytest.raises(BadInputError, match="arrow files have no splits, and 'test' is asked for"):
        read(HuggingFaceDataset(f"{saved}/one/*.arrow", split="test"))


def test_a_folder_of_data_files_whole_and_streamed(saved):
    files = str(saved / "files")
    assert read(HuggingFaceDataset(files, heldout_split="validation")) == ROWS
    assert read(HuggingFaceDataset(files, heldout_split="validation"), "heldout") == ROWS[:5]
    assert read(HuggingFaceDataset(files, split="validation[:2]")) == ROWS[:2]
    assert read(HuggingFaceDataset(files, streaming=True, take=7)) == ROWS[:7]


def test_what_is_on_disk_is_no_stream(saved):
    with pytest.raises(BadInputError, match="is on disk already: there is nothing to stream"):
        read(HuggingFaceDataset(str(saved / "one"), streaming=True, take=1))


@pytest.mark.parametrize(
    ("named", "more", "message"),
    [
        ("both", {"split": "tset"}, r"no split 'tset' here; did you mean test\?"),
        ("one", {"split": "test"}, "holds the split 'train' alone, not 'test'"),
        ("files", {"split": "validatoin"}, r"no split 'validatoin'; did you mean validation\?.*train, validation"),
        ("files", {"config": "en"}, r"files \(en\): BuilderConfig 'en' not found"),
        ("both", {"split": "train["}, "is no split: write train"),
        ("none", {}, "there is no such folder"),
        ("none/*.arrow", {}, "no file matches"),
    ],
)
def test_what_is_not_there_says_what_is(saved, named, more, message):
    with pytest.raises(BadInputError, match=message):
        read(HuggingFaceDataset(f"{saved}/{named}", **more))


def test_no_name_and_no_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(BadInputError, match=r"need the package `datasets`.*pip install 'spanloom\[hub\]'"):
        read(HuggingFaceDataset("squad"))


def test_the_fingerprint_follows_rows_and_settings_but_not_the_folder(saved, datasets):
    import shutil

    one = str(saved / "one")
    before = row_source_fingerprint(HuggingFaceDataset(one))
    assert row_source_fingerprint(HuggingFaceDataset(one)) == before
    assert row_source_fingerprint(HuggingFaceDataset(one, split="train[:5]")) != before
    shutil.copytree(one, saved / "moved")
    assert row_source_fingerprint(HuggingFaceDataset(str(saved / "moved"))) == before
    shutil.rmtree(one)
    datasets.Dataset.from_list(ROWS[::-1]).save_to_disk(one)
    assert row_source_fingerprint(HuggingFaceDataset(one)) != before
    files = HuggingFaceDataset(str(saved / "files"))
    before = row_source_fingerprint(files)
    (saved / "files" / "train.jsonl").write_text(json.dumps(ROWS[0]) + "\n")
    assert row_source_fingerprint(files) != before


def test_a_token_never_stands_in_an_error(monkeypatch):
    monkeypatch.setattr("huggingface_hub.get_token", lambda: TOKEN)

    def ask():
        raise ValueError(f"401 for {{'authorization': 'Bearer {TOKEN}'}}")

    with pytest.raises(BadInputError, match="Bearer <token>") as caught:
        hub_rows.asked(HuggingFaceDataset("me/private"), ask)
    assert TOKEN not in repr(caught.value) and caught.value.__cause__ is None


def test_a_token_that_no_request_can_carry_is_said(monkeypatch):
    """Of a data set on the Hub, and of a file there, which is not tried again and again."""
    hub = pytest.importorskip("huggingface_hub")
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_TOKEN", token := "hf_tökén")
    api = hub.HfApi("http://127.0.0.1:9")
    source = HuggingFaceDataset("me/private")
    for ask in (
        lambda: hub_rows.asked(source, lambda: api.dataset_info(source.dataset)),
        lambda: retried("hf://datasets/me/a.txt", api.whoami, ReadReport()),
    ):
        with pytest.raises(BadInputError, match=r"the token holds characters that no token has\. Copy it") as caught:
            ask()
        assert token not in repr(caught.value) and caught.value.__cause__ is None
    assert waits == []


PROGRAM = """
import json, sys
from spanloom.settings.row_sources import HuggingFaceDataset
from spanloom.settings.serialize import to_json
from spanloom.tasks.read_report import ReadReport
from spanloom.tasks.row_sources import read_row_source, row_source_fingerprint

made = []
for more in ({}, {"heldout_split": "test"}, {"streaming": True, "take": 5}, {"split": "tset"}):
    source = HuggingFaceDataset("me/private", **more)
    try:
        rows = list(read_row_source(source, "train", ReadReport()))
        made.append([len(rows), rows[-1], row_source_fingerprint(source), to_json(source)])
    except ValueError as error:
        made.append(str(error))
print(json.dumps(made))
"""


def of_hub(address, home, token):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    environment |= {"HF_ENDPOINT": address, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1"}
    environment |= {"HF_TOKEN": token, "PYTHONPATH": str(ROOT), "HF_HUB_DISABLE_TELEMETRY": "1"}
    program = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stdout + done.stderr


def test_a_private_data_set_of_the_hub(datasets, tmp_path):
    with hub_server() as address:
        made, said = of_hub(address, tmp_path / "home", TOKEN)
        whole, both, stream, typo = made
        assert whole[:2] == [50, {"text": "line 49"}] and both[:2] == whole[:2]
        assert stream[:2] == [5, {"text": "line 4"}]
        assert len({one[2] for one in (whole, both, stream)}) == 3
        assert "no split 'tset'; did you mean test?" in typo
        again, _ = of_hub(address, tmp_path / "another", TOKEN)
        assert again == made  # the fingerprints too: another machine's cache
        written = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert written and all(TOKEN.encode() not in path.read_bytes() for path in written)
        assert TOKEN not in said

        refused, said = of_hub(address, tmp_path / "nobody", "hf_wrong")
        assert all(NAME in one and "private ones need HF_TOKEN" in one for one in refused)
        assert "hf_wrong" not in said


def test_a_data_set_that_was_damaged_on_disk_is_named(saved):
    (path, *_) = sorted((saved / "one").glob("*.arrow"))
    content = path.read_bytes()
    offsets = np.arange(3, dtype="<i4") * len("größe 0".encode())  # of the first texts
    place = content.index(offsets.tobytes()) + 4
    path.write_bytes(content[:place] + b"\xff\xff\xff\xff" + content[place + 4 :])
    with pytest.raises(BadInputError, match=r"one: the data set is damaged \(.*Get it again"):
        list(read_row_source(HuggingFaceDataset(str(saved / "one")), "train", ReadReport()))
