"""What T0 reaches on the data sets that it is judged by, as published: rank accuracy, mean over prompts."""

from spanloom.settings.published import Published, PublishedModel

_DATA_SETS = {
    "ANLI": ("anli_r1", "anli_r2", "anli_r3"),
    "HellaSwag": ("hellaswag",),
    "StoryCloze": ("story_cloze_2016",),
    "CB": ("super_glue_cb",),
    "COPA": ("super_glue_copa",),
    "RTE": ("super_glue_rte",),
    "WiC": ("super_glue_wic",),
    "WSC": ("super_glue_wsc.fixed",),
    "Winogrande": ("winogrande_winogrande_xl",),
}
_PAPER = "Sanh et al. 2022, Multitask Prompted Training Enables Zero-Shot Task Generalization"
_RERUN = (
    "a later rerun in T5X, 20,000 steps of 2,048 sequences with a later promptsource (Ivison et al. 2023, HINT: "
    "Hypernetwork Instruction Tuning)"
)


def _model(name: str, source: str, *scores: float) -> PublishedModel:
    return PublishedModel(name, source, dict(zip(_DATA_SETS, scores, strict=True)))


PUBLISHED = Published(
    "rank_accuracy",
    _DATA_SETS,
    (
        _model("T0 11B", _PAPER, 41.0, 33.6, 92.4, 70.1, 91.5, 81.0, 56.1, 61.1, 59.9),
        _model("T0-3B", _PAPER, 33.4, 27.2, 84.0, 45.4, 75.9, 64.6, 50.7, 65.1, 51.0),
        _model("T0 11B, rerun", _RERUN, 46.8, 34.1, 98.2, 81.2, 96.6, 84.0, 52.1, 62.6, 64.8),
        _model("T0-3B, rerun", _RERUN, 41.7, 30.1, 96.9, 72.7, 89.1, 81.2, 51.7, 57.2, 59.2),
    ),
)
"""Their averages are 65.2, 55.3, 68.9 and 64.4."""
