"""Span corruption against recorded values of SeqIO and t5; every reader also gets a case made here."""

import json
import math
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from golden_data import golden_dir
from one_piece import corrupt_one

from spanloom.settings.objectives import SpanCorruption
from spanloom.settings.vocabulary import Bytes
from spanloom.tasks.randomness import hash64, key_of
from spanloom.tasks.span_corruption import apply_mask_block, noise_mask_block
from spanloom.tasks.span_lengths import noise_counts, span_lengths
from spanloom.vocabularies.build import build

BYTES_GOOGLE = tuple(range(258, 247, -1))
SENTINELS = {
    "t5": tuple(range(32099, 31999, -1)),
    "mt5": tuple(range(250099, 249999, -1)),
    "byte": BYTES_GOOGLE,
    "byte0": BYTES_GOOGLE,
    "byt5": BYTES_GOOGLE,
    "byte125": tuple(range(383, 258, -1)),
}


def sentinels_of(vocabulary: str) -> tuple[int, ...]:
    """Sentinels of a vocabulary by its name, or by a description such as 'ByteVocabulary, extra_ids=0, ...'."""
    name = vocabulary.split()[0].rstrip(",")
    if name == "ByteVocabulary":
        name = "byte125" if "extra_ids=125" in vocabulary else "byte"
    return SENTINELS[name]


def read_lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


def mask_of(text: str) -> np.ndarray:
    return np.array([character == "1" for character in text], dtype=np.bool_)


def noise(tokens: list[int], mask: np.ndarray, sentinels: tuple[int, ...]) -> tuple[list[int], list[int]]:
    inputs, targets = apply_mask_block(np.array(tokens, np.int32).reshape(1, -1), mask[None], sentinels)
    return inputs[0].tolist(), targets[0].tolist()


# --- span_noising.jsonl


def check_noising_row(row: dict) -> None:
    tokens, mask, sentinels = row["tokens"], mask_of(row["mask"]), sentinels_of(row["vocab"])
    where = (row["vocab"], row["kind"], row["length"])
    needed = row["noise_spans"] + (len(tokens) > 0 and not mask[-1])
    if needed > len(sentinels):
        with pytest.raises(ValueError, match="sentinels"):
            noise(tokens, mask, sentinels)
        return
    inputs, targets = noise(tokens, mask, sentinels)
    if row["defective"]:
        assert (inputs, targets) == in_step(tokens, row["mask"], sentinels), where
    else:
        assert inputs == row["noise_span_to_unique_sentinel"], where
        assert targets == row["nonnoise_span_to_unique_sentinel"], where


def in_step(tokens: list[int], mask: str, sentinels: tuple[int, ...]) -> tuple[list[int], list[int]]:
    """What is right where the reference is not: sentinel k marks the k-th masked span on both sides. One by one."""
    inputs: list[int] = []
    targets: list[int] = []
    spans = 0
    for position, (token, noisy) in enumerate(zip(tokens, mask, strict=True)):
        if noisy == "1" and (position == 0 or mask[position - 1] == "0"):
            inputs.append(sentinels[spans])
            targets.append(sentinels[spans])
            spans += 1
        (targets if noisy == "1" else inputs).append(token)
    if mask.endswith("0"):
        targets.append(sentinels[spans])
    return inputs, targets


@pytest.mark.golden
def test_golden_noising() -> None:
    rows = read_lines(golden_dir("seqio", "span_noising.jsonl"))
    for row in rows:
        check_noising_row(row)
    assert rows


@pytest.mark.short
def test_a_noising_case_of_our_own(tmp_path: Path) -> None:
    def row(vocab: str, tokens: list[int], mask: str, inputs: list[int], targets: list[int], defective: bool) -> dict:
        return {
            "vocab": vocab,
            "kind": "own",
            "length": len(tokens),
            "tokens": tokens,
            "mask": mask,
            "noise_span_to_unique_sentinel": inputs,
            "nonnoise_span_to_unique_sentinel": targets,
            "drop_noise_tokens": [t for t, m in zip(tokens, mask, strict=True) if m == "0"],
            "drop_nonnoise_tokens": [t for t, m in zip(tokens, mask, strict=True) if m == "1"],
            "noise_spans": sum(run != "" for run in mask.split("0")),
            "defective": defective,
        }

    rows = [
        row("t5", [11, 12, 13, 14, 15], "01101", [11, 32099, 14, 32098], [32099, 12, 13, 32098, 15], False),
        row("byte125", [9, 8, 7], "010", [9, 383, 7], [383, 8, 382], False),
        row("byte", list(range(3, 29)), "01" * 13, [], [], True),
        row("mt5", [5, 6, 7], "101", [], [], True),
        row("t5", [], "", [], [], False),
    ]
    path = tmp_path / "span_noising.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for own in read_lines(path):
        check_noising_row(own)
    rows[0]["nonnoise_span_to_unique_sentinel"][0] -= 1
    with pytest.raises(AssertionError):
        check_noising_row(rows[0])


# --- span_mask_stats.json

CHUNK = 4096


def statistics(masks: Iterable[np.ndarray]) -> dict:
    """What the golden file records of a sample of masks, here of blocks (n, length)."""
    by_position: np.ndarray | int = 0
    histograms: dict[bool, Counter] = {True: Counter(), False: Counter()}
    adjacent = draws = 0
    starts = ends = True
    counts = set()
    for mask_NxL in masks:
        draws += len(mask_NxL)
        by_position = by_position + mask_NxL.sum(axis=0)
        adjacent += int((mask_NxL[:, 1:] & mask_NxL[:, :-1]).sum())
        starts &= not mask_NxL[:, 0].any()
        ends &= bool(mask_NxL[:, -1].all())
        new_NxL = np.ones_like(mask_NxL)
        new_NxL[:, 1:] = mask_NxL[:, 1:] != mask_NxL[:, :-1]
        begins = np.flatnonzero(new_NxL)
        lengths = np.diff(begins, append=mask_NxL.size)
        noisy = mask_NxL.ravel()[begins]
        for kind, histogram in histograms.items():
            histogram.update(lengths[noisy == kind].tolist())
        spans_N = (new_NxL & mask_NxL).sum(axis=1)
        counts |= set(zip(mask_NxL.sum(axis=1).tolist(), spans_N.tolist(), strict=True))
    ((num_noise, num_spans),) = counts
    return {
        "draws": draws,
        "num_noise_tokens": num_noise,
        "num_noise_spans": num_spans,
        "noise_count_by_position": np.asarray(by_position).tolist(),
        "noise_span_length_histogram": {str(k): v for k, v in histograms[True].items()},
        "nonnoise_span_length_histogram": {str(k): v for k, v in histograms[False].items()},
        "always_starts_with_nonnoise": starts,
        "always_ends_with_noise": ends,
        "pair_count_adjacent_noise": adjacent,
    }


def draw_masks(seed: int, length: int, density: float, mean: float, draws: int) -> Iterable[np.ndarray]:
    for start in range(0, draws, CHUNK):
        keys = hash64(seed, np.arange(start, min(start + CHUNK, draws)))
        yield noise_mask_block(keys, length, density, mean)


def check_mask_case(case: dict, draws: int) -> None:
    settings = case["length"], case["noise_density"], case["mean_noise_span_length"]
    seed = key_of(f"masks {settings}")
    ours = statistics(draw_masks(seed, *settings, draws))
    for name in ("num_noise_tokens", "num_noise_spans", "always_starts_with_nonnoise", "always_ends_with_noise"):
        assert ours[name] == case[name], (settings, name)
    assert ours["pair_count_adjacent_noise"] * case["draws"] == case["pair_count_adjacent_noise"] * draws, settings
    compare_positions(ours, case, settings)
    for name in ("noise_span_length_histogram", "nonnoise_span_length_histogram"):
        assert_same_distribution(ours[name], case[name], (settings, name))


def compare_positions(ours: dict, case: dict, where: object) -> None:
    a, b = np.array(ours["noise_count_by_position"]), np.array(case["noise_count_by_position"])
    n_a, n_b = ours["draws"], case["draws"]
    pooled = (a + b) / (n_a + n_b)
    certain = (pooled == 0) | (pooled == 1)
    error = np.sqrt(pooled * (1 - pooled) * (1 / n_a + 1 / n_b))
    z = np.abs(a / n_a - b / n_b)[~certain] / error[~certain]
    assert z.max(initial=0) < 5, where


def assert_same_distribution(ours: dict[str, int], theirs: dict[str, int], where: object) -> None:
    """Chi-square of two histograms, rare lengths put together; below five standard deviations."""
    total_a, total_b = sum(ours.values()), sum(theirs.values())
    bins: list[list[int]] = [[0, 0]]
    for length in sorted({int(key) for key in ours | theirs}):
        if sum(bins[-1]) >= 40:
            bins.append([0, 0])
        bins[-1][0] += ours.get(str(length), 0)
        bins[-1][1] += theirs.get(str(length), 0)
    k = math.sqrt(total_b / total_a)
    square = sum((k * a - b / k) ** 2 / (a + b) for a, b in bins)
    freedom = max(len(bins) - 1, 1)
    assert square < freedom + 5 * math.sqrt(2 * freedom) + 5, where


@pytest.mark.golden
def test_golden_mask_statistics() -> None:
    cases = json.loads(golden_dir("seqio", "span_mask_stats.json").read_text(encoding="utf-8"))["cases"]
    for case in cases:
        check_mask_case(case, 40_960)
    assert cases


def test_a_mask_case_of_our_own(tmp_path: Path) -> None:
    """SeqIO's own way of drawing, token by token with another generator, through the same reader."""
    length, density, mean, draws = 50, 0.3, 4.0, 4000
    generator = np.random.default_rng(7)

    def composition(total: int, parts: int) -> np.ndarray:
        first = np.arange(total - 1) < parts - 1
        generator.shuffle(first)
        return np.bincount(np.cumsum(np.concatenate([[False], first])), minlength=parts)

    masks = np.empty((draws, length), dtype=np.bool_)
    for mask in masks:
        runs = np.stack([composition(35, 4), composition(15, 4)], axis=1).ravel()
        mask[:] = np.repeat(np.tile([False, True], 4), runs)
    case = {"length": length, "noise_density": density, "mean_noise_span_length": mean, **statistics([masks])}
    path = tmp_path / "span_mask_stats.json"
    path.write_text(json.dumps({"cases": [case]}))
    check_mask_case(json.loads(path.read_text())["cases"][0], 20_480)
    case["noise_count_by_position"][20] += draws // 10
    with pytest.raises(AssertionError):
        check_mask_case(case, 20_480)


# --- end_to_end_span_corruption.jsonl: from raw and mask to inputs and targets (the segments: tests/pipeline)


def check_segments(rows: list[dict]) -> int:
    configs = {row["config"]: row for row in rows if row["row"] == "config"}
    segments = [row for row in rows if row["row"] == "segment"]
    for row in segments:
        config = configs[row["config"]]
        sentinels = sentinels_of(config["vocab"])
        settings = config["noise_density"], config["mean_noise_span_length"]
        lengths = span_lengths(config["inputs_length"], *settings)
        assert (lengths.raw_length, lengths.targets_length) == (config["raw_length"], config["targets_length"])
        inputs, targets = noise(row["raw"], mask_of(row["mask"]), sentinels)
        where = (row["config"], row["index"])
        assert [*inputs, 1] == row["inputs"], where
        assert [*targets, 1] == row["targets"], where
        assert noise_counts(len(row["raw"]), *settings) == (row["mask"].count("1"), row["mask"].count("01")), where
    return len(segments)


@pytest.mark.golden
def test_golden_segments() -> None:
    assert check_segments(read_lines(golden_dir("seqio", "end_to_end_span_corruption.jsonl"))) > 0


@pytest.mark.short
def test_a_segment_of_our_own(tmp_path: Path) -> None:
    raw = list(range(3, 23))
    config = {"row": "config", "config": "byt5", "vocab": "ByteVocabulary, extra_ids=0, vocab_size 259"}
    config |= {"inputs_length": 1024, "noise_density": 0.15}
    config |= {"mean_noise_span_length": 20.0, "raw_length": 1193, "targets_length": 189}
    segment = {"row": "segment", "config": "byt5", "index": 0, "raw": raw, "mask": "0" * 17 + "111"}
    segment |= {"inputs": [*raw[:17], 258, 1], "targets": [258, *raw[17:], 1]}
    path = tmp_path / "end_to_end.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in (config, segment)))
    assert check_segments(read_lines(path)) == 1
    # One span in the tail is the only possible mask, so drawing one gives the same example.
    drawn = corrupt_one(np.array(raw), 5, SpanCorruption(1024, 0.15, 20.0), build(Bytes("google")))
    assert drawn["inputs"].tolist() == segment["inputs"] + [0] * (1024 - 19)
    assert drawn["targets"].tolist() == segment["targets"] + [0] * (189 - 5)
    segment["inputs"][0] += 1
    with pytest.raises(AssertionError):
        check_segments([config, segment])
