import pytest
from metric_cases import needs

from spanloom.evaluation.metrics.summaries import rouge


@pytest.fixture(autouse=True)
def library():
    needs("rouge_score")


def test_words_and_pairs_in_common():
    found = rouge(["a b c d", "x"], ["a b d", "y"])
    assert found == pytest.approx({"rouge1": 100 * 6 / 7 / 2, "rouge2": 100 * 2 / 5 / 2, "rougeLsum": 100 * 6 / 7 / 2})
    assert rouge(["a b"], ["b a"], score_keys=("rougeL",)) == {"rougeL": 50.0}


def test_other_scripts_have_words_where_that_is_asked_for():
    assert set(rouge(["日本 語"], ["日本 語"]).values()) == {0.0}
    assert set(rouge(["Ő jön . 日本 語"], ["ő jön . 日本 語"], any_script=True).values()) == {100.0}


def test_stems_and_sentences():
    assert rouge(["He waited"], ["He waiting"])["rouge1"] == 50.0
    assert rouge(["He waited"], ["He waiting"], use_stemmer=True)["rouge1"] == 100.0
    assert rouge(["a b . c d"], ["c d . a b"])["rougeLsum"] == 100.0
