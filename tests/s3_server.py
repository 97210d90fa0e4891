"""An S3 server on loopback (moto's), and a proxy before it whose connections break, for tests of remote files."""

import socket
import threading
from contextlib import contextmanager, suppress


@contextmanager
def s3_server():
    """(address, client) of an empty server."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    client = boto3.client(
        "s3", endpoint_url=address, aws_access_key_id="key", aws_secret_access_key="secret", region_name="us-east-1"
    )
    try:
        yield address, client
    finally:
        server.stop()


class BreakingProxy:
    """Passes connections on to a server, and drops them after so many bytes of an answer, `drops` times."""

    def __init__(self, address: str) -> None:
        host, port = address.removeprefix("http://").split(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.after, self.drops, self.dropped = 0, 0, 0
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._target)
            threading.Thread(target=self._pass, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self._pass, args=(server, client, True), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        passed = 0
        with suppress(OSError):
            while data := source.recv(1 << 14):
                passed += len(data)
                if is_answer and passed > self.after and self._drops_now():
                    break
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _drops_now(self) -> bool:
        with self._lock:
            if self.drops <= 0:
                return False
            self.drops, self.dropped = self.drops - 1, self.dropped + 1
            return True
