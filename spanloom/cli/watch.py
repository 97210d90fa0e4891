"""`spanloom watch RUN`: the page of a run that goes on, live, for a browser on this machine."""

import contextlib
import getpass
import signal
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from typing import TYPE_CHECKING, Annotated, Literal

from spanloom.cli.errors import CommandError, UsageError
from spanloom.cli.parsing import options

if TYPE_CHECKING:
    from spanloom.report.live import Watched

ABOUT = """The page of `spanloom report`, live: curves and tables go on while the run does.

It is served on 127.0.0.1, to this machine alone, and only shows; the line of ssh that is printed brings it to another
one. RUN is a run directory, or one of stages, that may be anywhere in its training; s3:// and gs:// are read, too.
Ctrl-C ends it; the run goes on.

    spanloom watch runs/a
    spanloom watch runs/a runs/b --port 8080
"""
PORT = 8765
"""Where nothing else is asked for, and nobody else is."""


def main(argv: Sequence[str]) -> int:
    """Run the command; the exit code."""
    from tyro.conf import Positional, arg

    @dataclass(frozen=True)
    class Options:
        run: Annotated[Positional[str], arg(metavar="RUN")]
        """A run directory, or one of stages."""
        beside: tuple[str, ...] = ()
        """More runs, to be compared with it; RUN RUN is enough."""
        port: int | None = None
        """Port on 127.0.0.1; 0: any that is free; unset: 8765, or any if that is taken."""
        every: float = 2.0
        """Seconds between two looks at the run."""
        references: Literal["auto", "none", "nanot5"] = "auto"
        """Published curves in the chart of the training loss. auto: those whose data, size and batch the run has."""

    chosen = options(Options, argv, "spanloom watch", "RUN [RUN ...] [--port 8765]", ABOUT, rest="beside")
    if chosen.port is not None and not 0 <= chosen.port < 65536:
        raise UsageError(f"--port {chosen.port}: must be from 0 to 65535")
    if not 0.1 <= chosen.every <= 3600:
        raise UsageError(f"--every {chosen.every:g}: must be from 0.1 to 3600 seconds")
    from spanloom.cli.recipe_defaults import baselines_of
    from spanloom.report.live import Watched
    from spanloom.report.run_page import made_now
    from spanloom.report.run_view import views_of

    views = views_of([chosen.run, *chosen.beside])
    baselines = {view.label: baselines_of(view) for view in views}
    watched = Watched(views, made_now(), seconds=chosen.every, references=chosen.references, baselines=baselines)
    server = _bound(watched, chosen.port)
    with _until_stopped(), server:
        _tell([view.files.place for view in views], server.server_address[1])
        server.serve_forever(poll_interval=0.2)
    return 0


def _bound(watched: "Watched", port: int | None) -> ThreadingHTTPServer:
    from spanloom.report.live import server_of

    try:
        return server_of(watched, PORT if port is None else port)
    except OSError as error:
        if port is None:
            return server_of(watched, 0)
        raise CommandError(f"--port {port} cannot be had ({error.strerror}): give another, or 0 for any") from error


@contextlib.contextmanager
def _until_stopped() -> Iterator[None]:
    """Ctrl-C and SIGTERM end what is inside, and all is well."""

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user that no file of passwords knows
        return "USER"


def _tell(places: Sequence[str], port: int) -> None:
    there = f"{_user()}@{socket.gethostname()}"
    print(f"watching {', '.join(places)} at http://127.0.0.1:{port}/ (Ctrl-C ends it)")
    print(f"from another machine: ssh -N -L {port}:127.0.0.1:{port} {there}, and the same address there", flush=True)
