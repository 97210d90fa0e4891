import json
import zlib

import pytest

from spanloom.training.integrity import MANIFEST, DamagedError, seal, verify

pytestmark = pytest.mark.short


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "big").write_bytes(bytes(range(256)) * 100)
    (tmp_path / "small").write_text("text")
    assert seal(tmp_path) == 25604
    return tmp_path


def test_whole(directory):
    verify(directory)


def test_every_kind_of_damage_names_the_file(directory):
    big, content = directory / "inner" / "big", (directory / "inner" / "big").read_bytes()
    for damaged, words in [
        (content[:-1], "big has 25599 bytes, but 25600 were written"),
        (b"\xff" + content[1:], "big holds other bytes"),
        (b"", "big has 0 bytes"),
    ]:
        big.write_bytes(damaged)
        with pytest.raises(DamagedError, match=words):
            verify(directory)
    big.unlink()
    with pytest.raises(DamagedError, match="big is missing"):
        verify(directory)


@pytest.mark.parametrize("cut", [0, 1, 50, -1])
def test_a_cut_manifest_is_damage_too(directory, cut):
    path = directory / MANIFEST
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(DamagedError, match=MANIFEST):
        verify(directory)


def test_a_changed_manifest_is_damage_too(directory):
    path = directory / MANIFEST
    path.write_text(path.read_text().replace("25600", "25601"))
    with pytest.raises(DamagedError, match=f"{MANIFEST} holds other bytes"):
        verify(directory)


@pytest.mark.parametrize("files", [[], "x", 3, None, {"a": 1}, {"a": {}}, {"a": {"bytes": "1", "crc32": "2"}}])
def test_a_manifest_with_a_right_sum_and_other_content_is_damage_too(directory, files):
    text = json.dumps(files, indent=1, sort_keys=True)
    (directory / MANIFEST).write_text(json.dumps({"files": files, "crc32": zlib.crc32(text.encode())}))
    with pytest.raises(DamagedError, match=f"{MANIFEST} is not the list"):
        verify(directory)


@pytest.mark.parametrize("content", ["[" * 200_000, "[]", "7", '{"files": {}}', "{}"])
def test_a_manifest_that_is_none_is_damage_too(directory, content):
    (directory / MANIFEST).write_text(content)
    with pytest.raises(DamagedError, match=f"{MANIFEST} is not the list"):
        verify(directory)


def test_no_manifest(tmp_path):
    with pytest.raises(DamagedError, match="is missing"):
        verify(tmp_path)
