import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from spanloom.settings.task import PythonDocs
from spanloom.tasks import python_docs
from spanloom.tasks.read_report import BadInputError, ReadReport
from spanloom.tasks.sources import read_examples, source_fingerprint


def read(split, source=None, report=None):
    return [e["text"] for e in read_examples(source or PythonDocs(), split, report or ReadReport())]


def documents(library: Path, report: ReadReport) -> list[str]:
    found = python_docs.read_python_docs(report, library, least_bytes=0)
    return [text.decode() for columns in found for text in columns["text"]]


def make_library(folder: Path) -> Path:
    files = {
        "pydoc_data/topics.py": "raise SystemExit('imported')\ntopics = {'a': 'A topic\\n*******\\n\\nText.', "
        "'b': 'More\\n****\\n\\nBefore.\\n\\n\\nA topic\\n=======\\n\\nText.\\n'}\n",
        "b.py": '"""Module b."""\nclass C:\n    """Class C.\n\n        Indented.\n    """\n    def f(self):\n'
        '        """First."""\nif True:\n    async def g():\n        """Second."""\n        def h():\n'
        '            "Third."\n'
        'def i():\n    """First."""\n',
        "a.py": '"""Module a."""\n"no docstring"\ndef f():\n    x = "none"\n',
        "latin.py": b'# -*- coding: latin-1 -*-\n"""Gr\xfcn."""\n',
        "broken.py": "def f(:\n",
        "test/t.py": '"""A test."""\n',
        "pkg/tests/t.py": '"""A test."""\n',
        "pkg/sub/m.py": '"""Deep."""\n',
        "site-packages/x.py": '"""Somebody else\'s."""\n',
        "data.txt": "no code",
    }
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


@pytest.mark.short
def test_what_is_read_and_in_which_order(tmp_path):
    report = ReadReport()
    assert documents(make_library(tmp_path), report) == [
        "More\n****\n\nBefore.",
        "A topic\n=======\n\nText.",
        "Module a.",
        "Module b.",
        "Class C.\n\nIndented.",
        "First.",
        "Second.",
        "Third.",
        "Grün.",
        "Deep.",
    ]
    assert report.skipped == {"duplicate": 2, "does not parse": 1}, "topic a stands in b; First. comes twice; broken.py"
    assert report.files == 6 and not report.notes
    assert "broken.py" in report.describe()


@pytest.mark.short
def test_files_are_read_as_documents_are_asked_for(tmp_path):
    report = ReadReport()
    found = python_docs.read_python_docs(report, make_library(tmp_path), least_bytes=0)
    assert len(next(found)["text"]) == 2 and report.files == 1
    assert next(found)["text"] == [b"Module a."] and report.files == 2


@pytest.mark.short
def test_this_pythons_documentation():
    reports = {split: ReadReport() for split in ("train", "heldout")}
    train, heldout = (read(split, report=report) for split, report in reports.items())
    size = reports["train"].bytes + reports["heldout"].bytes
    assert 1_500_000 < size < 3_500_000
    assert 0.03 < reports["heldout"].bytes / size < 0.07
    assert len(set(train) | set(heldout)) == len(train) + len(heldout), "no text twice, none in both"
    assert train == read("train")
    assert all(text.strip() for text in train + heldout)
    assert reports["train"].files > 400


def test_no_paragraph_of_a_heldout_topic_is_in_training():
    train, heldout = read("train"), read("heldout")
    paragraphs = {" ".join(p.split()) for text in train for p in text.split("\n\n") if len(p) > 200}
    held = [" ".join(p.split()) for text in heldout for p in text.split("\n\n") if len(p) > 200]
    shared = sum(p in paragraphs for p in held)
    assert len(held) > 50 and shared <= 0.05 * len(held)


@pytest.mark.short
def test_a_library_without_sources_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "os.pyc").write_bytes(b"")
    with pytest.raises(BadInputError, match=r"only 0 bytes of documentation in 0 source files.*--text FILES"):
        list(python_docs.read_python_docs(ReadReport(), tmp_path))
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path / "python311.zip"))
    with pytest.raises(BadInputError, match=r"no folder of source files.*zipped"):
        python_docs.library_folder()


@pytest.mark.short
def test_a_library_without_topics_still_works(tmp_path):
    library = make_library(tmp_path)
    (library / "pydoc_data" / "topics.py").unlink()
    report = ReadReport()
    assert documents(library, report)[0] == "Module a."
    assert "topics.py is absent" in report.describe()


@pytest.mark.short
@pytest.mark.parametrize("code", ["topics = make()", "topics = {'a': 'half \\ud800'}", "topics = {", None])
def test_topics_that_cannot_be_read_are_counted(tmp_path, code):
    library = make_library(tmp_path)
    topics = library / "pydoc_data" / "topics.py"
    topics.unlink()
    if code is None:
        topics.symlink_to("/proc/self/mem")  # a file that opens and cannot be read
    else:
        topics.write_text(code)
    report = ReadReport()
    assert documents(library, report)[0] == "Module a."
    assert report.skipped["does not parse"] == 2 and "topics.py: " in report.messages[0]


@pytest.mark.short
def test_fingerprint_follows_the_files(tmp_path):
    library = make_library(tmp_path)
    before = python_docs.fingerprint(library)
    assert before == python_docs.fingerprint(library)
    (library / "data.txt").write_text("other")
    (library / "test" / "t.py").write_text("other")
    assert before == python_docs.fingerprint(library)
    (library / "a.py").write_text('"""Module A."""')
    assert before != python_docs.fingerprint(library)
    assert source_fingerprint(PythonDocs()) != source_fingerprint(PythonDocs(heldout_share=0.1))


def test_nothing_of_the_library_is_imported():
    code = (
        "import sys\nfrom spanloom.tasks import python_docs\nfrom spanloom.tasks.read_report import ReadReport\n"
        "before = set(sys.modules)\n"
        "list(python_docs.read_python_docs(ReadReport()))\n"
        "new = {m for m in set(sys.modules) - before if not m.startswith(('encodings', '_sysconfigdata'))}\n"
        "assert not new, new\n"
    )
    env = {**os.environ, "PYTHONWARNINGS": "error"}
    subprocess.run([sys.executable, "-c", code], check=True, env=env)
