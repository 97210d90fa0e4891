"""Each format with any of its files hostile: an error that names the file, in no time and no memory, or a model."""

import json
import os
import resource
import time
from pathlib import Path

import pytest
from conversion.conversion_folders import FOLDERS, read
from hostile import damaged_copies
from safetensors.numpy import load_file, save_file

from spanloom.cli.main import main
from spanloom.conversion.errors import ConversionError
from spanloom.conversion.whole_file import read_whole
from spanloom.vocabularies.vocabulary import VocabularyError

SLOWEST, MOST_MEMORY = 20, 300 << 10  # seconds of one folder on a busy machine; KiB of all of them


def error_of(folder: Path) -> str | None:
    try:
        read(folder)
    except (ConversionError, VocabularyError) as error:
        return str(error)
    return None


@pytest.mark.parametrize("name", FOLDERS)
def test_a_hostile_file_is_an_error_that_names_its_folder(tmp_path, name):
    folder = tmp_path / "whole"
    folder.mkdir()
    FOLDERS[name](folder)
    read(folder)
    before, refused = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 0
    for how, place in damaged_copies(folder, tmp_path, seed=0, count=2, most_files=5):
        started = time.process_time()
        if said := error_of(place):
            assert str(place) in said, how
            refused += 1
        assert time.process_time() - started < SLOWEST, how
    assert refused > 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MOST_MEMORY


@pytest.mark.parametrize("outside", ["../secret.safetensors", "{there}", "..", "a/../../secret.safetensors", "x\0y"])
@pytest.mark.parametrize("kind", ["safetensors", "pytorch", "old pytorch"])
def test_an_index_reads_nothing_outside_its_folder_and_writes_nothing(tmp_path, kind, outside, capsys):
    folder, secret = tmp_path / "model", tmp_path / "secret.safetensors"
    folder.mkdir()
    FOLDERS[kind](folder)
    index = folder / ("model.safetensors.index.json" if kind == "safetensors" else "pytorch_model.bin.index.json")
    if kind == "safetensors":
        tensors = {name: one for file in folder.glob("*.safetensors") for name, one in load_file(file).items()}
        save_file(tensors, secret)
    else:
        (folder / "pytorch_model.bin").rename(secret)
        tensors = {"shared.weight": None}
    named = outside.format(there=secret)
    index.write_text(json.dumps({"weight_map": dict.fromkeys(tensors, named)}))
    before = sorted(tmp_path.rglob("*"))
    assert main(["convert", str(folder), str(tmp_path / "out"), "--to", "hf"]) == 1
    assert f"{index}: names a shard outside its folder" in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before


def test_links_of_a_download_cache_are_followed(tmp_path):
    """As the Hub's cache has them: each file a link to one that is named by its hash."""
    folder, blobs = tmp_path / "snapshot", tmp_path / "blobs"
    folder.mkdir()
    FOLDERS["safetensors"](folder)
    blobs.mkdir()
    for number, file in enumerate(sorted(folder.iterdir())):
        file.rename(blobs / str(number))
        file.symlink_to(f"../blobs/{number}")
    read(folder)


def test_what_is_no_file_or_too_large_is_not_begun(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    for name, message in (("pipe", "is no file"), ("device", "is no file")):
        with pytest.raises(ConversionError, match=message):
            read_whole(tmp_path / name)
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ConversionError, match="1,099,511,627,776 bytes"):
        read_whole(tmp_path / "sparse")
    (tmp_path / "config.json").write_bytes(b"{}")
    assert read_whole(tmp_path / "config.json") == b"{}"


@pytest.mark.parametrize("name", ["t5x", "orbax", "mesh tensorflow", "pytorch"])
def test_a_sparse_file_of_a_terabyte_is_an_error_or_left_alone(tmp_path, name):
    """Where a size is absurd nothing is made of it."""
    FOLDERS[name](tmp_path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for file in sorted(path for path in tmp_path.rglob("*") if path.is_file() and path.name != ".zarray")[:12]:
        content = file.read_bytes()
        os.truncate(file, 1 << 40)
        said = error_of(tmp_path)
        assert said is None or str(tmp_path) in said
        file.write_bytes(content)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MOST_MEMORY
