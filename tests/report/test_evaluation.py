import pytest

from spanloom.evaluation.result_rows import TASK, Row, with_averages
from spanloom.report.evaluation import evaluation_text

pytestmark = pytest.mark.short
ROWS = [
    Row("m", TASK, "glue_mrpc", template, f"glue_mrpc_{template}", 1000, {"heldout_loss": loss, "rank_accuracy": 50.0})
    for template, loss in (("equivalent", 1.0), ("a [b] :smile: one", 2.5))
]


def test_a_table_in_a_pipe_and_on_a_terminal():
    plain = evaluation_text(with_averages(ROWS), width=None, colour=False)
    head, first, second, mean, *_ = plain.splitlines()
    assert head.split() == ["data", "set", "template", "examples", "heldout_loss", "rank_accuracy"]
    assert first.split() == ["glue_mrpc", "equivalent", "1,000", "1.0000", "50.00"]
    assert "a [b] :smile: one" in second and mean.split()[1:] == ["(mean)", "2,000", "1.7500", "50.00"]
    assert len(plain.splitlines()) == 7 and "\x1b" not in plain
    narrow = evaluation_text(with_averages(ROWS), width=50, colour=True)
    assert "\x1b[2m" in narrow and "(median)" in narrow.replace("\n", "")
