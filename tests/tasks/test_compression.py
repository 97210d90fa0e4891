import bz2
import gzip
import lzma
import os
import random

import pytest
import zstandard
from peak_memory import peak_growth

from spanloom.tasks import compression
from spanloom.tasks.read_report import BadInputError, ReadReport

PACKERS = {
    "gz": gzip.compress,
    "zst": lambda data: zstandard.ZstdCompressor().compress(data),
    "bz2": bz2.compress,
    "xz": lzma.compress,
}
# does not shrink to nothing, so that cutting the packed form cuts the text
TEXT = "\n".join(f"line {random.Random(n).getrandbits(64):x}" for n in range(15_000)).encode()


def read(path, report=None, block_size=compression.BLOCK):
    kind = compression.compression_of(str(path), report or ReadReport())
    return b"".join(compression.blocks(str(path), kind, block_size))


@pytest.mark.short
@pytest.mark.parametrize("ending", PACKERS)
@pytest.mark.parametrize("members", [1, 3])
def test_members_and_frames_are_read_through(tmp_path, ending, members):
    path = tmp_path / f"a.txt.{ending}"
    path.write_bytes(PACKERS[ending](TEXT) * members)
    assert read(path) == TEXT * members


@pytest.mark.parametrize("ending", PACKERS)
def test_data_cut_off_says_how_far_it_reads(tmp_path, ending):
    packed = PACKERS[ending](TEXT)
    path = tmp_path / f"a.txt.{ending}"
    for cut in (len(packed) - 1, len(packed) // 2, 11):
        path.write_bytes(packed[:cut])
        got = []
        with pytest.raises(
            BadInputError, match=r"a\.txt\..*ends early: the file is cut off, within the first"
        ) as failure:
            got.extend(compression.blocks(str(path), compression.compression_of(str(path), ReadReport())))
        got = b"".join(got)
        assert TEXT.startswith(got)
        assert f"after {len(got):,} decompressed bytes" in str(failure.value)
        assert failure.value.reason == "damaged compressed file"


@pytest.mark.parametrize("ending", PACKERS)
def test_a_second_member_cut_off_is_noticed(tmp_path, ending):
    path = tmp_path / f"a.{ending}"
    path.write_bytes(PACKERS[ending](TEXT) + PACKERS[ending](TEXT)[:-3])
    with pytest.raises(BadInputError, match=r"ends early.*and 1 whole part"):
        read(path)


@pytest.mark.parametrize("ending", ["gz", "bz2", "xz"])
def test_a_flipped_bit_is_noticed(tmp_path, ending):
    packed = bytearray(PACKERS[ending](TEXT))
    packed[len(packed) // 2] ^= 0x10
    path = tmp_path / f"a.{ending}"
    path.write_bytes(packed)
    with pytest.raises(BadInputError, match="is damaged"):
        read(path)


def test_what_stands_before_damage_is_given_out(tmp_path):
    packed = bytearray(gzip.compress(TEXT))
    packed[len(packed) // 2] ^= 0xFF
    path = tmp_path / "a.gz"
    path.write_bytes(packed)
    got = []
    with pytest.raises(BadInputError, match="is damaged"):
        got.extend(compression.blocks(str(path), "gzip"))
    assert len(b"".join(got)) > 0.3 * len(TEXT)


def test_zero_padding_after_gzip_is_no_damage_other_bytes_are(tmp_path):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(TEXT) + bytes(1000))
    assert read(path) == TEXT
    path.write_bytes(gzip.compress(TEXT) + b"surprise")
    with pytest.raises(BadInputError, match="is damaged"):
        read(path)


def test_zstd_frames_for_decoration_are_passed_over(tmp_path):
    frame = zstandard.ZstdCompressor().compress(b"text")
    skippable = b"\x50\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"notes"
    path = tmp_path / "a.zst"
    path.write_bytes(skippable + frame + skippable + frame)
    assert read(path) == b"texttext"


def test_zstd_of_long_windows_is_read(tmp_path):
    parameters = zstandard.ZstdCompressionParameters(window_log=29, enable_ldm=True)
    path = tmp_path / "a.zst"
    path.write_bytes(zstandard.ZstdCompressor(compression_params=parameters).compress(TEXT))
    assert read(path) == TEXT


def test_a_small_file_of_much_does_not_fill_the_memory(tmp_path):
    path = tmp_path / "a.bz2"
    path.write_bytes(bz2.compress(bytes(100_000_000)))
    assert path.stat().st_size < 1000
    prepare = "from spanloom.tasks.compression import blocks"
    code = "assert sum(map(len, blocks(sys.argv[3], 'bzip2'))) == 100_000_000"
    assert peak_growth(prepare, code, str(path)) < 40
    assert peak_growth(prepare, "held = list(blocks(sys.argv[3], 'bzip2'))", str(path)) > 90, "it is measured"


def test_content_decides_and_a_name_that_says_otherwise_is_noted(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(gzip.compress(TEXT))
    report = ReadReport()
    assert read(path, report) == TEXT
    assert "a.txt: read as gzip as its content says, although its name says plain" in report.describe()


def test_a_name_that_promises_compression_must_keep_it(tmp_path):
    path = tmp_path / "a.txt.gz"
    path.write_bytes(b"plain text\n")
    with pytest.raises(BadInputError, match=r"the name says gzip, but the content is not.*b'plain te'.*rename"):
        read(path)


def test_archives_are_refused_by_name(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"PK\x03\x04rest")
    with pytest.raises(BadInputError, match=r"zip archive.*Unpack"):
        read(path)


def test_text_that_begins_like_bzip2_is_text(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"BZh is an odd beginning\n")
    report = ReadReport()
    assert read(path, report) == b"BZh is an odd beginning\n" and not report.notes


def test_a_file_that_cannot_be_opened_says_why(tmp_path):
    with pytest.raises(BadInputError, match=r"cannot be opened: Is a directory"):
        read(tmp_path)
    with pytest.raises(BadInputError, match=r"cannot be opened: No such file"):
        read(tmp_path / "absent")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_without_permission_says_so(tmp_path):
    path = tmp_path / "a.txt"
    path.touch(mode=0)
    with pytest.raises(BadInputError, match="Permission denied"):
        read(path)
