import json
from pathlib import Path

import pytest
from golden_data import golden_dir

from spanloom.tasks.span_lengths import SpanLengths, check_sentinels, noise_counts, span_lengths


def check_golden_file(path: Path) -> int:
    """Compare each row of a span_lengths.json with ours; how many rows there were."""
    content = json.loads(path.read_text(encoding="utf-8"))
    for values in content["rows"]:
        check_row(dict(zip(content["columns"], values, strict=True)))
    return len(content["rows"])


def check_row(row: dict) -> None:
    settings = row["inputs_length"], row["noise_density"], row["mean_noise_span_length"]
    if row["mask_infeasible"] or not 0 < row["noise_density"] < 1 or row["mean_noise_span_length"] < 1:
        with pytest.raises(ValueError, match=r"mean_span_length|noise_density"):
            span_lengths(*settings)
        return
    lengths = span_lengths(*settings)
    assert_fits(lengths, row["noise_density"], row["mean_noise_span_length"])
    if not row["helper_mask_disagree"]:
        assert (lengths.raw_length, lengths.targets_length) == (row["tokens_length"], row["targets_length"]), settings
        assert lengths.num_noise_tokens == row["mask_num_noise_tokens"], settings
        assert lengths.num_spans == row["mask_num_spans"], settings
        if lengths.num_spans > 100:
            assert row["over_100_spans"], settings
            with pytest.raises(ValueError, match=f"masked in {lengths.num_spans} spans"):
                check_sentinels(lengths, 100)
        else:
            assert not row["over_100_spans"], settings
            check_sentinels(lengths, 100)


def assert_fits(lengths: SpanLengths, density: float, mean: float) -> None:
    """Inputs and targets of whole pieces and of all shorter ones have room in their slots."""
    assert noise_counts(lengths.raw_length, density, mean) == (lengths.num_noise_tokens, lengths.num_spans)
    shorter = range(max(lengths.raw_length - 40, 0), lengths.raw_length + 1)
    for raw_length in (*range(min(40, lengths.raw_length)), *shorter):
        tokens, spans = noise_counts(raw_length, density, mean)
        assert raw_length - tokens + spans + 1 <= lengths.inputs_length
        assert tokens + max(spans, 1 if raw_length else 0) + 1 <= lengths.targets_length
        assert spans <= min(tokens, raw_length - tokens)


@pytest.mark.golden
def test_golden_lengths() -> None:
    assert check_golden_file(golden_dir("seqio", "span_lengths.json")) > 0


COLUMNS = [
    *("inputs_length", "noise_density", "mean_noise_span_length", "tokens_length", "targets_length"),
    *("mask_num_noise_tokens", "mask_num_spans", "helper_mask_disagree", "mask_infeasible", "over_100_spans"),
]


def own_row(inputs_length: int, density: float, mean: float) -> list:
    """The reference's helper and mask in plain floats: good where no product ends in .5."""
    counts = lambda length: (round(length * density), round(round(length * density) / mean))  # noqa: E731
    raw = inputs_length - 1
    while raw + 1 - counts(raw + 1)[0] + counts(raw + 1)[1] + 1 <= inputs_length:
        raw += 1
    tokens, spans = counts(raw)
    infeasible = spans > raw - tokens
    values = (raw, tokens + spans + 1, tokens, spans, False, infeasible, spans > 100)
    return [inputs_length, density, mean, *values]


@pytest.mark.short
def test_a_case_of_our_own_through_the_golden_reader(tmp_path: Path) -> None:
    rows = [
        own_row(*settings) for settings in ((333, 0.17, 2.5), (999, 0.31, 7.0), (4000, 0.21, 4.0), (300, 0.81, 1.0))
    ]
    assert [row[-2:] for row in rows] == [[False, False], [False, False], [False, True], [True, True]]
    path = tmp_path / "span_lengths.json"
    path.write_text(json.dumps({"columns": COLUMNS, "rows": rows}))
    assert check_golden_file(path) == 4
    rows[0][3] += 1
    path.write_text(json.dumps({"columns": COLUMNS, "rows": rows}))
    with pytest.raises(AssertionError):
        check_golden_file(path)


@pytest.mark.short
def test_published_lengths() -> None:
    assert span_lengths(512, 0.15, 3.0) == SpanLengths(568, 512, 114, 85, 28)
    assert span_lengths(1024, 0.15, 20.0) == SpanLengths(1193, 1024, 189, 179, 9)
    assert span_lengths(512, 0.5, 3.0) == SpanLengths(766, 512, 512, 383, 128)


@pytest.mark.short
def test_halves_are_rounded_to_even_in_exact_decimals() -> None:
    assert noise_counts(710, 0.15, 3.0) == (106, 35)  # 106.5, of which float32 makes 107
    assert noise_counts(730, 0.15, 3.0)[0] == 110  # 109.5
    assert noise_counts(90, 0.35, 1.0)[0] == 32  # 31.5; float64 has 31.499999999999996
    lengths = span_lengths(640, 0.15, 3.0)
    assert lengths.raw_length - lengths.num_noise_tokens + lengths.num_spans + 1 <= 640
    assert lengths.num_noise_tokens + lengths.num_spans + 1 == lengths.targets_length


@pytest.mark.short
def test_short_pieces() -> None:
    assert [noise_counts(length, 0.15, 3.0) for length in (0, 1, 2, 3, 10, 20)] == [
        (0, 0), (0, 0), (1, 1), (1, 1), (2, 1), (3, 1),
    ]  # fmt: skip
    # 7 tokens at density 0.5 and mean 1: 4 masked tokens in 4 spans would need 4 that stay.
    assert noise_counts(7, 0.5, 1.0) == (4, 3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ((512, 0.0, 3.0), "noise_density=0.0 is no share"),
        ((512, 1.0, 3.0), "noise_density=1.0 is no share"),
        ((512, -0.1, 3.0), "noise_density"),
        ((512, float("nan"), 3.0), "noise_density"),
        ((512, 0.15, 0.5), "mean_span_length=0.5 is below one token"),
        ((512, 0.15, float("inf")), "mean_span_length"),
        ((512, 0.15, float("nan")), "mean_span_length"),
        ((2, 0.15, 3.0), "use at least 3"),
        ((0, 0.15, 3.0), "use at least 3"),
        ((20, 0.6, 1.0), "lower the density or use longer spans"),
    ],
)
def test_settings_without_a_mask_are_refused_with_the_reason(settings: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        span_lengths(*settings)


def test_the_sentinel_budget_names_settings_that_fit() -> None:
    lengths = span_lengths(2048, 0.15, 3.0)
    with pytest.raises(ValueError, match=r"114 spans .*has 100 sentinels.*about 4.*about 1796"):
        check_sentinels(lengths, 100)
    check_sentinels(span_lengths(2048, 0.15, 4.0), 100)
    check_sentinels(span_lengths(1796, 0.15, 3.0), 100)
    with pytest.raises(ValueError, match=r"has 0 sentinels, .* need 114: .*--task\.vocabulary\.extra-ids 114") as error:
        check_sentinels(lengths, 0)
    assert "inputs_length" not in str(error.value), "no length does without sentinels"


def test_lengths_of_enormous_inputs_come_at_once_and_are_the_largest_that_fit() -> None:
    for density, mean in [(0.15, 3.0), (0.01, 1.0), (0.9, 64.0), (0.3, 1000.0)]:
        lengths = span_lengths(2**31 - 1, density, mean)
        assert_fits(lengths, density, mean)
        tokens, spans = noise_counts(lengths.raw_length + 1, density, mean)
        assert lengths.raw_length + 1 - tokens + spans + 1 > lengths.inputs_length
