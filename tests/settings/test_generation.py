import dataclasses
import json

import numpy as np
import pytest

from spanloom.settings.generation import Generation, check_generation

pytestmark = pytest.mark.short


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ('{"beams": "4"}', "beams is '4'; it must be a whole number"),
        ('{"beams": true}', "beams is True; it must be a whole number"),
        ('{"outputs": 2.0, "temperature": 1}', "outputs is 2.0; it must be a whole number"),
        ('{"max_length": 8.5}', "max_length is 8.5; it must be a whole number"),
        ('{"top_k": 1099511627776, "temperature": 1}', "below 2^31"),
        ('{"seed": null}', "seed is None; it must be a whole number"),
        ('{"seed": 4294967296}', "below 2^32"),
        ('{"temperature": "0.7"}', "temperature is '0.7'; it must be a number"),
        ('{"temperature": Infinity}', "temperature is inf; it must be at least 0, and at most"),
        ('{"temperature": NaN}', "temperature is nan; it must be at least 0"),
        ('{"alpha": [1]}', r"alpha is \[1\]; it must be a number"),
        ('{"search": "hf"}', "search is 'hf'; it must be one of t5x, transformers"),
        ('{"search": ["t5x"]}', "it must be one of t5x, transformers"),
    ],
)
def test_values_of_another_kind_are_refused(changes, said):
    """Lines of JSON may hold anything."""
    with pytest.raises(ValueError, match=said.replace("^", r"\^")):
        check_generation(dataclasses.replace(Generation(), **json.loads(changes)))


def test_numbers_of_numpy_are_numbers():
    check_generation(Generation(beams=np.int64(4), alpha=np.float32(1.0), outputs=np.int32(2)))
    check_generation(Generation(temperature=1, top_p=1, min_p=0))
