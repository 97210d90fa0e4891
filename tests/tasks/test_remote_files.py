import gzip
import json
from importlib.util import find_spec

import fsspec
import pytest
from golden_data import absent
from s3_server import BreakingProxy, s3_server
from tfrecord_files import example, write_records

from spanloom.settings.row_sources import RowFiles, SeqioCaches
from spanloom.settings.task import PairFiles, TextFiles
from spanloom.tasks import remote_files
from spanloom.tasks.file_lists import list_files
from spanloom.tasks.file_system import exists, identity, is_folder, list_folder, open_file, size_of
from spanloom.tasks.read_report import BadInputError, Intake, ReadReport
from spanloom.tasks.remote_files import RemoteFile
from spanloom.tasks.row_sources import read_row_source, row_source_bytes, row_source_fingerprint
from spanloom.tasks.sources import read_examples, source_bytes, source_fingerprint

CONTENT = bytes(range(256)) * 5000


@pytest.fixture(autouse=True)
def no_waits(monkeypatch):
    monkeypatch.setattr(remote_files, "FIRST_WAIT", 0.001)


@pytest.fixture
def memory():
    system = fsspec.filesystem("memory")
    system.store.clear()
    system.pipe("/corpus/a.txt", b"one\ntwo\n")
    system.pipe("/corpus/b.txt.gz", gzip.compress(b"drei\nvier\n"))
    system.pipe("/corpus/deep/c.txt", b"five\n")
    system.pipe("/big", CONTENT)
    yield system
    system.store.clear()


@pytest.fixture(scope="module")
def server():
    for module in ("s3fs", "moto", "boto3"):
        if not find_spec(module):
            absent(f"{module} is not installed: pip install 'spanloom[dev]'")
    with s3_server() as (address, client):
        client.create_bucket(Bucket="novels")
        for number in range(3):
            lines = "".join(f"Zeile {number} {line}\n" for line in range(2000))
            client.put_object(Bucket="novels", Key=f"de/{number}.txt", Body=lines.encode())
        client.put_object(Bucket="novels", Key="big", Body=CONTENT)
        yield address, client


@pytest.fixture
def bucket(server, monkeypatch):
    """The server as the environment describes it, through a proxy that can break connections."""
    import s3fs

    proxy = BreakingProxy(server[0])
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.address)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")  # otherwise these two try again before we hear of it
    monkeypatch.setattr(s3fs.S3FileSystem, "retries", 1)
    s3fs.S3FileSystem.clear_instance_cache()
    yield proxy
    proxy.close()
    s3fs.S3FileSystem.clear_instance_cache()


def texts(source, report=None):
    return [one["text"] for one in read_examples(source, "train", report or ReadReport())]


@pytest.mark.short
def test_remote_text_is_read_like_a_local_one(memory):
    source = TextFiles(("memory://corpus/*.txt*",), heldout_share=0)
    report = ReadReport()
    assert texts(source, report) == ["one", "two", "drei", "vier"]
    assert report.files == 2 and report.retried == 0
    assert texts(TextFiles(("memory://corpus/**/*.txt",), heldout_share=0)) == ["one", "two", "five"]
    assert source_bytes(source, ["train"]) == sum(memory.size(f"/corpus/{name}") for name in ("a.txt", "b.txt.gz"))


@pytest.mark.short
def test_a_file_named_twice_is_read_once(memory):
    assert list_files(["memory://corpus/a.txt", "memory://corpus/a*", "memory:///corpus/a.txt"]) == [
        "memory:///corpus/a.txt"
    ]


@pytest.mark.short
def test_any_place_of_a_file_can_be_read(memory):
    file = RemoteFile("memory://big", ReadReport())
    for place, size in [(0, 10), (5, 3), (70_000, 100_000), (0, 1), (169_999, 50), (len(CONTENT) - 3, 9), (200_000, 0)]:
        file.seek(place)
        assert file.read(size) == CONTENT[place : place + size]
        assert file.tell() == min(place + size, len(CONTENT))
    file.seek(-6, 2)
    assert file.read() == CONTENT[-6:] and file.read(1) == b""
    file.seek(0)
    assert b"".join(iter(lambda: file.read(9999), b"")) == CONTENT


@pytest.mark.short
def test_the_fingerprint_follows_the_content(memory):
    source = TextFiles(("memory://corpus/a.txt",))
    before = source_fingerprint(source)
    assert source_fingerprint(source) == before
    memory.pipe("/corpus/a.txt", b"one\ntwa\n")
    assert source_fingerprint(source) != before


@pytest.mark.short
def test_folders_are_looked_into(memory):
    assert is_folder("memory://corpus") and not is_folder("memory://corpus/a.txt") and not is_folder("memory://no")
    assert exists("memory://corpus/a.txt") and not exists("memory://corpus/z")
    assert list_folder("memory://corpus") == ["a.txt", "b.txt.gz", "deep"]
    assert size_of("memory://corpus/a.txt") == 8


@pytest.mark.short
@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("memory://corpus/a.tx", r"does not exist; memory://corpus holds a\.txt"),
        ("memory://corpus/*.csv", r"no file matches; memory://corpus holds"),
        ("memory://corpus", r"is a folder, not a file\. Name its files: 'memory://corpus/\*\.txt'"),
        ("nowhere://corpus/a", r"Protocol not known: nowhere"),
        ("https://me:hunter2@host/a.txt", r"^https://\.\.\./a\.txt: holds a password"),
        ("https://host/a.txt?X-Amz-Signature=abc", r"^https://\.\.\./a\.txt: holds a password or a token"),
    ],
)
def test_what_cannot_be_found_says_why(memory, path, message):
    with pytest.raises(BadInputError, match=message):
        list_files([path])


@pytest.mark.short
@pytest.mark.parametrize(("path", "extra"), [("s3://b/a.txt", "s3"), ("gs://b/*.txt", "gcs"), ("https://h/a", "http")])
def test_an_absent_library_names_the_extra(path, extra, monkeypatch):
    def absent_library(path):
        raise ImportError("Install something")

    monkeypatch.setattr(fsspec.core, "url_to_fs", absent_library)
    with pytest.raises(BadInputError, match=rf"not installed\. pip install 'spanloom\[{extra}\]'"):
        list_files([path], Intake(ReadReport(), "skip"))


class Breaking:
    """A file system whose answers break off, or come short, so many times."""

    def __init__(self, system, failures, piece=1000):
        self._system, self.failures, self.piece, self.asked = system, failures, piece, []

    def cat_file(self, name, start, end):
        self.asked.append((start, end))
        if self.failures:
            self.failures -= 1
            if self.piece:
                return self._system.cat_file(name, start=start, end=min(start + self.piece, end))
            raise ConnectionResetError("reset by peer")
        return self._system.cat_file(name, start=start, end=end)

    def __getattr__(self, name):
        return getattr(self._system, name)


@pytest.mark.short
@pytest.mark.parametrize("piece", [0, 1, 1000])
def test_reading_goes_on_where_a_connection_broke(memory, monkeypatch, piece):
    system = Breaking(memory, 3, piece)
    monkeypatch.setattr(remote_files, "system_of", lambda path: (system, "/big"))
    report = ReadReport()
    with open_file("memory://big", report) as file:
        assert file.read(100_000) == CONTENT[:100_000]
    assert report.retried == 3
    assert "3 dropped connections" in report.describe()
    assert [start for start, _ in system.asked] == [0, piece, 2 * piece, 3 * piece]


@pytest.mark.short
def test_a_connection_that_stays_broken_is_given_up(memory, monkeypatch):
    system = Breaking(memory, 99, 0)
    monkeypatch.setattr(remote_files, "system_of", lambda path: (system, "/big"))
    with pytest.raises(BadInputError, match=r"^memory://big: cannot be read, after 6 tries: ConnectionResetError"):
        open_file("memory://big").read(10)
    assert len(system.asked) == 6


@pytest.mark.short
def test_a_file_that_changes_meanwhile_is_refused(memory, monkeypatch):
    system = Breaking(memory, 1, 1000)
    monkeypatch.setattr(remote_files, "system_of", lambda path: (system, "/big"))
    file = open_file("memory://big")
    memory.pipe("/big", CONTENT + b"more")
    with pytest.raises(BadInputError, match="changed while it was being read"):
        file.read(10_000)


@pytest.mark.short
def test_parquet_from_afar(memory):
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"q": [f"question {n}" for n in range(5000)], "a": [f"answer {n}" for n in range(5000)]})
    with memory.open("/t.parquet", "wb") as file:
        pq.write_table(table, file, row_group_size=500)
    source = PairFiles(("memory://t.parquet",), inputs="q", targets="a", heldout_share=0)
    pairs = list(read_examples(source, "train", ReadReport()))
    assert pairs == [{"inputs": f"question {n}", "targets": f"answer {n}"} for n in range(5000)]


@pytest.mark.short
def test_a_break_within_parquet_is_said_to_be_one(memory, monkeypatch):
    import pyarrow as pa
    import pyarrow.parquet as pq

    with memory.open("/t.parquet", "wb") as file:
        pq.write_table(pa.table({"inputs": ["a"], "targets": ["b"]}), file)
    source = PairFiles(("memory://t.parquet",), heldout_share=0)
    monkeypatch.setattr(remote_files, "system_of", lambda path: (Breaking(memory, 99, 0), "/t.parquet"))
    with pytest.raises(BadInputError, match="cannot be read, after 6 tries"):
        list(read_examples(source, "train", ReadReport()))


def test_a_bucket_is_read_and_fingerprinted(bucket, server):
    source = TextFiles(("s3://novels/de/*.txt",), heldout_share=0)
    assert texts(source) == [f"Zeile {number} {line}" for number in range(3) for line in range(2000)]
    before = source_fingerprint(source)
    assert source_fingerprint(source) == before
    server[1].put_object(Bucket="novels", Key="de/3.txt", Body=b"mehr\n")
    try:
        assert source_fingerprint(source) != before and texts(source)[-1] == "mehr"
    finally:
        server[1].delete_object(Bucket="novels", Key="de/3.txt")
    assert source_fingerprint(source) == before


def test_dropped_connections_to_a_bucket_lose_nothing(bucket):
    report = ReadReport()
    with open_file("s3://novels/big", report) as file:
        start = file.read(10)
        bucket.after, bucket.drops = 40_000, 3
        assert start + file.read() == CONTENT
    assert bucket.dropped == 3 and report.retried >= 3


def test_rows_of_a_bucket_come_whole_through_dropped_connections(bucket, server, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    numbers = list(range(30_000))
    pq.write_table(pa.table({"n": numbers, "text": [f"Zeile {n}" for n in numbers]}), tmp_path / "t.parquet")
    payloads = [example({"n": [n], "text": [f"Zeile {n}"]}) for n in range(5000)]
    for shard in range(2):
        write_records(tmp_path / f"train.tfrecord-{shard:05}-of-00002", payloads[shard::2])
    described = {"n": {"dtype": "int64", "shape": []}, "text": {"dtype": "string", "shape": []}}
    (tmp_path / "info.train.json").write_text(json.dumps({"features": described, "num_shards": 2}))
    (tmp_path / "stats.train.json").write_text(json.dumps({"examples": 5000}))
    (tmp_path / "COMPLETED").write_text("")
    for path in tmp_path.iterdir():
        server[1].upload_file(str(path), "novels", f"caches/task/{path.name}")
    for source, expected in [
        (RowFiles(("s3://novels/caches/*/*.parquet",)), numbers),
        (SeqioCaches(("s3://novels/caches/*",)), [*range(0, 5000, 2), *range(1, 5000, 2)]),
    ]:
        fingerprint, size = row_source_fingerprint(source), row_source_bytes(source, ["train"])
        report, dropped = ReadReport(), bucket.dropped
        bucket.after, bucket.drops = 20_000, 2
        rows = list(read_row_source(source, "train", report))
        assert [row["n"] for row in rows] == expected
        assert all(row["text"] == f"Zeile {row['n']}" for row in rows)
        assert bucket.dropped == dropped + 2 and report.retried >= 2
        assert 0.999 * size < report.file_bytes <= size
        assert row_source_fingerprint(source) == fingerprint


@pytest.mark.parametrize("drops", [0, 1])
def test_an_object_that_changes_meanwhile_is_refused(bucket, server, drops):
    server[1].put_object(Bucket="novels", Key="new/a.txt", Body=CONTENT)
    (path,) = list_files(["s3://novels/new/*.txt"])
    with open_file(path) as file:
        start = file.read(10)
        server[1].put_object(Bucket="novels", Key="new/a.txt", Body=CONTENT[::-1])
        assert start == CONTENT[:10]
        bucket.after, bucket.drops = 40_000, drops
        with pytest.raises(BadInputError, match="changed while it was being read"):
            file.read()


def test_a_server_that_is_gone_is_said_so(bucket, monkeypatch):
    with open_file("s3://novels/big") as file:
        bucket.after, bucket.drops = 0, 10**6
        with pytest.raises(BadInputError, match=r"^s3://novels/big: cannot be read, after 6 tries"):
            file.read()


def test_absent_buckets_and_keys(bucket):
    with pytest.raises(BadInputError, match=r"s3://novels/de/4\.txt: does not exist; s3://novels/de holds"):
        list_files(["s3://novels/de/4.txt"])
    with pytest.raises(BadInputError, match=r"s3://nobody/\*\.txt: no file matches"):
        list_files(["s3://nobody/*.txt"])


def test_no_credentials_are_said_to_be_absent(bucket, monkeypatch, tmp_path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(BadInputError, match=r"come from the environment: AWS_ACCESS_KEY_ID"):
        list_files(["s3://novels/de/0.txt"])


def test_json_lines_of_a_web_server(tmp_path):
    import functools
    import http.server
    import threading

    pytest.importorskip("aiohttp")
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": f"line {n}"}) + "\n" for n in range(100)))
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        address = f"http://127.0.0.1:{server.server_port}/a.jsonl"
        assert texts(TextFiles((address,), heldout_share=0)) == [f"line {n}" for n in range(100)]
        assert identity(address, "strict") == identity(address, "strict")
    finally:
        server.shutdown()
