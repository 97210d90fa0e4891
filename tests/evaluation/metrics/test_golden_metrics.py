"""Every case of t5.evaluation.metrics that the reference has; duplicate options, which it accepts, are refused."""

import ast
import inspect
import json
import math
import re

import pytest
from golden_data import golden_dir

from spanloom.evaluation import metrics
from spanloom.settings.measures import metric_of
from spanloom.tasks.functions import resolve

REL = 1e-6  # the reference's own tolerance; scores in float32: 1e-5
WRAPPED = re.compile(r"(?P<name>\w+) \(sklearn_metrics_wrapper(?P<percent>, x100)?\)")
NESTED = re.compile(r"(?P<outer>\w+)\((?P<inner>\w+)(?P<flags>(, \w+)*)\)")
SETTING = re.compile(r"(\w+)=(True|False|[-+.\d]+)")


def cases():
    return json.loads((golden_dir("seqio") / "postprocess_metrics.json").read_text(encoding="utf-8"))["metrics"]


def settings_of(case):
    """Arguments, also those that stand in the note alone."""
    note = case.get("note", "") if "=" in case.get("note", "") else ""
    noted = {key: ast.literal_eval(value) for key, value in SETTING.findall(note)} if not case["args"] else {}
    return {**noted, **case["args"], **{key: case[key] for key in ("num_classes",) if key in case}}


def call(case):
    settings = settings_of(case)
    given = case["scores"] if "scores" in case else case["predictions"]
    targets = case["targets"]
    if wrapped := WRAPPED.fullmatch(case["metric"]):
        scale = 100.0 if wrapped["percent"] else 1.0
        return metrics.sklearn_metric(targets, given, metric=wrapped["name"], scale=scale, **settings)
    if nested := NESTED.fullmatch(case["metric"]):
        flags = {flag: True for flag in nested["flags"].split(", ") if flag}
        return resolve(metric_of(nested["outer"]))(targets, given, metric=nested["inner"], **flags, **settings)
    metric = resolve(metric_of(case["metric"]))
    known = inspect.signature(metric).parameters
    return metric(targets, given, **{key: value for key, value in settings.items() if key in known})


def number(value):
    return math.nan if value == "nan" else value


@pytest.mark.golden
def test_every_case():
    seen = set()
    for case in cases():
        if "error" in case or "duplicate_index_accepted" in case.get("defect_reasons", ()):
            with pytest.raises(ValueError, match=r"options, not num_classes=|is given twice"):
                call(case)
            continue
        if case["defective"]:
            continue
        found, wanted = call(case), {name: number(value) for name, value in case["result"].items()}
        tolerance = {"abs": 2.0} if case.get("random") else {"rel": 1e-5 if "scores" in case else REL}
        assert found == pytest.approx(wanted, nan_ok=True, **tolerance), (case["metric"], case["args"])
        seen.add(case["metric"])
    assert {"bleu", "rouge_mean", "squad", "rank_classification", "deduplicate_metric(squad)"} <= seen
