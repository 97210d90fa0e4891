import pytest

from spanloom.conversion.errors import ConversionError
from spanloom.conversion.staging import check_destination


@pytest.mark.short
def test_nothing_is_written_among_the_files_of_a_run(tmp_path):
    run = tmp_path / "run"
    (run / "checkpoints" / "10" / "vocabulary").mkdir(parents=True)
    (run / "checkpoints" / "10" / "checkpoint.json").touch()
    (run / "stores").mkdir()
    (run / "run.json").touch()
    for inside in ("checkpoints", "checkpoints/11", "checkpoints/10/hf", "checkpoints/10/vocabulary", "stores/hf"):
        with pytest.raises(ConversionError, match="among the files of a run"):
            check_destination(run / inside)
    for beside in ("huggingface", "export/hf"):
        check_destination(run / beside)
    check_destination(tmp_path / "checkpoints" / "hf")
