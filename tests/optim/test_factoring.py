from dataclasses import dataclass

import pytest

from spanloom.optim.factoring import STANDARD_RULES, Factoring, by_rules, by_size, inner_dims, is_matrix


@dataclass(frozen=True)
class Spec:
    shape: tuple[int, ...]
    axes: tuple[str, ...]


pytestmark = pytest.mark.short


@pytest.mark.parametrize(
    ("spec", "rows", "columns"),
    [
        (Spec((512, 384), ("embed", "joined_kv")), (1,), (0,)),
        (Spec((384, 512), ("joined_kv", "embed")), (0,), (1,)),
        (Spec((128, 128), ("embed", "mlp")), (0,), (1,)),
        (Spec((127, 500), ("embed", "mlp")), (), ()),
        (Spec((8, 512, 384), ("layers", "embed", "joined_kv")), (2,), (1,)),
        (Spec((512, 8, 384), ("embed", "layers", "joined_kv")), (2,), (0,)),
        (Spec((256, 256, 4), ("embed", "mlp", "stack")), (0,), (1,)),
        (Spec((900, 512), ("layers", "embed")), (), ()),
        (Spec((), ()), (), ()),
    ],
)
def test_size_heuristic_looks_at_one_layer(spec, rows, columns):
    assert by_size(spec, 128, "w") == Factoring(inner_dims(spec.axes), rows, columns)


def test_size_heuristic_is_for_matrices():
    with pytest.raises(ValueError, match=r"decoder/w.*factor_rules"):
        by_size(Spec((8, 512, 6, 64), ("layers", "embed", "heads", "kv")), 128, "decoder/w")


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (Spec((16, 3, 4, 8), ("embed", "layers", "heads", "kv")), Factoring((0, 2, 3), (0,), (2, 3))),
        (Spec((4, 3, 32), ("heads", "layers", "relpos_buckets")), Factoring((0, 2))),
        (Spec((16, 3), ("embed", "layers")), Factoring((0,))),
        (Spec((16, 24), ("embed", "mlp")), Factoring((0, 1))),
        (Spec((200, 240), ("embed", "mlp")), Factoring((0, 1), (0,), (1,))),
    ],
)
def test_logical_rules_go_by_name(spec, expected):
    assert by_rules(spec, 128, "w", STANDARD_RULES) == expected


def test_logical_rules_refuse_what_they_do_not_know():
    with pytest.raises(ValueError, match="'width' of parameter enc/w"):
        by_rules(Spec((2, 3, 4), ("layers", "width", "mlp")), 128, "enc/w", STANDARD_RULES)
    with pytest.raises(ValueError, match="enc/w mixes ROW, COLUMN and NONE"):
        by_rules(Spec((2, 3, 4), ("embed", "relpos_buckets", "mlp")), 128, "enc/w", STANDARD_RULES)


def test_layers_and_matrices():
    assert inner_dims(("embed", "layers", "mlp")) == (0, 2)
    assert inner_dims(("stack", "layers")) == ()
    assert is_matrix(Spec((2, 3, 4), ("layers", "embed", "mlp")))
    assert not is_matrix(Spec((2, 3), ("layers", "embed")))
    assert not is_matrix(Spec((), ()))
