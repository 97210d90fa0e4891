import numpy as np
import pytest

from spanloom.tasks.read_report import BadInputError, Intake, ReadReport
from spanloom.tasks.seqio_features import build_example, read_features


def built(dtype, shape, **stored):
    """One feature 'x' of lists, as the parser gives them."""
    features = read_features("info.json", {"features": {"x": {"dtype": dtype, "shape": shape}}, "seqio_version": "1"})
    kinds = {int: np.int64, float: np.float32}
    flat = {
        name.replace("__", ":"): values if values and isinstance(values[0], bytes) else np.array(values, kinds[kind])
        for name, values in stored.items()
        for kind in [type(values[0]) if values else int]
    }
    return build_example(features, flat, "here", Intake(ReadReport()))["x"]


@pytest.mark.short
def test_single_values_and_rows():
    assert built("bool", [], x=[1]) is True
    assert built("int32", [], x=[7]) == 7 and built("string", [], x=[b"t"]) == "t"
    assert built("float32", [], x=[0.1]) == np.float32(0.1)
    assert built("int32", [None], x=[1, 2]).tolist() == [1, 2]
    assert built("int32", [None]).tolist() == [] and built("string", [None]) == []
    assert built("uint64", [None], x=[-1]).tolist() == [2**64 - 1]
    assert built("string", [2], x=[b"a", b"b"]) == ["a", "b"]
    with pytest.raises(ValueError, match="'x' holds 2 values, not one"):
        built("int32", [], x=[1, 2])
    with pytest.raises(ValueError, match="'x' holds 2, which is no bool"):
        built("bool", [None], x=[1, 2])
    with pytest.raises(ValueError, match=r"2 values, which do not fill the shape \(3,\)"):
        built("int32", [3], x=[1, 2])


@pytest.mark.short
def test_more_dimensions():
    assert built("int32", [None, 2], x=[1, 2, 3, 4]).tolist() == [[1, 2], [3, 4]]
    assert built("int32", [None, 2]).shape == (0, 2)
    assert built("int32", [None, None], x=[1, 2, 3, 4], **{"_sh:x": [1, 4]}).tolist() == [[1, 2, 3, 4]]
    assert built("string", [2, None], x=[b"a", b"b"]) == [["a"], ["b"]]
    with pytest.raises(ValueError, match="varies in 2 dimensions"):
        built("int32", [None, None], x=[1, 2])
    with pytest.raises(ValueError, match="3 values, which do not fill"):
        built("int32", [None, 2], x=[1, 2, 3])


@pytest.mark.short
def test_ragged_rows():
    rows = built("int32", [None, None], x=[1, 2, 3], **{"_rl:0:x": [1, 0, 2]})
    assert [row.tolist() for row in rows] == [[1], [], [2, 3]]
    deep = built("string", [None] * 3, x=[b"a", b"b", b"c"], **{"_rl:0:x": [2, 0], "_rl:1:x": [1, 2]})
    assert deep == [[["a"], ["b", "c"]], []]
    with pytest.raises(ValueError, match="ragged feature 'x' has 3 parts in dimension 1, not 2"):
        built("int32", [None, None], x=[1, 2, 3], **{"_rl:0:x": [2]})


def test_sparse_values():
    places = {"_sp:0:x": [0, 2], "_sp:1:x": [1, 0]}
    assert built("int32", [None, 2], x=[7, 8], **places, **{"_sh:x": [3, 2]}).tolist() == [[0, 7], [0, 0], [8, 0]]
    with pytest.raises(ValueError, match="sparse values outside of its shape"):
        built("int32", [2, 2], x=[7, 8], **places)
    with pytest.raises(ValueError, match="is sparse, of int32"):
        built("int32", [None, 2], x=[7, 8], **places)


def test_caches_from_before_the_first_release():
    info = {"features": {"a_plaintext": {"dtype": "string", "shape": []}, "n": {"dtype": "int64", "shape": []}}}
    features = read_features("info.json", info)
    assert {name: one.dtype for name, one in features.items()} == {"a_pretokenized": "string", "n": "int32"}
    stored = {"a_plaintext": [b"t"], "n": np.array([3])}
    assert build_example(features, stored, "here", Intake(ReadReport())) == {"a_pretokenized": "t", "n": 3}
    assert list(read_features("info.json", info | {"seqio_version": "0.0.1"})) == ["a_plaintext", "n"]
    with pytest.raises(BadInputError, match="has \\[-1\\] for a shape"):
        read_features("info.json", {"features": {"a": {"dtype": "int32", "shape": [-1]}}})
