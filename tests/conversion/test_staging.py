import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from spanloom.conversion.errors import ConversionError
from spanloom.conversion.staging import check_destination, staged


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


@pytest.mark.short
@pytest.mark.parametrize("there", ["export", "empty", "nothing"])
def test_a_link_stays_and_the_folder_that_it_leads_to_is_replaced(tmp_path, there):
    """As of a folder that is kept on another disk, where what is half-written belongs, too."""
    disk, link = tmp_path / "disk" / "out", tmp_path / "out"
    disk.parent.mkdir()
    link.symlink_to(disk)
    if there != "nothing":
        disk.mkdir()
    if there == "export":
        (disk / "spanloom.json").write_text('{"files": ["old"]}')
        (disk / "old").touch()
    check_destination(link)
    with staged(link) as folder:
        assert folder.parent == disk.parent
        (folder / "new").touch()
    assert link.is_symlink() and [path.name for path in disk.iterdir()] == ["new"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["disk", "out"]
    assert [path.name for path in disk.parent.iterdir()] == ["out"]


@pytest.mark.short
def test_sigterm_leaves_nothing_and_what_others_do_on_it_is_theirs(tmp_path):
    with pytest.raises(SystemExit, match="143"), staged(tmp_path / "out"):
        os.kill(os.getpid(), signal.SIGTERM)
    assert list(tmp_path.iterdir()) == [] and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    taken = []
    signal.signal(signal.SIGTERM, lambda number, frame: taken.append(number))
    try:
        with staged(tmp_path / "out"):
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    assert taken == [signal.SIGTERM] and [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.short
@pytest.mark.parametrize("before", ["nothing", "export"])
def test_what_comes_into_the_place_meanwhile_stays(tmp_path, before):
    """The check is made again where the folder is to be put in place, which may be hours later."""
    dst, checked = tmp_path / "out", []
    if before == "export":
        dst.mkdir()
        (dst / "spanloom.json").write_text('{"files": []}')

    def check():
        checked.append(sorted(path.name for path in tmp_path.iterdir()))
        check_destination(dst)

    def put_notes():
        dst.mkdir(exist_ok=True)
        (dst / "README.md").write_text("notes")
        (dst / "spanloom.json").unlink(missing_ok=True)

    with pytest.raises(ConversionError, match="not an earlier export"), staged(dst, check):
        put_notes()
    assert [path.name for path in tmp_path.iterdir()] == ["out"] and (dst / "README.md").read_text() == "notes"
    assert len(checked) == 2 and checked[0] == ([] if before == "nothing" else ["out"]), "before anything is written"


@pytest.mark.short
def test_a_link_that_comes_into_the_place_meanwhile_stays(tmp_path):
    (tmp_path / "theirs").mkdir()
    with pytest.raises(ConversionError, match="a link to another place"), staged(tmp_path / "out"):
        (tmp_path / "out").symlink_to(tmp_path / "theirs")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "theirs"] and (tmp_path / "out").is_symlink()


@pytest.mark.short
@pytest.mark.parametrize("there", ["nothing", "empty", "notes"])
def test_a_killed_export_is_put_back_before_the_check_and_never_into_what_others_made(tmp_path, there):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    dst, replaced = tmp_path / "out", tmp_path / f".out.replaced-{ended.pid}"
    replaced.mkdir()
    (replaced / "spanloom.json").touch()
    if there != "nothing":
        dst.mkdir()
    if there == "notes":
        (dst / "notes").touch()
    seen = []

    def refuse():
        seen.extend(path.name for path in dst.iterdir())
        raise ConversionError(dst, "is refused")

    with pytest.raises(ConversionError, match="is refused"), staged(dst, refuse):
        pass
    assert seen == [path.name for path in dst.iterdir()] == (["notes"] if there == "notes" else ["spanloom.json"])
    assert replaced.exists() == (there == "notes"), "nothing of either is lost"


@pytest.mark.short
def test_folders_that_no_other_can_take_the_place_of_are_refused(tmp_path, monkeypatch):
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "inside").mkdir()
    with pytest.raises(ConversionError, match="leads to itself"):
        check_destination(tmp_path / "loop")
    with pytest.raises(ConversionError, match="no UTF-8"):
        check_destination(tmp_path / os.fsdecode(b"\xff"))
    monkeypatch.chdir(tmp_path / "inside")
    for place in (Path(), tmp_path, Path("../inside")):
        with pytest.raises(ConversionError, match="holds the folder that you are in"):
            check_destination(place)
    check_destination(Path("exported"))
    monkeypatch.setattr(os.path, "ismount", lambda path: Path(path).name == "mount")
    with pytest.raises(ConversionError, match="is a mounted disk"):
        check_destination(tmp_path / "mount")
    check_destination(tmp_path / "mount" / "exported")


@pytest.mark.short
def test_places_where_nothing_can_be_written_are_refused(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    with pytest.raises(ConversionError, match=r"would lie in \S+/file, which is a file"):
        check_destination(tmp_path / "file" / "deep" / "out")
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)
    for place in ("out", "deep/er/out"):
        with pytest.raises(ConversionError, match=f"nothing can be written in {tmp_path}: give yourself the right"):
            check_destination(tmp_path / place)


@pytest.mark.short
@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("done", [False, True])
def test_ctrl_c_at_a_rename_leaves_a_whole_folder(tmp_path, monkeypatch, number, done):
    """While the first rename puts the old folder aside or the second one the new folder in its place: before it is done
    or just after."""
    dst, renames, rename = tmp_path / "out", [], Path.rename
    dst.mkdir()
    (dst / "old").touch()

    def interrupted(path, target):
        renames.append(target)
        if len(renames) != number:
            return rename(path, target)
        if done:
            rename(path, target)
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt), staged(dst) as folder:
        (folder / "spanloom.json").touch()
    assert [path.name for path in dst.iterdir()] == ["spanloom.json" if (number, done) == (2, True) else "old"]
    monkeypatch.setattr(Path, "rename", rename)
    with staged(dst) as folder:
        (folder / "newer").touch()
    assert (dst / "newer").exists() and [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.short
def test_a_killed_export_is_put_back_whatever_its_name_and_no_other(tmp_path):
    """Brackets and stars in a name are not a pattern that its neighbours' leftovers fit."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for name in ("run[1]*", "run1x"):
        (tmp_path / f".{name}.replaced-{ended.pid}").mkdir()
        (tmp_path / f".{name}.replaced-{ended.pid}" / "old").touch()
        (tmp_path / f".{name}.partial-{ended.pid}").mkdir()
    with pytest.raises(InterruptedError), staged(tmp_path / "run[1]*"):
        raise InterruptedError
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f".run1x.partial-{ended.pid}", f".run1x.replaced-{ended.pid}", "run[1]*",
    ]  # fmt: skip
    assert (tmp_path / "run[1]*" / "old").exists()
