import subprocess
import sys

import numpy as np
import pytest
from tiny_model import tiny_source

from spanloom.evaluation.loaded import LoadedModel
from spanloom.evaluation.writing import Request, check_request
from spanloom.model import decoding
from spanloom.settings.generation import Generation

TEXTS = ["a line", "another one, a little longer", "x", "what comes last"]


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return LoadedModel(tiny_source())


def test_what_is_written_is_likely_as_it_says(model):
    """Greedy and beams: log-probabilities are those of scoring, per token too; beams come best first."""
    greedy = [one.outputs[0] for one in model.generate(TEXTS, max_length=8)]
    beams = model.generate(TEXTS, max_length=8, beams=3, outputs=3)
    assert all(len(one.outputs) == 3 for one in beams)
    outputs = [(text, one) for text, one in zip(TEXTS, greedy, strict=True)]
    outputs += [(text, output) for text, one in zip(TEXTS, beams, strict=True) for output in one.outputs]
    scores = model.score_ids([(model.encode(text), output.tokens) for text, output in outputs])
    np.testing.assert_allclose([s.log_prob for s in scores], [o.log_prob for _, o in outputs], atol=1e-4)
    for one in beams:
        assert [output.score for output in one.outputs] == sorted((o.score for o in one.outputs), reverse=True)
        for output in one.outputs:
            assert output.score == pytest.approx(output.log_prob / ((5 + len(output.tokens)) / 6) ** 0.6, abs=1e-5) or (
                output.score == pytest.approx(output.log_prob, abs=1e-6)  # none ended
            )
    assert scores[0].normalized == pytest.approx(scores[0].log_prob / len(greedy[0].tokens))


def test_requests_of_all_kinds_stand_side_by_side_in_their_order(model):
    drawn = Generation(max_length=8, temperature=1.5, top_k=20, top_p=0.95, min_p=0.01, outputs=2, seed=5)
    kinds = [Generation(max_length=8), drawn, Generation(max_length=8, no_repeat_ngram=1), Generation(max_length=5)]
    requests = [Request(model.encode(text), kind) for text in TEXTS for kind in kinds]
    together = model.write(requests)
    alone = {place: model.write([requests[place]])[0] for place in (1, 6)}
    for place, expected in alone.items():
        assert [o.tokens.tolist() for o in together[place]] == [o.tokens.tolist() for o in expected]
    assert together[1][0].tokens.tolist() != together[1][1].tokens.tolist()
    for place in range(2, len(requests), 4):
        (output,) = together[place]
        assert len(set(output.tokens.tolist())) == len(output.tokens)  # no token twice
    assert all(len(together[place][0].tokens) <= 5 for place in range(3, len(requests), 4))
    other_seed = [Request(model.encode(TEXTS[0]), Generation(**{**vars(drawn), "seed": 6}))]
    assert model.write(other_seed)[0][0].tokens.tolist() != together[1][0].tokens.tolist()


def test_one_program_for_each_bucket_of_shapes(model):
    """Other lengths, numbers and settings of requests compile nothing new within powers of two."""
    model.generate(TEXTS, max_length=8, temperature=0.5)
    before = decoding._run._cache_size()
    model.generate(["another length", *TEXTS[:2]], max_length=7, temperature=2.0, top_k=3, seed=9)
    assert decoding._run._cache_size() == before
    model.generate(TEXTS, max_length=9, temperature=0.5)
    assert decoding._run._cache_size() == before + 1


def test_a_prefix_and_choices_hold(model):
    choices = ["yes", "no", "perhaps"]
    (one,) = model.generate("a line", prefix="so: ", choices=choices, beams=4, outputs=4, max_length=16, alpha=0)
    assert sorted(output.text for output in one.outputs) == sorted(f"so: {choice}" for choice in choices)
    prefix = model.vocabulary.encode("so: ")
    scores = model.score([("a line", f"so: {choice}") for choice in choices])
    expected = sorted((sum(score.token_log_probs[len(prefix) :]) for score in scores), reverse=True)
    np.testing.assert_allclose([output.log_prob for output in one.outputs], expected, atol=1e-4)
    assert model.generate("a line", choices=choices, max_length=8)[0].text in choices


def test_targets_of_one_input_score_as_they_do_alone(model):
    targets = ["a", "longer target", "x" * 600, "é", ""]
    together = model.score([("the input", target) for target in targets] + [("another", "a")])
    for place, target in enumerate(targets):
        (alone,) = model.score([("the input", target)])
        np.testing.assert_allclose(together[place].token_log_probs, alone.token_log_probs, atol=2e-4)
        assert len(alone.token_log_probs) == len(target.encode()) + 1
    assert together[0].log_prob != pytest.approx(together[-1].log_prob, abs=1e-3)
    with pytest.raises(ValueError, match="pair 1: the target holds the id 0"):
        model.score_ids([([5, 1], [4, 0, 1])])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"max_length": 0}, "max_length is 0; it must be at least 1"),
        ({"alpha": -1.0}, "alpha is -1.0"),
        ({"beams": 2, "temperature": 1.0}, "beam search draws nothing"),
        ({"outputs": 3}, "outputs is 3, but there are 1 beams"),
        ({"top_k": 3}, "top_k is set, but temperature is 0"),
        ({"top_p": 0.0, "temperature": 1.0}, "top_p is 0.0"),
        ({"seed": -1}, "seed is -1"),
    ],
)
@pytest.mark.short
def test_settings_that_make_no_sense_are_refused(changes, said):
    with pytest.raises(ValueError, match=said):
        check_request(Request([5, 1], Generation(**changes)))


@pytest.mark.short
def test_requests_that_cannot_be_answered_are_refused(model):
    with pytest.raises(ValueError, match=r"there is no setting 'beam'; did you mean beams"):
        model.generate("x", beam=2)
    with pytest.raises(ValueError, match="choices is 'yes'; it must be a list of strings"):
        model.generate("x", choices="yes")
    with pytest.raises(ValueError, match="request 2: the input has no tokens"):
        model.write([Request([5, 1]), Request([])])
    with pytest.raises(ValueError, match="max_length is 3, and the prefix needs 4 tokens"):
        check_request(Request([5], Generation(max_length=3), prefix=[4, 5, 6]))
    with pytest.raises(ValueError, match="choices, end of sequence included, needs 5"):
        check_request(Request([5], Generation(max_length=4), prefix=[4, 5], choices=[[6, 7]]))
    with pytest.raises(ValueError, match="a choice is empty"):
        check_request(Request([5], choices=[[]]))
    pairs = Generation(no_repeat_ngram=2)
    check_request(Request([5], pairs, prefix=[4, 5, 4, 5], choices=[[6, 6], [7]]))
    with pytest.raises(ValueError, match="no_repeat_ngram is 2, and choice 2 repeats so many tokens"):
        check_request(Request([5], pairs, prefix=[4, 5], choices=[[6], [4, 5]]))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seed": -1}, "seed is -1; it must be at least 0"),
        ({"seed": "1"}, "seed is '1'; it must be a whole number"),
        ({"prefix": None}, "prefix is None; it must be a string"),
        ({"choices": [1]}, "choice 1 is 1; it must be a string"),
        ({"choices": None}, "choices is None; it must be a list of strings"),
        ({"inputs": ["a", 3]}, "input 2 is 3; it must be a string"),
        ({"inputs": None}, "inputs is None; it must be a list of strings"),
        ({"settings": {"beams": 4}}, "settings is {'beams': 4}; it must be a Generation"),
        ({"batch_size": 0}, "batch_size is 0; it must be a whole number, 1 or more"),
        ({"batch_size": -1}, "batch_size is -1"),
        ({"batch_size": 2.0}, "batch_size is 2.0"),
    ],
)
@pytest.mark.short
def test_arguments_that_make_no_sense_are_refused_by_their_names(model, changes, said):
    with pytest.raises(ValueError, match=said):
        model.generate(**{"inputs": ["a"], "max_length": 4, **changes})


@pytest.mark.short
def test_what_are_no_pairs_is_not_scored(model):
    """A string of two letters comes apart as a pair would."""
    for pairs in (["ab", "cd"], "ab", [("a", "b", "c")], [3]):
        with pytest.raises(ValueError, match=r"pair 1 is .*; it must be an input and a target, such as"):
            model.score(pairs)
    with pytest.raises(ValueError, match="pair 2: the target is 3; it must be a string"):
        model.score([("a", "b"), ("a", 3)])
    for pairs in (["ab"], [[5, 1, 6]]):
        with pytest.raises(ValueError, match=r"pair 1 is .*; it must be an input and a target, such as"):
            model.score_ids(pairs)
    with pytest.raises(ValueError, match="pair 1: the input is 'a'; it must be a list of ids"):
        model.score_ids([("a", "b")])
    with pytest.raises(ValueError, match="batch_size is 0"):
        model.score([("a", "b")], batch_size=0)
    with pytest.raises(ValueError, match="batch_size is -1"):
        model.score_ids([([5, 1], [6, 1])], -1)
    (listed,), (of_numpy,) = model.score_ids([[[5, 1], [6, 1]]]), model.score_ids(np.array([[[5, 1], [6, 1]]]))
    assert listed == of_numpy
    with pytest.raises(ValueError, match="pairs is None; it must be a list of pairs"):
        model.score(None)
    texts, targets = ["a", "b"], ["c", "d"]
    assert model.score(zip(texts, targets, strict=True)) == model.score([("a", "c"), ("b", "d")])
    assert len(model.generate(iter(texts), choices=iter(targets), max_length=4)) == 2


@pytest.mark.parametrize("bad", [-1, 384, 2**40])
@pytest.mark.short
def test_ids_that_the_model_has_not_are_named(model, bad):
    said = f"holds the id {bad}; the model's are 0 to 383"
    for what, pair in {"input": ([5, bad], [6, 1]), "target": ([5, 1], np.array([6, bad]))}.items():
        with pytest.raises(ValueError, match=f"pair 2: the {what} {said}"):
            model.score_ids([([383, 1], [6, 1]), pair])
    bad_ones = {
        "the input": Request([5, bad]),
        "the prefix": Request([5, 1], prefix=[bad]),
        "choice 2": Request([5, 1], choices=[[6], [bad]]),
    }
    for what, request in bad_ones.items():
        with pytest.raises(ValueError, match=f"request 2: {what} {said}"):
            model.write([Request([383, 1]), request])


@pytest.mark.short
def test_importing_the_package_stays_light():
    check = "import spanloom, sys; assert spanloom.load; assert not {'jax', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True, timeout=120)
