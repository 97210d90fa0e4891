import pickle
import subprocess
import sys

import pytest

from spanloom.tasks import text_preprocessors as pp


@pytest.mark.short
def test_all_can_be_sent_to_workers_and_compared():
    chain = (pp.Rekey({"inputs": "q", "targets": "a"}), pp.Lowercase(), pp.trivia_qa, pp.Translate("de", "en"))
    chain += (pp.glue_preprocessor("glue/rte", ["a", "b"]), pp.AppendEosAfterTrim({"inputs": 3}), pp.ParseTsv())
    assert pickle.loads(pickle.dumps(chain)) == chain
    assert repr(chain[1]) == "Lowercase(feature_keys=('inputs', 'targets'))"
    assert all(getattr(pp, name).__doc__ for name in pp.__all__)


def test_a_recipe_that_names_them_stays_light():
    code = "import sys, spanloom.tasks.text_preprocessors; print({'numpy', 'jax', 'pyarrow'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "set()"
