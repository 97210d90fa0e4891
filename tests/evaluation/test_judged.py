from dataclasses import replace

import numpy as np
import pytest

from spanloom.evaluation.judged import NothingHeldOutError, judged
from spanloom.evaluation.metrics.rank_classification import rank_classification
from spanloom.evaluation.options import RankingError
from spanloom.settings.objectives import SpanCorruption, Supervised
from spanloom.settings.task import PairFiles, Task

pytestmark = pytest.mark.short
TASK = Task("t", PairFiles(("a.tsv",)), objective=Supervised())
CHOICES = ("yes", "of course", "no")


def record(number, right, scores, **more):
    """An example with choices; `right` may be several, or none."""
    lengths = [len(choice) + 1 for choice in CHOICES[: len(scores)]]
    correct = [place in right for place in range(len(scores))]
    ranked = {"choices": list(CHOICES[: len(scores)]), "scores": scores, "lengths": lengths, "correct": correct}
    return {"example": number, "inputs": "i", "targets": "t", "loss": 4.0, "tokens": 2, **ranked, "weight": 1.0, **more}


RANKED = [
    record(0, [1], [-5.0, -6.0, -9.0]),  # right only when lengths are divided by
    record(1, [0], [-1.0, -1.0, -3.0]),  # a tie, which the first one wins
    record(2, [0, 2], [-5.0, -4.0, -3.0]),
    record(3, [0], [-2.0, -9.0], loss=20.0, tokens=6),
    record(4, [], [-2.0, -9.0]),
]


def test_losses_ranks_and_the_majority():
    said = judged(TASK, None, RANKED, normalised=True)
    assert said.numbers == {
        "heldout_loss": pytest.approx(36 / 14),
        "rank_accuracy": 60.0,  # of 1, 2 and 3
        "rank_accuracy_normalised": 40.0,  # of 0 and 3: in the others the longest wins
        "majority": 60.0,  # the first one, of 1, 2 and 3
    }
    assert said.examples == 5 and said.notes == ("1 examples have no right option, and count as wrong",)


def test_choices_that_are_empty_or_alike_are_told():
    rows = [record(n, [0], [-1.0, -2.0], choices=list(choices)) for n, choices in enumerate(("ab", "a ", "aa", "  "))]
    assert judged(TASK, None, rows).notes == (
        "2 examples have an empty choice, which is scored by the end of sequence alone",
        "2 examples have choices that are alike",
    )


def test_intervals_hold_the_numbers_and_are_those_of_the_bootstrap():
    records = [record(n, [n % 3], [-float(n % 4), -1.0, -float(n % 5)], loss=n + 1.0) for n in range(60)]
    said = judged(TASK, None, records, normalised=True, resamples=200).numbers
    for name in ("heldout_loss", "rank_accuracy", "rank_accuracy_normalised"):
        assert said[f"{name}_low"] < said[name] < said[f"{name}_high"]
    assert said["heldout_loss_high"] - said["heldout_loss_low"] == pytest.approx(
        2 * 1.96 * np.std(np.arange(60) / 2) / 60**0.5, rel=0.15
    )


def test_rows_that_are_an_option_each():
    """Two examples of SeqIO's `<task>_score_eval`; losses are of right options alone."""
    rows = [
        {**record(number, [0] if right else [], [score]), "idx": idx, "loss": -score}
        for number, (idx, right, score) in enumerate(
            [([7, 0], False, -3.0), ([7, 1], True, -2.0), ([9, 1], False, -1.0), ([9, 0], True, -4.0)]
        )
    ]
    said = judged(TASK, None, rows)
    assert said.examples == 2
    assert said.numbers == {"heldout_loss": 6.0 / 4, "rank_accuracy": 50.0, "majority": 50.0}
    with pytest.raises(RankingError, match="scored more than once"):
        judged(TASK, None, [*rows, rows[0]])


def test_a_tasks_own_metric_of_scores():
    task = replace(TASK, metrics=("rank_classification",))
    targets = [((0, place), place == 1, 1.0, 4) for place in range(2)]
    assert judged(task, None, [record(0, [1], [-2.0, -1.0])]).numbers["rank_accuracy"] == 100.0
    assert rank_classification(targets, [-2.0, -1.0])["accuracy"] == 100.0


def test_what_was_written_beside_the_commonest_target():
    texts = [("a", "a"), ("a", "b"), ("b", "b"), ("c", "a"), ("a", "a")]
    records = [
        {"example": n, "inputs": "", "targets": target, "prediction": made, "loss": 1.0, "tokens": 1}
        for n, (target, made) in enumerate(texts)
    ]
    records.append({"example": 5, "left_out": True})
    assert judged(TASK, None, records).numbers == {"heldout_loss": 1.0, "exact_match": 60.0, "commonest_target": 60.0}
    unknown = [{**one, "unknown": True, "cut": one["targets"] == "c"} for one in records[:5]]
    said = judged(TASK, None, unknown)
    assert said.numbers["exact_match"] == 0.0, "what the vocabulary lacks is never right"
    assert [note.partition(" (")[0] for note in said.notes] == [
        "1 targets are longer than the model may write",
        "5 targets hold what the vocabulary cannot write",
    ]
    with_metric = judged(replace(TASK, metrics=("accuracy", "edit_distance")), None, records).numbers
    assert with_metric["accuracy"] == 60.0 and "exact_match" not in with_metric
    assert judged(TASK, None, records, resamples=50).numbers["exact_match_high"] > 60.0


def test_text_alone():
    task = replace(TASK, objective=SpanCorruption())
    records = [
        {"example": n, "inputs": "", "targets": "", "loss": 6.0, "tokens": 3, "text_loss": 4.0, "text_tokens": 1 + n}
        for n in range(2)
    ]
    assert judged(task, None, records).numbers == {"heldout_loss": 2.0, "heldout_text_loss": pytest.approx(8 / 3)}


def test_nothing_is_said():
    with pytest.raises(NothingHeldOutError, match="task 't': its preprocessors leave out every held-out example"):
        judged(TASK, None, [{"example": 0, "left_out": True}])
