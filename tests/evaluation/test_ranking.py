import json
from dataclasses import replace

import numpy as np
import pytest
from golden_data import golden_dir
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spanloom.evaluation.options import Pairs, RankingError, options_of, share_of
from spanloom.evaluation.ranking import Scored, answers, merged, ranked, score_options, scored_of, without_answer
from spanloom.settings.vocabulary import Bytes
from spanloom.vocabularies.build import build

pytestmark = pytest.mark.short
CHOICES = ("yes", "no", "maybe", "never", "of course")
examples = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 4)), min_size=1, max_size=14)
few = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def rows_of(found):
    made = enumerate(found)
    return [
        {"inputs": f"in {n}", "answer_choices": CHOICES[:count], "label": label % count} for n, (count, label) in made
    ]


def ids(option):
    return list(option.inputs.encode()), [*option.target.encode(), 1]


def score(pairs):
    """Of an option on its own, whatever stands beside it in the batch."""
    return np.array([-((sum(inputs) * 7 + sum(target) * 13) % 11) - 0.1 for inputs, target in pairs], np.float32)


def scored(rows, batch_size=3, process=0, processes=1, done=()):
    options = (one for number, row in share_of(rows, process, processes) for one in options_of(row, number))
    return list(score_options(options, ids, score, batch_size, done))


@given(examples, st.integers(1, 9), st.integers(1, 5), st.randoms(use_true_random=False))
@few
def test_the_result_knows_nothing_of_batches_processes_and_order(found, batch_size, processes, random):
    rows = rows_of(found)
    alone = merged([scored(rows, 100)], len(rows))
    shards = [scored(rows, batch_size, process, processes) for process in range(processes)]
    random.shuffle(shards)
    for shard in shards:
        random.shuffle(shard)
    files = [[one.to_line() for one in shard] for shard in shards]
    assert merged([map(scored_of, lines) for lines in files], len(rows)) == alone
    assert len(alone) == sum(count for count, _ in found)
    right = [answers(alone)[number] == row["label"] for number, row in enumerate(rows)]
    assert ranked(alone) == {"accuracy": pytest.approx(100 * sum(right) / len(rows))}


@given(examples, st.data())
@few
def test_an_option_that_is_doubled_or_lost_is_noticed(found, data):
    rows = scored(rows_of(found))
    place = data.draw(st.integers(0, len(rows) - 1))
    with pytest.raises(RankingError, match=r"1 option scored more than once, .*: the shards overlap"):
        merged([rows, [rows[place]]], len(found))
    with pytest.raises(RankingError, match=r"not scored, the first of them .*: a shard is missing or not finished"):
        merged([rows[:place], rows[place + 1 :]], len(found))


def test_a_stopped_job_goes_on_with_what_is_left():
    rows = rows_of([(3, 0), (2, 1)])
    first = scored(rows)[:3]
    rest = scored(rows, done={one.key for one in first})
    assert [one.key for one in rest] == [(1, 0), (1, 1)] and merged([rest, first], 2) == scored(rows)


def test_a_line_comes_back_to_the_last_bit():
    (one, *_) = scored(rows_of([(2, 0)]))
    one = replace(one, score=float(np.float32(-0.1) / 3))
    assert scored_of(one.to_line()) == one
    with pytest.raises(RankingError, match="no line of scores"):
        scored_of('{"example": 1}')
    with pytest.raises(RankingError, match="no line of scores"):
        scored_of(one.to_line()[:-3])


def test_equal_scores_are_the_first_options_and_lengths_may_count():
    rows = [Scored(0, 0, 2, False, 1.0, 1, -2.0), Scored(0, 1, 2, True, 1.0, 4, -2.0)]
    assert answers(rows) == {0: 0} and ranked(rows) == {"accuracy": 0.0}
    assert answers(rows, normalise=True) == {0: 1} and ranked(rows, normalise=True) == {"accuracy": 100.0}
    assert ranked(rows, num_classes=2).keys() == {"accuracy", "f1", "auc-roc", "auc-pr"}


def test_an_example_without_a_right_option_counts_as_wrong():
    rows = scored([*rows_of([(2, 0), (2, 1)]), {"inputs": "x", "answer_choices": ["a", "b"], "label": -1}])
    best = [replace(row, score=0.0 if row.is_correct else -1.0) for row in merged([rows], 3)]
    assert without_answer(best) == [2] and ranked(best) == {"accuracy": pytest.approx(200 / 3)}
    with pytest.raises(RankingError, match="no example has a right option: are labels hidden"):
        ranked([replace(row, is_correct=False) for row in best])


def test_targets_are_as_long_as_with_their_end_of_sequence():
    assert [one.length for one in scored(rows_of([(2, 0)]))] == [len("yes") + 1, len("no") + 1]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda rows: [replace(rows[0], options=3), *rows[1:]], "example 0 has 2 and 3 options: other data"),
        (lambda rows: [replace(rows[0], option=5), *rows[1:]], "example 0, which has 2 options, has an option 5"),
        (
            lambda rows: [*rows, Scored(9, 0, 1, True, 1.0, 1, 0.0)],
            "example 9 is scored, and there are only 2: other data",
        ),
        (lambda rows: rows[:2], "1 example of 2 not scored, the first of them example 1"),
        (lambda rows: [], "2 examples of 2 not scored"),
    ],
)
def test_shards_of_other_data_are_refused(change, said):
    rows = scored(rows_of([(2, 0), (2, 1)]))
    with pytest.raises(RankingError, match=said):
        merged([change(rows)], 2)


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (lambda pairs: np.zeros(1), r"scores of shape \(1,\) for 2 options"),
        (lambda pairs: np.full(2, np.nan), "example 0, option 0: its score is not a number"),
    ],
)
def test_scores_that_are_none_are_refused(result, said):
    with pytest.raises(RankingError, match=said):
        list(score_options(options_of(rows_of([(2, 0)])[0], 0), ids, result))


@pytest.mark.golden
def test_rows_of_a_cache_in_any_order_are_ranked():
    lines = (golden_dir("seqio", "cached_task") / "expected.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [row for row in map(json.loads, lines) if row["task"] == "prompted_score_eval"]
    for split in {row["split"] for row in rows}:
        mine = [row["example"] for row in rows if row["split"] == split]
        options = [option for number, row in enumerate(mine) for option in options_of(row, number)]
        right = {(one.example, one.option): one.is_correct for one in options}
        made = score_options(options, Pairs(build(Bytes()), inputs_eos=False), lambda pairs: np.zeros(len(pairs)))
        first = merged([made], len({example for example, _ in right}), len(mine))
        assert [one.key for one in first] == sorted(right) and len(first) == len(mine)
        shares = [is_right for (_, option), is_right in right.items() if option == 0]
        assert ranked(first) == {"accuracy": pytest.approx(100 * sum(shares) / len(shares))}
        with pytest.raises(RankingError, match="options scored, and not"):  # how many an example has, no row says
            merged([first[:-1]], options=len(mine))
        assert ranked([replace(one, score=float(one.is_correct)) for one in first]) == {"accuracy": 100.0}


def test_a_target_without_tokens_is_refused():
    with pytest.raises(RankingError, match="example 0, option 1: its target has no tokens"):
        list(score_options(options_of(rows_of([(2, 0)])[0], 0), lambda one: ([1], [1][one.option :]), score))
