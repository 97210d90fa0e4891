import pytest

from spanloom.settings.nearest import did_you_mean, nearest

pytestmark = pytest.mark.short

KNOWN = ["steps", "batch_size", "eval.batch_size", "optimizer.learning_rate", "task.objective.inputs_length"]


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("step", "steps"),
        ("batchsize", "batch_size"),
        ("batch-sise", "batch_size"),
        ("learning_rate", "optimizer.learning_rate"),
        ("optimiser.learning-rate", "optimizer.learning_rate"),
        ("inputs-length", "task.objective.inputs_length"),
        ("objective.inputs_length", "task.objective.inputs_length"),
    ],
)
def test_nearest_name(name, first):
    assert nearest(name, KNOWN)[0] == first


def test_messages():
    assert did_you_mean("step", KNOWN) == "; did you mean steps?"
    assert did_you_mean("zzz", KNOWN).startswith("; known are steps, batch_size")
    assert did_you_mean("zzz", []) == ""
    assert did_you_mean("zzz", [f"field{i}" for i in range(50)]) == ""


def test_letter_case_and_dashes_are_no_difference():
    assert nearest("Text", ["texts", "text"])[0] == "text"
    assert nearest("BATCH-SIZE", ["batch_sizes", "batch_size"])[0] == "batch_size"


def test_a_point_in_a_file_name_parts_no_groups():
    assert nearest("a.txt", ["zzzzzzzzzz.txt"], dotted=False) == []
    assert nearest("a.txt", ["zzzzzzzzzz.txt"]) == ["zzzzzzzzzz.txt"]
    assert nearest("novel.txt", ["novels.txt", "zzzzzzzzzz.txt"], dotted=False) == ["novels.txt"]


def test_how_like_a_name_must_be():
    assert nearest("warmup", ["linear_warmup"], likeness=0.9) == []
    assert nearest("warmup", ["constant", "linear_warmup"], count=1, likeness=0.0) == ["linear_warmup"]
