"""Which files the train and the heldout split of a source read, where held-out files are named."""

from spanloom.settings.row_sources import RecordFiles, RowFiles
from spanloom.settings.task import PairFiles, TextFiles
from spanloom.tasks.file_lists import list_files
from spanloom.tasks.file_system import real_path
from spanloom.tasks.heldout import Split
from spanloom.tasks.read_report import BadInputError, Intake, ReadReport


def files_of(source: TextFiles | PairFiles | RowFiles | RecordFiles, split: Split, report: ReadReport) -> list[str]:
    """The files that a split reads. Files that are named for both are held out.

    Raises BadInputError where files are not found or none is left.
    """
    intake = Intake(report, source.errors)
    if not source.heldout_files:
        return list_files(source.files, intake)
    if split == "heldout":
        return list_files(source.heldout_files, intake)
    real = {real_path(path) for path in list_files(source.heldout_files, Intake(ReadReport(), source.errors))}
    files = list_files(source.files, intake)
    left = [path for path in files if real_path(path) not in real]
    if not left:
        raise BadInputError("files", "all of them are held-out files too", "Name others to train on")
    if len(left) < len(files):
        report.note("held out", f"{len(files) - len(left)} of the files are held-out files too: not trained on")
    return left
