"""The page of runs that go on, served to browsers of this machine: what has come is read when a browser asks for it.

Only GET, only two addresses, and no file is ever sent. A page of another site cannot read it: a name that its owner
points at this machine (DNS rebinding) is refused by the Host header.
"""

import json
import threading
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from spanloom.report.charts import charts_of
from spanloom.report.html import text
from spanloom.report.run_page import Baselines, main, page, references_of
from spanloom.report.run_view import View
from spanloom.tasks.read_report import BadInputError

LOOPBACK = "127.0.0.1"
HOSTS = (LOOPBACK, "localhost", "[::1]")
"""Names by which a browser may ask; a tunnel may have another port at its other end."""
SELDOM = 15.0
"""Seconds between looks at what is written once or seldom: settings, results, evaluations."""
_LONGEST_PATH = 2_000
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Watched:
    """Runs, and the page as they stand; several browsers may ask at once."""

    def __init__(
        self,
        views: Sequence[View],
        made: str,
        *,
        seconds: float = 2.0,
        references: str = "auto",
        baselines: Baselines | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`seconds` between two looks at the runs, at least; the others as `page` has them."""
        self._views, self._made, self._seconds = views, made, seconds
        self._references, self._baselines, self._clock = references, baselines or {}, clock
        self._lock = threading.Lock()
        self._read = self._whole = clock()
        self._version, self._problem, self._shown = 0, "", b""

    def page(self) -> bytes:
        """All of the page."""
        with self._lock:
            self._look()
            options: dict[str, Any] = {"references": self._references, "baselines": self._baselines}
            return page(self._views, self._made, live=self._seconds, **options).encode()

    def news(self, after: str) -> bytes | None:
        """What the page shows, as JSON: `version`, `main` and `charts`; None where that is version `after` still."""
        with self._lock:
            self._look()
            if not self._version:
                self._show()
            return None if after == str(self._version) else b'{"version": "%d", ' % self._version + self._shown[1:]

    def _look(self) -> None:
        """Read what has come, unless that was done a moment ago. What cannot be read now is said, and tried again."""
        now = self._clock()
        if now - self._read < self._seconds:
            return
        self._read, whole = now, now - self._whole >= SELDOM
        try:
            changed = [view.refresh(whole=whole) for view in self._views]
            problem = ""
        except (BadInputError, OSError, ValueError) as error:
            changed, problem = [False], f"cannot be read at the moment: {error}"
        news = any(changed) or whole or problem != self._problem
        self._problem = problem
        if news:
            self._show()
        if whole:
            self._whole = now

    def _show(self) -> None:
        """Make what is shown; another version of it only where it is another."""
        shown = self._content()
        if shown != self._shown:
            self._shown, self._version = shown, self._version + 1

    def _content(self) -> bytes:
        charts = charts_of(self._views, references_of(self._views, self._references))
        warning = f'<p class="warning">{text(self._problem)}</p>' if self._problem else ""
        shown = warning + main(self._views, charts, self._made, self._baselines)
        data = {"main": shown, "charts": [chart.data for chart in charts]}
        return json.dumps(data, allow_nan=False).encode()


def server_of(watched: Watched, port: int) -> ThreadingHTTPServer:
    """A server on 127.0.0.1, bound but not yet serving; port 0: any free one. Raises OSError where it is taken."""

    class Handler(BaseHTTPRequestHandler):
        timeout = 30
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            host = self.headers.get("Host", "")
            name = host if host.endswith("]") else host.rpartition(":")[0] or host
            if name.lower() not in HOSTS:
                self._answer(403, b"ask by the name 127.0.0.1 or localhost\n", "text/plain")
                return
            asked = urlsplit(self.path[:_LONGEST_PATH])
            if asked.path == "/":
                self._answer(200, watched.page(), "text/html; charset=utf-8")
            elif asked.path == "/live":
                found = watched.news(parse_qs(asked.query).get("after", [""])[0])
                self._answer(204 if found is None else 200, found or b"", "application/json")
            else:
                self._answer(404, b"there is nothing here but /\n", "text/plain")

        def _answer(self, status: int, content: bytes, kind: str) -> None:
            self.send_response(status)
            for header, value in _HEADERS.items():
                self.send_header(header, value)
            if status != 204:
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def version_string(self) -> str:
            return "spanloom"

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: the terminal is for the address."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Nothing: a browser went away."""

    return Server((LOOPBACK, port), Handler)
