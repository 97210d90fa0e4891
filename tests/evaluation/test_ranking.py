import json
from dataclasses import replace

import pytest
from golden_data import golden_dir
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spanloom.evaluation.options import RankingError, options_of
from spanloom.evaluation.ranking import Scored, in_order, ranked, without_answer

pytestmark = pytest.mark.short
CHOICES = ("yes", "no", "maybe", "never", "of course")
examples = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 4)), min_size=1, max_size=14)
few = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def rows_of(found):
    made = enumerate(found)
    return [
        {"inputs": f"in {n}", "answer_choices": CHOICES[:count], "label": label % count} for n, (count, label) in made
    ]


def scored(rows):
    """Every option with a score of its own."""
    options = (option for number, row in enumerate(rows) for option in options_of(row, number))
    return [
        Scored(one.example, one.option, one.options, one.is_correct, one.weight, len(one.target) + 1, _score(one))
        for one in options
    ]


def _score(option):
    return -((option.example * 7 + option.option * 13) % 11) - 0.1


@given(examples, st.randoms(use_true_random=False))
@few
def test_the_result_knows_nothing_of_the_order(found, random):
    rows = rows_of(found)
    alone, shuffled = scored(rows), scored(rows)
    random.shuffle(shuffled)
    assert in_order(shuffled) == alone and len(alone) == sum(count for count, _ in found)
    best = {}
    for one in alone:
        if one.score > best.get(one.example, one).score or one.example not in best:
            best[one.example] = one
    right = [best[number].option == row["label"] for number, row in enumerate(rows)]
    assert ranked(in_order(shuffled)) == {"accuracy": pytest.approx(100 * sum(right) / len(rows))}


@given(examples, st.data())
@few
def test_an_option_that_is_doubled_or_lost_is_noticed(found, data):
    rows = scored(rows_of(found))
    place = data.draw(st.integers(0, len(rows) - 1))
    with pytest.raises(RankingError, match=r"1 option scored more than once, .*: do the data hold an example twice"):
        in_order([*rows, rows[place]])
    if found[rows[place].example][0] > 1:
        with pytest.raises(RankingError, match=r"1 option not scored, .*: do the data hold all options of each"):
            in_order([*rows[:place], *rows[place + 1 :]])


def test_a_score_that_is_no_number_ranks_nothing():
    rows = scored(rows_of([(2, 0), (2, 1)]))
    with pytest.raises(RankingError, match="example 1, option 0: its score is not a number"):
        in_order([*rows[:2], replace(rows[2], score=float("nan")), rows[3]])


def test_equal_scores_are_the_first_options_and_lengths_may_count():
    rows = [Scored(0, 0, 2, False, 1.0, 1, -2.0), Scored(0, 1, 2, True, 1.0, 4, -2.0)]
    assert ranked(rows) == {"accuracy": 0.0}
    assert ranked(rows, normalise=True) == {"accuracy": 100.0}
    assert ranked(rows, num_classes=2).keys() == {"accuracy", "f1", "auc-roc", "auc-pr"}


def test_an_example_without_a_right_option_counts_as_wrong():
    rows = scored([*rows_of([(2, 0), (2, 1)]), {"inputs": "x", "answer_choices": ["a", "b"], "label": -1}])
    best = [replace(row, score=0.0 if row.is_correct else -1.0) for row in in_order(rows)]
    assert without_answer(best) == [2] and ranked(best) == {"accuracy": pytest.approx(200 / 3)}
    with pytest.raises(RankingError, match="no example has a right option: are labels hidden"):
        ranked([replace(row, is_correct=False) for row in best])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda rows: [replace(rows[0], options=3), *rows[1:]], "example 0 has 2 and 3 options: other data"),
        (lambda rows: [replace(rows[0], option=5), *rows[1:]], "example 0, which has 2 options, has an option 5"),
    ],
)
def test_options_that_do_not_agree_are_refused(change, said):
    rows = scored(rows_of([(2, 0), (2, 1)]))
    with pytest.raises(RankingError, match=said):
        in_order(change(rows))


@pytest.mark.golden
def test_rows_of_a_cache_in_any_order_are_ranked():
    lines = (golden_dir("seqio", "cached_task") / "expected.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [row for row in map(json.loads, lines) if row["task"] == "prompted_score_eval"]
    for split in {row["split"] for row in rows}:
        mine = [row["example"] for row in rows if row["split"] == split]
        options = [option for number, row in enumerate(mine) for option in options_of(row, number)]
        right = {(one.example, one.option): one.is_correct for one in options}
        made = scored(mine)
        first = [replace(one, score=0.0) for one in in_order(reversed(made))]
        assert [one.key for one in first] == sorted(right) and len(first) == len(mine)
        shares = [is_right for (_, option), is_right in right.items() if option == 0]
        assert ranked(first) == {"accuracy": pytest.approx(100 * sum(shares) / len(shares))}
        assert ranked([replace(one, score=float(one.is_correct)) for one in first]) == {"accuracy": 100.0}
