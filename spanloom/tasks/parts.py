"""What the train and the heldout split of a source of files are: its files, and which of their documents."""

import os

from spanloom.settings.task import PairFiles, TextFiles
from spanloom.tasks.file_lists import list_files
from spanloom.tasks.heldout import Part, Split
from spanloom.tasks.read_report import BadInputError, ReadReport


def files_and_part(source: TextFiles | PairFiles, split: Split, report: ReadReport) -> tuple[list[str], Part]:
    """The files that a split reads, and which of their documents are its own: the two splits share none.

    With held-out files a document's file decides, and files that both name are held out; without, its running
    number over all files does. Raises BadInputError where files are not found or none is left.
    """
    if not source.heldout_files:
        return list_files(source.files, report), Part(split, source.heldout_share)
    heldout = list_files(source.heldout_files, report)
    if split == "heldout":
        return heldout, Part("train", 0.0)
    real = {os.path.realpath(path) for path in heldout}
    files = list_files(source.files, report)
    left = [path for path in files if os.path.realpath(path) not in real]
    if not left:
        raise BadInputError("files", "all of them are held-out files too", "Name others to train on")
    if len(left) < len(files):
        report.note("held out", f"{len(files) - len(left)} of the files are held-out files too: not trained on")
    return left, Part("train", 0.0)
