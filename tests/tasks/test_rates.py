"""Rates of mixtures: SeqIO's values, and what is refused."""

import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from calls import calls_of
from golden_data import golden_dir
from hypothesis import given, settings
from hypothesis import strategies as st

from spanloom.settings.mixture import ByAlpha, BySize, Mixture, PerTemplate, Rate, Weighted
from spanloom.settings.task import Task, TextFiles
from spanloom.tasks.rates import Size, rate_of, task_rates, uncounted

TOLERANCE = 1e-12
"""Relative, as the README of the golden values says."""
FUNCTIONS = {
    "mixing_rate_num_examples": BySize(),
    "mixing_rate_num_examples(maximum=500, temperature=2.0)": BySize(maximum=500, temperature=2.0),
}


def task(name: str) -> Task:
    return Task(name, TextFiles((f"{name}.txt",)))


def mixed(name: str, *parts: tuple[str | Mixture, Rate]) -> Mixture:
    return Mixture(name, tuple(Weighted(task(p) if isinstance(p, str) else p, rate) for p, rate in parts))


def read_golden(folder: Path) -> list[dict]:
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("mixing_rates*.json"))]


def build(name: str, golden: dict) -> Mixture:
    rules = {key: FUNCTIONS[text] for key, text in golden["rate_functions"].items()}
    parts = []
    for member, rate in golden["mixtures"][name]["members"]:
        part = build(member, golden) if member in golden["mixtures"] else member
        parts.append((part, rules[rate] if isinstance(rate, str) else rate))
    return mixed(name, *parts)


def check_mixtures(golden: dict) -> Counter:
    sizes = {name: Size(examples=count) for name, count in golden["tasks"].items()}
    seen = Counter(case["defective"] for case in golden["mixtures"].values())
    for name, case in golden["mixtures"].items():
        if case["defective"]:
            with pytest.raises(ValueError, match=r"a mixture's rate is a number|nothing can be drawn in proportion"):
                task_rates(build(name, golden), sizes)
            continue
        rates = task_rates(build(name, golden), sizes)
        assert list(rates.names) == case["all_tasks"], name
        assert rates.total == pytest.approx(case["total_rate"], rel=TOLERANCE), name
        for ours, field in ((rates.rates, "get_rate"), (rates.probabilities, "probability")):
            theirs = [case[field][task] for task in rates.names]
            np.testing.assert_allclose(ours, theirs, rtol=TOLERANCE, err_msg=f"{name}: {field}")
    return seen


def check_rates(golden: dict) -> None:
    table = golden["mixing_rate_num_examples"]
    for row in table["rows"]:
        case = dict(zip(table["columns"], row, strict=True))
        rule = BySize(case["maximum"], case["temperature"], case["scale"])
        assert rate_of(rule, case["num_examples"]) == pytest.approx(case["rate"], rel=TOLERANCE), case


def check_alpha(golden: dict) -> None:
    for case in golden["alpha_sampling"]:
        for rule in (ByAlpha(case["alpha"]), BySize(temperature=case["temperature"])):
            mixture = mixed("languages", *((name, rule) for name in case["sizes"]))
            rates = task_rates(mixture, {name: Size(examples=size) for name, size in case["sizes"].items()})
            for ours, field in ((rates.rates, "rates"), (rates.probabilities, "probability")):
                np.testing.assert_allclose(ours, [case[field][name] for name in rates.names], rtol=TOLERANCE)


@pytest.mark.golden
def test_mixtures_have_the_rates_of_seqio():
    files = read_golden(golden_dir("seqio"))
    assert files
    for golden in files:
        seen = check_mixtures(golden)
        assert seen[False] and seen[True]
        check_rates(golden)
        check_alpha(golden)


@pytest.mark.golden
def test_published_weights_give_the_published_probabilities():
    for golden in read_golden(golden_dir("seqio")):
        for name, case in golden["published_weights"].items():
            rates = task_rates(mixed(name, *case["rates"].items()))
            theirs = [case["probability"][task] for task in rates.names]
            assert rates.total == pytest.approx(case["total"], rel=TOLERANCE)
            np.testing.assert_allclose(rates.probabilities, theirs, rtol=TOLERANCE)


def test_a_case_of_our_own_through_the_golden_code(tmp_path):
    case = {
        "rate_functions": {"EX": "mixing_rate_num_examples"},
        "tasks": {"p": 9, "q": 27},
        "mixing_rate_num_examples": {
            "columns": ["num_examples", "maximum", "temperature", "scale", "rate"],
            "rows": [[64, 36, 2.0, 1.0, 6.0], [64, 0, 0.5, 0.25, 256.0]],
        },
        "alpha_sampling": [
            {
                "alpha": 0.5,
                "temperature": 2.0,
                "sizes": {"p": 16, "q": 4},
                "rates": {"p": 4.0, "q": 2.0},
                "probability": {"p": 2 / 3, "q": 1 / 3},
            }
        ],
        "mixtures": {
            "inner": {
                "members": [["p", "EX"], ["q", "EX"]],
                "all_tasks": ["p", "q"],
                "total_rate": 36.0,
                "get_rate": {"p": 9.0, "q": 27.0},
                "probability": {"p": 0.25, "q": 0.75},
                "defective": False,
            },
            "outer": {
                "members": [["inner", 2.0], ["p", 0.5]],
                "all_tasks": ["p", "q"],
                "total_rate": 2.5,
                "get_rate": {"p": 1.0, "q": 1.5},
                "probability": {"p": 0.4, "q": 0.6},
                "defective": False,
            },
            "wrong": {"members": [["inner", "EX"]], "all_tasks": ["p", "q"], "defective": True},
        },
    }
    (tmp_path / "mixing_rates.json").write_text(json.dumps(case))
    (golden,) = read_golden(tmp_path)
    assert check_mixtures(golden) == {False: 2, True: 1}
    check_rates(golden)
    check_alpha(golden)
    golden["mixtures"]["outer"]["get_rate"]["p"] = 1.01
    with pytest.raises(AssertionError, match="outer: get_rate"):
        check_mixtures(golden)


@pytest.mark.short
def test_t0_shares_the_cap_among_the_templates_of_large_sets():
    rule = PerTemplate(templates=7)
    assert [rate_of(rule, size) for size in (499_999, 500_000, 500_001, 10**9)] == [499_999, 500_000, 71_428, 71_428]


@pytest.mark.short
def test_sizes_are_those_of_the_unit():
    sizes = {
        "a": Size(examples=1, documents=9, characters=100, tokens=10),
        "b": Size(examples=4, documents=16, characters=400, tokens=90),
    }
    for unit, expected in (
        ("examples", [1, 2]),
        ("documents", [3, 4]),
        ("characters", [10, 20]),
        ("tokens", [10**0.5, 90**0.5]),
    ):
        rates = task_rates(mixed("m", *((name, ByAlpha(0.5, unit)) for name in "ab")), sizes)
        np.testing.assert_allclose(rates.rates, expected)


@pytest.mark.short
def test_unknown_sizes_are_named_all_at_once():
    inner = mixed("inner", ("a", BySize(unit="tokens")), ("b", 1.0))
    mixture = mixed("m", (inner, 1.0), ("b", BySize()), ("c", ByAlpha()))
    known = {"c": Size(examples=3), "a": Size(examples=3)}
    assert uncounted(mixture, known) == {("a", "tokens"), ("b", "examples")}
    with pytest.raises(ValueError, match="not known: tokens of 'a', examples of 'b'"):
        task_rates(mixture, known)
    with pytest.raises(ValueError, match="needs the number of examples, which is unknown"):
        rate_of(BySize())


@settings(deadline=None)
@given(
    st.dictionaries(st.sampled_from("abcdefgh"), st.just(0.0) | st.floats(1e-9, 1e6), min_size=1), st.floats(0.1, 1e3)
)
def test_a_mixture_of_one_mixture_is_that_mixture(rates, weight):
    if not any(rates.values()):
        return
    inner = mixed("inner", *rates.items())
    outer = task_rates(mixed("outer", (inner, weight)))
    np.testing.assert_allclose(outer.probabilities, task_rates(inner).probabilities, rtol=1e-12)
    assert math.isclose(outer.probabilities.sum(), 1, rel_tol=1e-12)


@pytest.mark.short
@pytest.mark.parametrize(
    ("rate", "message"),
    [
        (-1.0, "rate -1.0 must be finite, and 0 or more"),
        (math.nan, "rate nan must be finite"),
        (math.inf, "rate inf must be finite"),
        (BySize(temperature=0), "temperature 0 must be finite, and above 0"),
        (BySize(scale=-2.0), "scale -2.0 must be finite, and above 0"),
        (BySize(maximum=-5), "maximum -5 must be 0 or more"),
        (BySize(maximum=math.nan), "maximum nan must be 0 or more"),
        (ByAlpha(-0.3), "alpha -0.3 must be finite, and 0 or more"),
        (PerTemplate(0), "needs 1 template or more"),
        (PerTemplate(9, maximum=8), "a maximum of at least one example"),
    ],
)
def test_wrong_rates_name_mixture_and_part(rate, message):
    with pytest.raises(ValueError, match=f"mixture 'm', part 'a': .*{message}"):
        task_rates(mixed("m", ("a", rate), ("b", 1.0)), {"a": Size(examples=5)})


@pytest.mark.short
def test_names_stand_for_one_thing():
    with pytest.raises(ValueError, match="mixture 'm' lists 'a' twice; add the two rates"):
        task_rates(mixed("m", ("a", 1.0), ("a", 2.0)))
    other = Mixture("n", (Weighted(Task("a", TextFiles(("else.txt",)))),))
    with pytest.raises(ValueError, match="'a' is the name of two different things"):
        task_rates(mixed("m", ("a", 1.0), (other, 1.0)))
    two = (mixed("twin", ("a", 1.0)), mixed("twin", ("b", 1.0)))
    with pytest.raises(ValueError, match="'twin' is the name of two different things"):
        task_rates(mixed("m", (mixed("x", (two[0], 1.0)), 1.0), (two[1], 1.0)))
    for parts in ((("n", 1.0), (other, 1.0)), ((other, 1.0), (mixed("x", ("n", 1.0)), 1.0))):
        with pytest.raises(ValueError, match=r"'n' is the name of two different things|lists 'n' twice"):
            task_rates(mixed("m", *parts))


class CountedSizes(dict):
    """Sizes that end a walk which asks for them without end."""

    looks = 0

    def get(self, *arguments):
        self.looks += 1
        assert self.looks < 1000
        return super().get(*arguments)


@pytest.mark.short
def test_a_mixture_that_many_paths_lead_to_is_walked_once():
    left, right = mixed("left", ("a", BySize())), mixed("right", ("b", BySize()))
    for level in range(40):
        both = ((left, 1.0), (right, 3.0))
        left, right = mixed(f"left {level}", *both), mixed(f"right {level}", *both)
    root = mixed("root", (left, 1.0), (right, 1.0))
    assert uncounted(root, CountedSizes()) == {("a", "examples"), ("b", "examples")}
    sizes = CountedSizes(a=Size(examples=5), b=Size(examples=7))
    np.testing.assert_allclose(task_rates(root, sizes).probabilities, [0.25, 0.75], rtol=TOLERANCE)


@pytest.mark.short
def test_a_mixture_inside_of_itself_is_shown():
    ring = mixed("ring", ("a", 1.0))
    middle = mixed("middle", (ring, 1.0))
    object.__setattr__(ring, "parts", (Weighted(middle),))
    with pytest.raises(ValueError, match="mixture 'ring' contains itself: ring > middle > ring"):
        task_rates(ring)


@pytest.mark.short
def test_tasks_without_examples_are_named_unless_they_are_never_drawn():
    sizes = {"a": Size(examples=0)}
    with pytest.raises(ValueError, match="mixture 'm', part 'a': the task has no examples"):
        task_rates(mixed("m", ("a", BySize()), ("b", 1.0)), sizes)
    assert task_rates(mixed("m", ("a", 0.0), ("b", 1.0)), sizes).rates.tolist() == [0, 1]


@pytest.mark.short
def test_epochs_belong_to_tasks_and_agree():
    parts = (Weighted(task("a"), 1.0, epochs=2), Weighted(task("b"), 3.0))
    assert task_rates(Mixture("m", parts)).epochs == (2, None)
    for wrong, message in (
        (Mixture("m", (Weighted(task("a"), 1.0, epochs=0),)), "0 epochs; must be 1 or more"),
        (Mixture("m", (Weighted(Mixture("n", parts), 1.0, epochs=2),)), "epochs belong to tasks"),
        (mixed("m", (Mixture("n", parts), 1.0), ("a", 1.0)), "None epochs here, but 2 elsewhere"),
    ):
        with pytest.raises(ValueError, match=message):
            task_rates(wrong)


@pytest.mark.short
def test_rates_that_leave_the_range_of_numbers_are_refused():
    with pytest.raises(ValueError, match=r"the rates add up to 0\.0"):
        task_rates(Mixture("empty", ()))
    with pytest.raises(ValueError, match="the rates add up to inf"):
        task_rates(mixed("m", ("a", 1e308), ("b", 1e308)))
    with pytest.raises(ValueError, match="is no size"):
        rate_of(BySize(), -1)
    for rule in (ByAlpha(500.0), BySize(temperature=1e-3)):
        with pytest.raises(ValueError, match="gives a rate of inf for a size of 40"):
            rate_of(rule, 40)
    with pytest.raises(ValueError, match="mixture 'm', part 'a': its rate is a number of more than 308 digits"):
        task_rates(mixed("m", ("a", 10**400), ("b", 1)))
    with pytest.raises(ValueError, match="mixture 'm', part 'a': more than 1,000,000 epochs"):
        task_rates(Mixture("m", (Weighted(task("a"), 1.0, epochs=10**30),)))


def test_a_thousand_nested_tasks_are_planned_in_time():
    groups = [
        mixed(f"group {g}", *((f"task {g} {t}", BySize(maximum=5000, temperature=2)) for t in range(50)))
        for g in range(20)
    ]
    mixture = mixed("all", *((group, 1.0 + g) for g, group in enumerate(groups)))
    sizes = {f"task {g} {t}": Size(examples=1 + g * t**3) for g in range(20) for t in range(50)}
    rates, calls = calls_of(lambda: task_rates(mixture, sizes))
    assert calls < 80_000, calls
    assert len(rates.tasks) == 1000 and math.isclose(rates.probabilities.sum(), 1)
