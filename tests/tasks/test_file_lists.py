import os

import pytest

from spanloom.tasks.file_lists import format_of, list_files
from spanloom.tasks.read_report import BadInputError, Intake, ReadReport

pytestmark = pytest.mark.short


@pytest.fixture
def corpus(tmp_path):
    for name in ("b.txt", "a.txt", "sub/deep/c.txt", "sub/d.jsonl.gz", ".hidden.txt"):
        path = tmp_path / "corpus" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    return tmp_path / "corpus"


def names(paths, corpus):
    return [os.path.relpath(path, corpus) for path in paths]


def test_globs_are_sorted_and_each_file_comes_once(corpus):
    patterns = [f"{corpus}/*.txt", f"{corpus}/**/*.txt", f"{corpus}/a.txt", f"{corpus}/../corpus/b.txt"]
    expected = ["a.txt", "b.txt", "sub/deep/c.txt"]
    for given in (patterns, patterns[::-1]):
        assert sorted(os.path.realpath(path) for path in list_files(given)) == [
            os.path.realpath(corpus / name) for name in expected
        ]
    assert names(list_files([f"{corpus}/**/*.txt"]), corpus) == expected


def test_home_and_a_single_string(corpus, monkeypatch):
    monkeypatch.setenv("HOME", str(corpus.parent))
    assert names(list_files(["~/corpus/*.txt"]), corpus) == ["a.txt", "b.txt"]
    assert names(list_files(f"{corpus}/a.txt"), corpus) == ["a.txt"]


def test_a_name_with_brackets_is_found(tmp_path):
    path = tmp_path / "a[1].txt"
    path.write_text("x")
    assert list_files([str(path)]) == [str(path)]


def test_a_link_to_a_listed_file_is_read_once(corpus):
    (corpus / "latest.txt").symlink_to(corpus / "b.txt")
    report = ReadReport()
    assert names(list_files([f"{corpus}/*.txt"], Intake(report)), corpus) == ["a.txt", "b.txt"]
    assert "read once" in report.describe()


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("*.csv", r"no file matches; the folder '.*corpus' holds"),
        ("a.tx", r"does not exist; the folder '.*' holds a\.txt"),
        ("../korpus/*.txt", r"no file matches: the folder '.*korpus' does not exist; near is '.*corpus'"),
        ("sub", r"is a folder, not a file \(it holds d\.jsonl\.gz, deep\)\. Name its files: '.*sub/\*\.jsonl\.gz'"),
        ("sub/dee*", r"matches only folders \(.*deep\)"),
        ("nowhere://bucket/*.txt", r"Protocol not known: nowhere\. Check the address"),
    ],
)
def test_what_is_not_found_says_what_is_near(corpus, pattern, message):
    with pytest.raises(BadInputError, match=message):
        list_files([pattern if "://" in pattern else f"{corpus}/{pattern}"])


def test_empty_folders_broken_links_and_pipes(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInputError, match="is empty"):
        list_files([f"{tmp_path}/empty/*.txt"])
    (tmp_path / "broken.txt").symlink_to(tmp_path / "absent.txt")
    with pytest.raises(BadInputError, match=r"is a link to '.*absent.txt', which does not exist"):
        list_files([f"{tmp_path}/*.txt"])
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadInputError, match="no regular file"):
        list_files([f"{tmp_path}/pipe"])
    with pytest.raises(BadInputError, match="no files are named"):
        list_files([])


def test_what_cannot_be_read_is_skipped_and_counted_where_that_is_asked_for(corpus):
    (corpus / "broken.txt").symlink_to(corpus / "absent.txt")
    os.mkfifo(corpus / "pipe.txt")
    (corpus / "folder.txt").mkdir()
    patterns = [f"{corpus}/*.txt", f"{corpus}/*.csv", f"{corpus}/absent.txt", f"{corpus}/sub"]
    report = ReadReport()
    assert names(list_files(patterns, Intake(report, "skip")), corpus) == ["a.txt", "b.txt"]
    assert report.skipped == {"broken link": 1, "no regular file": 1, "nothing found": 2, "folder": 1}
    for pattern in patterns:
        with pytest.raises(BadInputError, match="--errors skip leaves it out and counts it"):
            list_files([pattern])
    for pattern in patterns[1:]:
        with pytest.raises(BadInputError, match=r"no file matches|does not exist|is a folder"):
            list_files([pattern], Intake(ReadReport(), "skip"))
    for pattern in ("", "nowhere://bucket/a.txt"):
        with pytest.raises(BadInputError, match=r"name is empty|Protocol not known"):
            list_files([*patterns, pattern], Intake(ReadReport(), "skip"))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.txt", "txt"),
        ("a.TXT.GZ", "txt"),
        ("a.jsonl.zst", "jsonl"),
        ("a.json.xz", "jsonl"),
        ("a.csv.bz2", "csv"),
        ("a.tsv", "tsv"),
        ("x.y.parquet", "parquet"),
    ],
)
def test_formats_by_name(name, kind):
    assert format_of(name, "auto") == kind
    assert format_of("TREC.train", "txt") == "txt"


def test_an_unknown_ending_asks_for_the_format():
    with pytest.raises(BadInputError, match=r"does not tell the format \(its ending is '.neg'.*--format txt"):
        format_of("rt-polarity.neg", "auto")


def test_an_empty_name_is_said_to_be_empty():
    for name in ("", "  "):
        with pytest.raises(BadInputError, match="one name is empty"):
            list_files([name])
