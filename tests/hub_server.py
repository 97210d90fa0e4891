"""A Hugging Face Hub on loopback with one private data set, for tests of what is read from it."""

import hashlib
import http.server
import json
import threading
from contextlib import contextmanager
from urllib.parse import parse_qs

NAME, TOKEN, COMMIT = "me/private", "hf_secretOfThisTest", "a" * 40
FILES = {
    "README.md": b"---\nconfigs:\n- config_name: default\n  data_files:\n  - split: train\n    path: train.jsonl\n"
    b"  - split: test\n    path: test.jsonl\n---\n",
    "train.jsonl": b"".join(json.dumps({"text": f"line {n}"}).encode() + b"\n" for n in range(50)),
    "test.jsonl": b'{"text": "held out"}\n',
}


@contextmanager
def hub_server():
    """The server's address. Whoever shows no token hears that there is no such data set, as on the Hub."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_) -> None:
        pass

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        shown = self.headers.get("Authorization", "")
        path = self.path.partition("?")[0]
        if shown != f"Bearer {TOKEN}":
            told = json.dumps({"error": f"{shown} does not open this"}).encode()
            self._answer(401, told, {"X-Error-Code": "RepoNotFound", "X-Error-Message": f"{shown} opens nothing"})
        elif path.startswith(f"/api/datasets/{NAME}"):
            self._answer(200, json.dumps(_about(path.removeprefix(f"/api/datasets/{NAME}"), body)).encode(), {})
        elif "/resolve/" in path:
            self._send_file(path.partition("/resolve/")[2].partition("/")[2])
        else:
            self._answer(404, b"{}", {})

    do_HEAD = do_POST = do_GET

    def _send_file(self, name: str) -> None:
        if name not in FILES:
            self._answer(404, b"{}", {"X-Error-Code": "EntryNotFound"})
            return
        data, headers = FILES[name], {"ETag": f'"{_hash(name)}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        wanted = self.headers.get("Range", "").removeprefix("bytes=")
        if not wanted:
            self._answer(200, data, headers)
            return
        first, last = (int(place) if place else None for place in wanted.split("-"))
        part = data[first or 0 : None if last is None else last + 1]
        headers["Content-Range"] = f"bytes {first or 0}-{(first or 0) + len(part) - 1}/{len(data)}"
        self._answer(206, part, headers)

    def _answer(self, code: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(code)
        for name, value in {"Content-Type": "application/json", **headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _about(what: str, body: bytes):
    entries = [{"type": "file", "oid": _hash(name), "size": len(FILES[name]), "path": name} for name in FILES]
    if what.startswith("/tree/"):
        return entries
    if what.startswith("/paths-info/"):
        paths = json.loads(body)["paths"] if body.startswith(b"{") else parse_qs(body.decode())["paths"]
        return [entry for entry in entries if entry["path"] in paths]
    files = [{"rfilename": name} for name in FILES]
    return {"id": NAME, "sha": COMMIT, "private": True, "siblings": files, "tags": [], "downloads": 0, "likes": 0}


def _hash(name: str) -> str:
    return hashlib.sha1(FILES[name]).hexdigest()
