import errno
import os
import subprocess
import sys

import pytest

from spanloom.pipeline.durable import StorageError
from spanloom.training.lock import DirectoryInUseError, directory_lock

pytestmark = pytest.mark.short


def test_one_process_at_a_time(tmp_path):
    program = (
        "from pathlib import Path\n"
        "from spanloom.training.lock import directory_lock\n"
        f"with directory_lock(Path({str(tmp_path)!r})): pass\n"
    )
    with directory_lock(tmp_path):
        result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
        assert result.returncode == 1
        assert f"in use by another training process (id {os.getpid()})" in result.stderr
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0


def test_a_file_system_without_locks_is_refused(tmp_path, monkeypatch):
    def no_locks(descriptor, flags):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", no_locks)
    with pytest.raises(StorageError, match="no file locks"), directory_lock(tmp_path):
        pass


def test_it_is_let_go_of_after_an_error(tmp_path):
    with pytest.raises(KeyError), directory_lock(tmp_path):
        raise KeyError
    with directory_lock(tmp_path), pytest.raises(DirectoryInUseError), directory_lock(tmp_path):
        pass
