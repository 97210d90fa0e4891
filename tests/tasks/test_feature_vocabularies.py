import pytest

from spanloom.settings.feature import Feature
from spanloom.settings.objectives import Supervised
from spanloom.settings.task import PairFiles, Task
from spanloom.settings.vocabulary import Bytes
from spanloom.tasks.feature_vocabularies import vocabularies_of
from spanloom.vocabularies.build import build

BYTES = build(Bytes())


@pytest.mark.short
def test_each_feature_may_have_a_vocabulary_of_its_own():
    features = (Feature("inputs", Bytes("google")), Feature("targets"), Feature("more", Bytes()))
    found = vocabularies_of(Task("t", PairFiles(), objective=Supervised(), features=features), BYTES)
    assert found["targets"] is BYTES and found["more"] is BYTES
    assert found["inputs"].sentinels[0] == 258
