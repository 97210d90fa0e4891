"""`spanloom report`, `diff` and `watch`: files, exit codes, buckets, and what is wrong told in time."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from golden_data import absent
from made_runs import START, lines_of, make_run, make_stages, run_of, train_line, write_lines
from s3_server import s3_server

from spanloom.cli.main import main
from spanloom.settings.run import Logging


@pytest.fixture
def runs(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "a")
    make_run(tmp_path / "b", replace(run_of(), seed=3))
    return tmp_path


def said(words, capsys, code=0):
    assert main(words) == code
    told = capsys.readouterr()
    return told.err if code == 2 or (code and not told.out) else told.out


def test_a_report_is_one_file_and_nothing_else_is_written(runs, capsys):
    before = {path: path.read_bytes() for path in runs.rglob("*") if path.is_file()}
    assert "report.html: run a as a page (" in said(["report", "a", "--out", "report.html"], capsys)
    page = (runs / "report.html").read_text()
    assert "Run a" in page and page.endswith("</html>\n")
    assert "runs a and b as a page" in said(["report", "a", "b", "--out", "report.html"], capsys)
    assert "How b differs from a" in (runs / "report.html").read_text()
    after = {path: path.read_bytes() for path in runs.rglob("*") if path.is_file()}
    assert after.pop(runs / "report.html") and after == before


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["a"], 2, "missing: --out"),
        (["a", "--out", ""], 2, "--out is empty"),
        (["a", "--out", "."], 1, "--out . is a directory"),
        (["a", "--out", "a/run.json"], 1, "is there already, and no page: it stays as it is"),
        (["a", "--out", "absent/r.html"], 1, "there is no folder absent"),
        (["a", "--out", "s3://b/r.html"], 1, "is an address: name a file of this machine"),
        (["a/checkpoints/30", "--out", "r.html"], 1, "is a checkpoint: name the run that it is of"),
        (["c", "--out", "r.html"], 1, "c is no directory: give the directory that a run writes"),
        ([".", "--out", "r.html"], 1, "there are runs in it: a, b"),
        (["a", "--out", "r.html", "--refrences", "none"], 2, "did you mean --references"),
    ],
)
def test_what_is_wrong_with_a_report_is_said(runs, capsys, words, code, message):
    assert main(["report", *words]) == code
    assert message in capsys.readouterr().err
    assert not list(runs.glob("*.html*"))


def test_a_full_disk_leaves_the_page_as_it_was(runs, capsys, monkeypatch):
    import errno

    from spanloom.pipeline import durable

    (runs / "r.html").write_text("<!DOCTYPE html>before")

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(durable.os, "fsync", full)
    assert main(["report", "a", "--out", "r.html"]) == 1
    assert "no room to write r.html" in capsys.readouterr().err
    assert (runs / "r.html").read_text() == "<!DOCTYPE html>before" and [
        path.name for path in runs.glob("r.html*")
    ] == ["r.html"]


def test_settings_are_compared_with_those_of_a_shipped_recipe(runs, capsys):
    from spanloom.recipes.quickstart import recipe

    run = replace(recipe(), log=Logging(every=7)).resolve()
    place = make_run(runs / "q", run)
    entry = {"command": ["spanloom", "train", "quickstart", "--log.every", "7"], "directory": str(runs), "step": None}
    (place / "commands.jsonl").write_text(json.dumps(entry) + "\n")
    said(["report", "q", "--out", "r.html"], capsys)
    page = re.sub(r"<[^>]+>", " ", (runs / "r.html").read_text())
    assert re.search(r"recipe quickstart\s+this run\s+log.every\s+10\s+7\s+all settings", page)


def test_a_recipe_in_a_run_directory_is_never_carried_out(runs, capsys):
    """A run may be somebody else's."""
    (runs / "a" / "mine.py").write_text("open('was_run', 'w')")
    (runs / "mine.py").write_text("open('was_run', 'w')")
    (runs / "a" / "recipe.py").write_text("open('was_run', 'w')")
    said(["report", "a", "--out", "r.html"], capsys)
    assert not (runs / "was_run").exists()
    assert "Spanloom&#x27;s defaults" in (runs / "r.html").read_text()


def test_diff_tells_by_its_exit_code(runs, capsys):
    assert said(["diff", "a", "a"], capsys) == "settings, data and versions are the same\n"
    table = said(["diff", "a", "b"], capsys, code=1)
    assert ["seed", "0", "3"] in [line.split() for line in table.splitlines()]
    (found,) = json.loads(said(["diff", "a", "b/checkpoints/30", "--json"], capsys, code=1))
    assert found == {"about": "settings", "name": "seed", "first": 0, "second": 3, "text": "0 -> 3"}
    assert "c is no directory" in said(["diff", "a", "c"], capsys, code=2)
    assert "missing: RUN" in said(["diff", "a"], capsys, code=2)


@pytest.fixture(scope="module")
def bucket():
    for module in ("s3fs", "moto", "boto3"):
        if not find_spec(module):
            absent(f"{module} is not installed: pip install 'spanloom[dev]'")
    with s3_server() as (address, client):
        client.create_bucket(Bucket="runs")
        yield address, client


@pytest.fixture
def uploaded(bucket, runs, monkeypatch):
    import s3fs

    address, client = bucket
    make_stages(runs / "hm")
    for path in runs.rglob("*"):
        if path.is_file():
            client.put_object(Bucket="runs", Key=str(path.relative_to(runs)), Body=path.read_bytes())
    for name, value in (("ENDPOINT_URL", address), ("ACCESS_KEY_ID", "key"), ("SECRET_ACCESS_KEY", "secret")):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    s3fs.S3FileSystem.clear_instance_cache()
    yield client
    s3fs.S3FileSystem.clear_instance_cache()


def test_runs_in_a_bucket_are_read_like_those_on_disk(uploaded, runs, capsys):
    def content(place):
        said(["report", place, "--out", "r.html"], capsys)
        page = (runs / "r.html").read_text()
        return re.sub(r"made by.*UTC", "", page)

    assert content("s3://runs/a") == content("a")
    assert "done" in content("s3://runs/hm")
    assert said(["diff", "a", "s3://runs/a"], capsys) == "settings, data and versions are the same\n"
    assert "seed" in said(["diff", "s3://runs/a", "s3://runs/b/"], capsys, code=1)
    assert "is no directory" in said(["diff", "a", "s3://runs/absent"], capsys, code=2)


def test_a_run_in_a_bucket_goes_on_being_read(uploaded, runs):
    from spanloom.report.run_view import View

    view = View("s3://runs/a")
    assert view.steps == 30
    write_lines(runs / "a", lines_of(run_of(), 31))
    uploaded.put_object(Bucket="runs", Key="a/metrics.jsonl", Body=(runs / "a" / "metrics.jsonl").read_bytes())
    assert view.refresh(whole=False) and view.steps == 31 and not view.refresh(whole=False)


def test_a_run_is_copied_into_a_bucket_where_it_is_read_as_well(uploaded, runs, monkeypatch, capsys):
    from spanloom.report.run_view import View
    from spanloom.training import copied

    monkeypatch.setattr(copied, "SEGMENT", 3_000)
    copied.Copied(runs / "a", "s3://runs/copies/a").close()
    names = [one["Key"] for one in uploaded.list_objects_v2(Bucket="runs", Prefix="copies/")["Contents"]]
    assert sum("/metrics/" in name for name in names) > 3 and "copies/a/metrics.jsonl" not in names
    view = View("s3://runs/copies/a")
    assert view.steps == 30 and view.stages[0].metrics.damaged == 0 and view.stages[0].stores
    write_lines(runs / "a", lines_of(run_of(), 24))
    copied.Copied(runs / "a", "s3://runs/copies/a").close()
    assert view.refresh(whole=False) and view.steps == 24
    copied.copy_closed(run_of(log=Logging(copy_to="s3://absent/a")), runs / "a", print)
    assert "not copied to s3://absent/a: " in capsys.readouterr().out


def start_watch(folder, *words):
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "JAX_PLATFORMS": "cpu"}
    start = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "from spanloom.cli.main import main; sys.exit(main())"
    )
    argv = [sys.executable, "-c", start, "watch", *words]
    process = subprocess.Popen(
        argv, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    return process, process.stdout.readline(), process.stdout.readline()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_watch_says_where_and_how_from_afar_and_ends_well(runs, number):
    process, where, afar = start_watch(runs, "a", "--port", "0", "--every", "0.1")
    try:
        address, port = re.search(r"(http://127\.0\.0\.1:(\d+)/)", where).groups()
        assert f"ssh -N -L {port}:127.0.0.1:{port} " in afar
        with urllib.request.urlopen(address, timeout=20) as answer:
            assert "Run a" in answer.read().decode()
        write_lines(runs / "a", [START, *(train_line(step) for step in range(1, 78))])
        import time

        time.sleep(0.2)
        with urllib.request.urlopen(f"{address}live", timeout=20) as answer:
            assert "77 of 100" in json.load(answer)["main"]
        process.send_signal(number)
        assert process.wait(20) == 0
        assert process.stderr.read() == ""
    finally:
        process.kill()
        process.communicate()


def test_watch_goes_on_where_the_user_has_no_name(monkeypatch, capsys):
    """As in a container that was given a number for a user."""
    from spanloom.cli import watch

    def unknown():
        raise KeyError("getpwuid(): uid not found: 12345")

    monkeypatch.setattr(watch.getpass, "getuser", unknown)
    watch._tell(["a"], 8765)
    assert "ssh -N -L 8765:127.0.0.1:8765 USER@" in capsys.readouterr().out


def test_watch_refuses_what_it_cannot_do(runs, capsys):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"--port {port} cannot be had" in said(["watch", "a", "--port", str(port)], capsys, code=1)
    assert "must be from 0 to 65535" in said(["watch", "a", "--port", "70000"], capsys, code=2)
    assert "must be from 0.1" in said(["watch", "a", "--every", "0"], capsys, code=2)
    assert "is no directory" in said(["watch", "nowhere"], capsys, code=1)
