import pytest
from metric_cases import MADE, TEXTS, needs

from spanloom.evaluation.metrics.translation import bleu, chrf


@pytest.fixture(autouse=True)
def library():
    needs("sacrebleu")


def test_scores_are_those_of_sacrebleu():
    import sacrebleu

    assert bleu(TEXTS, MADE)["bleu"] == sacrebleu.corpus_bleu(MADE, [TEXTS], tokenize="intl").score
    assert bleu(TEXTS, MADE, tokenizer="char")["bleu"] == sacrebleu.corpus_bleu(MADE, [TEXTS], tokenize="char").score
    assert chrf(TEXTS, MADE)["chrf"] == sacrebleu.corpus_chrf(MADE, [TEXTS]).score
    plus = sacrebleu.corpus_chrf(MADE, [TEXTS], word_order=2).score
    assert chrf(TEXTS, MADE, word_order=2)["chrf"] == plus != chrf(TEXTS, MADE)["chrf"]


@pytest.mark.parametrize("metric", [bleu, chrf])
def test_several_references_stand_by_stream_or_by_example(metric):
    others = [f"{text} x cat" for text in TEXTS]
    by_stream = metric([TEXTS, others], MADE)
    assert by_stream == metric([list(pair) for pair in zip(TEXTS, others, strict=True)], MADE, per_example=True)
    assert by_stream != metric(TEXTS, MADE)
    fewer = [[text] for text in TEXTS]
    assert metric([*fewer[:-1], [TEXTS[-1], others[-1]]], MADE, per_example=True).keys() == by_stream.keys()
    with pytest.raises(ValueError, match=r"list 0 of references has 1 of them for 40 predictions; .* per_example=True"):
        metric(fewer, MADE)
