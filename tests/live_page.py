"""The live page of runs on a port of its own, for as long as a test asks."""

import threading
from contextlib import contextmanager

from spanloom.report.live import Watched, server_of


@contextmanager
def served(watched: Watched):
    """Its port."""
    server = server_of(watched, 0)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
