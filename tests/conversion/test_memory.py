"""A model converts in the memory that its largest matrix needs: measured on models that are holes in a file."""

from pathlib import Path

import pytest
from peak_memory import peak_growth
from sparse_model import wide, write_sparse

TESTS = str(Path(__file__).resolve().parent.parent)
PREPARE = """
sys.path.insert(0, sys.argv[3])
from pathlib import Path
from sparse_model import wide, write_sparse
from spanloom.conversion import convert as conversion
from spanloom.conversion.convert import HUGGING_FACE, convert
from spanloom.conversion.t5x_write import T5X
from spanloom.training.converted import SPANLOOM
from spanloom.training.read_model import open_model
conversion.FEW_PARAMS = 0  # one sentence is enough
work, forms = Path(sys.argv[4]), {"hf": HUGGING_FACE, "spanloom": SPANLOOM, "t5x": T5X}
source, form, dtype = sys.argv[5:]
write_sparse(work / "warm", wide(1, 64, 64))
convert(open_model(work / "warm"), work / "warm-out", forms[form])  # imports, compilers, pools of threads
"""
CODE = """
report = convert(open_model(Path(source)), work / "out", forms[form], dtype=dtype)
assert report.largest_difference == 0 and report.num_tokens > 10, report
"""


def growth(work: Path, source: Path, form: str, dtype: str) -> float:
    (work / form).mkdir()
    return peak_growth(PREPARE, CODE, TESTS, str(work / form), str(source), form, dtype)


def test_a_conversion_takes_a_small_part_of_the_models_size(tmp_path):
    """In, from safetensors to Spanloom's format, and out of it again."""
    size = write_sparse(tmp_path / "source", wide(24, 256, 2048)) / 2**20
    assert size > 350
    inwards = growth(tmp_path, tmp_path / "source", "spanloom", "keep")
    outwards = growth(tmp_path, tmp_path / "spanloom" / "out", "hf", "bfloat16")
    print(f"a model of {size:.0f} MiB grew the process by {inwards:.0f} MiB, and by {outwards:.0f}")
    assert max(inwards, outwards) < 0.4 * size


@pytest.mark.slow
@pytest.mark.parametrize(("form", "dtype"), [("t5x", "float32"), ("spanloom", "bfloat16")])
def test_six_gigabytes_convert_in_one(tmp_path, form, dtype):
    """One and a half billion parameters, of layers like those of an 11B model but for their number."""
    size = write_sparse(tmp_path / "source", wide(4, 4096, 10240)) / 2**20
    assert size > 6000
    found = growth(tmp_path, tmp_path / "source", form, dtype)
    print(f"{form}: a model of {size:.0f} MiB grew the process by {found:.0f} MiB")
    assert found < 2048
