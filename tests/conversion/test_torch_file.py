import random
import struct
import zipfile

import ml_dtypes
import numpy as np
import pytest
from torch_files import ORDERED, table, text, view, write_archive, write_old_torch, write_torch

from spanloom.conversion.errors import ConversionError
from spanloom.conversion.torch_file import read_header

DRAW = np.random.default_rng(0)
ARRAYS = {
    "shared.weight": DRAW.random((5, 4), np.float32),
    "half": DRAW.random((2, 3)).astype(np.float16),
    "brain": DRAW.random((2, 2)).astype(ml_dtypes.bfloat16),
    "double": DRAW.random(3),
    "none": np.zeros((0, 4), np.float32),
}


@pytest.mark.parametrize("write", [write_torch, write_old_torch])
def test_tensors_of_each_type(tmp_path, write):
    found = read_header(write(tmp_path / "pytorch_model.bin", ARRAYS))
    assert found.keys() == ARRAYS.keys()
    assert [found[name].dtype for name in ARRAYS] == ["F32", "F16", "BF16", "F64", "F32"]
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(found[name].load(), array.astype(np.float32))
    np.testing.assert_array_equal(found["shared.weight"].load_rows(2, 4), ARRAYS["shared.weight"][2:4])


def test_views_of_one_storage(tmp_path):
    whole = np.arange(12, dtype=np.float32).reshape(3, 4)
    views = {
        "whole": view("0", whole),
        "turned": view("0", whole.T, strides=(1, 4), count=12),
        "part": view("0", whole[1:3, 1:3], offset=5, strides=(4, 1), count=12),
    }
    found = read_header(write_archive(tmp_path / "a.bin", table(views), {"0": whole.tobytes()}))
    np.testing.assert_array_equal(found["turned"].load(), whole.T)
    np.testing.assert_array_equal(found["turned"].load_rows(1, 3), whole.T[1:3])
    np.testing.assert_array_equal(found["part"].load(), whole[1:3, 1:3])


def test_nothing_is_run(tmp_path):
    """Not a call, not an import, whatever the pickle asks for."""
    flag = tmp_path / "flag"
    program = b"cposix\nsystem\n(" + text(f"touch {flag}") + b"tR."
    for content in (
        program,
        b"\x80\x02}" + text("a") + program[:-1] + b"s.",
        b"\x80\x04" + text("posix") + text("system") + b"\x93(" + text(f"touch {flag}") + b"tR.",
        b"(" + text(f"touch {flag}") + b"iposix\nsystem\n.",
        b"(cposix\nsystem\n" + text(f"touch {flag}") + b"o.",
        b"cbuiltins\nobject\n)\x81.",
        b"\x82\x01.",
        b"c__builtin__\neval\n(" + text("1") + b"tR.",
        ORDERED + text("x") + b"Q.",
    ):
        with pytest.raises(ConversionError):
            read_header(write_archive(tmp_path / "a.bin", content, {}))
    assert not flag.exists()


ONE = np.ones((2, 2), np.float32)


@pytest.mark.parametrize(
    ("program", "storages", "message"),
    [
        (table({"a": view("0", ONE)}), {}, "beyond its storage"),
        (table({"a": view("0", ONE)}), {"0": bytes(12)}, "a of shape .* lies beyond its storage of 12 bytes"),
        (table({"a": view("0", ONE, offset=1)}), {"0": bytes(16)}, "lies beyond its storage"),
        (table({"a": view("0", ONE, strides=(2**30, 1))}), {"0": bytes(16)}, "lies beyond its storage"),
        (table({"a": view("0", np.ones((2, 2), np.int64))}), {"0": bytes(32)}, "a LongStorage; weights must be one of"),
        (table({"a": view("0", ONE, strides=(0, 0), count=1)}), {"0": bytes(4)}, "no view of a storage"),
        (table({"a": text("b")}), {}, "a is no tensor, but a str"),
        (b"\x80\x02].", {}, "holds no table of tensors"),
        (b"\x80\x02}K\x05" + view("0", ONE) + b"s.", {"0": bytes(16)}, "holds 5 where a tensor's name belongs"),
        (b"\x80\x02}" + text("state_dict") + b"}\x88K\x05ss.", {}, "holds True where a tensor's name belongs"),
        (b"cnumpy\nndarray\n)R.", {}, "a call of numpy.ndarray; only tables of tensors"),
        (b"\x80\x02}", {}, "not a whole checkpoint"),
        (b"\x80\x02t.", {}, "TUPLE where there is nothing for it"),
        (b"\x80\x02j\xff\xff\xff\x7f.", {}, "LONG_BINGET where there is nothing"),
        (b"\x80\x04\x8d" + struct.pack("<Q", 2**62) + b"a.", {}, "not a whole checkpoint"),
        (b"\x80\x02ctorch\nSize\n(" + b"](" + b"K\x01" * 9 + b"etR.", {}, "a size that is none"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, program, storages, message):
    path = write_archive(tmp_path / "a.bin", program, storages)
    with pytest.raises(ConversionError, match=message) as error:
        read_header(path)
    assert error.value.path == path


def test_deep_and_shared_nests_take_no_time(tmp_path):
    """A pickle of a few hundred bytes that would print as 2^200 of them."""
    laughs = b"\x80\x02]" + b"q\x00h\x00\x86" + b"".join(b"q\x01h\x01\x86" for _ in range(200))
    for program in (laughs + b".", laughs + b"Q.", b"\x80\x02}" + text("a") + laughs[2:] + b"s."):
        with pytest.raises(ConversionError):
            read_header(write_archive(tmp_path / "a.bin", program, {}))


def test_archives_that_are_no_checkpoints(tmp_path):
    for content, message in (
        (b"", "not a whole checkpoint"),
        (b"PK\x03\x04", "not a whole checkpoint"),
        (b"garbage" * 100, "not a whole checkpoint"),
        (struct.pack("<Q", 50) + b"{}" + bytes(60), "not a whole checkpoint"),
    ):
        (tmp_path / "a.bin").write_bytes(content)
        with pytest.raises(ConversionError, match=message):
            read_header(tmp_path / "a.bin")
    squeezed = write_archive(
        tmp_path / "b.bin", table({"a": view("0", ONE)}), {"0": ONE.tobytes()}, compression=zipfile.ZIP_DEFLATED
    )
    with pytest.raises(ConversionError, match="compressed or encrypted"):
        read_header(squeezed)
    with zipfile.ZipFile(tmp_path / "c.bin", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(100_000_000))
    assert (tmp_path / "c.bin").stat().st_size < 200_000
    with pytest.raises(ConversionError, match="more names than any model has"):
        read_header(tmp_path / "c.bin")


@pytest.mark.parametrize("write", [write_torch, write_old_torch])
def test_any_damage_is_an_error_or_tensors_of_their_size(tmp_path, write):
    whole = write(tmp_path / "whole.bin", ARRAYS).read_bytes()
    path, draw = tmp_path / "a.bin", random.Random(0)
    for number in range(120):
        content = bytearray(whole)
        if number % 3 == 0:
            content = content[: draw.randrange(len(whole))]
        else:
            for _ in range(draw.randint(1, 3)):
                content[draw.randrange(len(whole))] = draw.randrange(256)
        path.write_bytes(content)
        try:
            found = read_header(path)
        except ConversionError:
            continue
        for entry in found.values():
            assert entry.load().shape == entry.shape


@pytest.mark.parity
@pytest.mark.parametrize("zipped", [True, False])
def test_what_pytorch_itself_writes(tmp_path, zipped):
    torch = pytest.importorskip("torch")
    linear = torch.nn.Linear(7, 5, bias=True)
    state = linear.state_dict()
    state["turned"] = state["weight"].t()
    state["brain"] = state["weight"].to(torch.bfloat16)
    state["parameter"] = torch.nn.Parameter(torch.arange(4.0))
    path = tmp_path / "pytorch_model.bin"
    torch.save(state, path, _use_new_zipfile_serialization=zipped)
    found = read_header(path)
    assert found.keys() == state.keys()
    for name, tensor in state.items():
        np.testing.assert_array_equal(found[name].load(), tensor.detach().float().numpy())
