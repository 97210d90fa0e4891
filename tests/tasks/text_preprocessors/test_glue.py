import pytest

from spanloom.tasks.templates import FieldError
from spanloom.tasks.text_preprocessors import Glue, glue_preprocessor, stsb


@pytest.mark.short
def test_features_label_and_id():
    example = {"b": "two", "a": "one", "label": 1, "idx": {"p": 3, "q": 4}}
    assert Glue("mine", ("no", "yes"))(example) == {
        "idx/p": 3, "idx/q": 4, "inputs": "mine a: one b: two", "targets": "yes",
    }  # fmt: skip
    plain = Glue("mine", ("no",), ("b",), id_key=None)
    assert plain(example | {"label": -1}) == {"inputs": "mine b: two", "targets": "<unk>"}
    with pytest.raises(FieldError, match="label 1 has no name; the names are 'no'"):
        plain(example)
    with pytest.raises(FieldError, match="no field 'c'"):
        Glue("mine", ("no", "yes"), ("c",))(example)


@pytest.mark.short
def test_parts_of_the_suites():
    rte = glue_preprocessor("super_glue/rte", ["entailment", "not_entailment"])
    example = {"premise": "p", "hypothesis": "h", "label": 0, "idx": 1}
    assert rte(example)["inputs"] == "rte hypothesis: h premise: p" and rte(example)["targets"] == "entailment"
    multirc = glue_preprocessor("super_glue/multirc", ["False", "True"])
    example = {"paragraph": "a<br>b", "question": "<b>q</b>", "answer": "w", "label": 1, "idx": 1}
    assert multirc(example)["inputs"] == "multirc question: q answer: w paragraph: a b"
    assert glue_preprocessor("glue/stsb") is stsb
    with pytest.raises(ValueError, match=r"no part 'glue/mrcp' .* did you mean glue/mrpc"):
        glue_preprocessor("glue/mrcp", ["a"])
    with pytest.raises(ValueError, match="glue/rte needs the names of its labels"):
        glue_preprocessor("glue/rte")


@pytest.mark.short
@pytest.mark.parametrize(("label", "target"), [(0.1, "0.0"), (0.3, "0.4"), (2.5, "2.4"), (3.5, "3.6"), (5, "5.0")])
def test_stsb_rounds_to_fifths_half_to_even(label, target):
    row = stsb({"sentence1": "x", "sentence2": "y", "label": label, "idx": 2})
    assert row == {"inputs": "stsb sentence1: x sentence2: y", "targets": target, "idx": 2}
