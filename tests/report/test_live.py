"""The live page: what it answers and to whom, and that it goes on with the run."""

import http.client
import json
import threading

import pytest
from live_page import served
from made_runs import HOSTILE, START, make_run, train_line, write_lines

from spanloom.report.live import SELDOM, Watched
from spanloom.report.run_view import views_of

pytestmark = pytest.mark.short


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def ask(port, path="/", method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, content.decode(), {name.lower(): value for name, value in answer.getheaders()}


@pytest.fixture
def run(tmp_path):
    return make_run(tmp_path / "mine", lines=[START, train_line(1)])


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def port(run, clock):
    with served(Watched(views_of([str(run)]), "made", seconds=2, clock=clock)) as port:
        yield port


def test_the_page_and_what_is_new(port, run, clock):
    status, page, headers = ask(port)
    assert status == 200 and "Run mine" in page and 'data-live="2"' in page and "connect-src 'self'" in page
    assert headers["cache-control"] == "no-store" and headers["x-frame-options"] == "DENY"
    status, content, _ = ask(port, "/live?after=")
    first = json.loads(content)
    assert status == 200 and "1 of 100" in first["main"] and first["charts"][0]["lines"][0]["x"] == [1]
    assert ask(port, f"/live?after={first['version']}")[:2] == (204, "")

    write_lines(run, [START, train_line(1), train_line(2)])
    assert ask(port, f"/live?after={first['version']}")[0] == 204, "looked a moment ago"
    clock.now += 2
    second = json.loads(ask(port, f"/live?after={first['version']}")[1])
    assert "2 of 100" in second["main"] and second["charts"][0]["lines"][0]["x"] == [1, 2]

    clock.now += SELDOM
    assert ask(port, f"/live?after={second['version']}")[0] == 204, "all was read again, and nothing is new"
    (run / "results.json").write_text(json.dumps({"results": {"text": f"late {HOSTILE}", "fills": []}}))
    clock.now += SELDOM
    third = json.loads(ask(port, f"/live?after={second['version']}")[1])
    assert "late &lt;/script&gt;" in third["main"]


def test_only_this_machine_is_answered_by_its_own_names(port):
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "", "localhost.evil"):
        status, content, _ = ask(port, Host=host)
        assert status == 403 and "mine" not in content
    for host in ("localhost", f"LOCALHOST:{port}", "127.0.0.1:9999", "[::1]:80", "[::1]"):
        assert ask(port, Host=host)[0] == 200


def test_only_get_and_no_files(port, run):
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "HEAD"):
        assert ask(port, method=method)[0] == 501
    for path in ("/run.json", "/../run.json", "//etc/passwd", "/live/", "/%2e%2e/run.json", "/" + "a" * 5000):
        assert ask(port, path)[0] == 404
    assert ask(port, "/?x=1")[0] == 200
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_a_run_that_cannot_be_read_for_a_while_is_said_and_comes_back(port, run, clock, monkeypatch):
    from spanloom.report.run_view import View
    from spanloom.tasks.read_report import BadInputError

    first = json.loads(ask(port, "/live")[1])

    def fail(self, *, whole):
        raise BadInputError("s3://b/run", "cannot be reached <now>", "Check the network")

    with monkeypatch.context() as patch:
        patch.setattr(View, "refresh", fail)
        clock.now += 2
        told = json.loads(ask(port, f"/live?after={first['version']}")[1])
        assert "cannot be read at the moment" in told["main"] and "reached &lt;now&gt;" in told["main"]
        assert "1 of 100" in told["main"]
    clock.now += 2
    back = json.loads(ask(port, f"/live?after={told['version']}")[1])
    assert "at the moment" not in back["main"]


def test_many_browsers_at_once(port):
    found = []
    threads = [threading.Thread(target=lambda: found.append(ask(port, "/live")[0])) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [200] * 12
