"""A Hugging Face Hub on loopback that models are pushed to and read from: the requests of huggingface_hub, over HTTP.

It keeps what it is sent in memory, files by hash as the Hub does, and fails when it is told to.
"""

import base64
import hashlib
import http.server
import json
import re
import socket
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import unquote

USER, TOKEN = "me", "hf_secretOfThisTest"
PART = 4096
"""Bytes of a part of a file that is large enough to be sent in parts."""


@dataclass
class Fault:
    """What the next requests of a kind meet: a status, or None for a connection that ends without an answer."""

    method: str
    path: str
    status: int | None
    times: int = 1
    after: bool = False
    """Whether the request is carried out before its answer is lost."""
    hang: bool = False
    """Whether nothing is answered until the Hub is released."""


@dataclass
class Repo:
    private: bool = False
    commits: list[dict[str, str]] = field(default_factory=lambda: [{}])
    """Each commit's files, name -> hash."""
    branches: dict[str, int] = field(default_factory=lambda: {"main": 0})
    messages: list[str] = field(default_factory=list)


@dataclass
class Hub:
    """What the Hub has, and what it was asked."""

    address: str = ""
    repos: dict[str, Repo] = field(default_factory=dict)
    stored: dict[str, bytes] = field(default_factory=dict)
    """Content by git's id, of large files by SHA-256."""
    parts: dict[str, dict[int, bytes]] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    role: str = "write"
    release: threading.Event = field(default_factory=threading.Event)

    def files(self, name: str, branch: str = "main") -> dict[str, bytes]:
        repo = self.repos[name]
        return {file: self.stored[sha] for file, sha in repo.commits[repo.branches[branch]].items()}

    def put(self, name: str, files: dict[str, bytes], private: bool = False) -> None:
        """Have a repository hold files, as if somebody had committed them."""
        repo = self.repos.setdefault(name, Repo(private))
        hashes = {file: self.keep(content, large(file)) for file, content in files.items()}
        self.commit(repo, "main", {**repo.commits[repo.branches["main"]], **hashes})

    def keep(self, content: bytes, as_large: bool) -> str:
        sha = hashlib.sha256(content).hexdigest() if as_large else git_id(content)
        self.stored[sha] = content
        return sha

    @staticmethod
    def commit(repo: Repo, branch: str, files: dict[str, str]) -> None:
        repo.commits.append(files)
        repo.branches[branch] = len(repo.commits) - 1

    def count(self, pattern: str) -> int:
        return sum(bool(re.search(pattern, line)) for line in self.asked)


def large(name: str) -> bool:
    return name.endswith((".safetensors", ".model", ".bin"))


def git_id(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def oid(number: int) -> str:
    return f"{number + 1:040x}"


@contextmanager
def model_hub():
    """The Hub, while it runs."""
    hub = Hub()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    hub.address = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # headers and body are sent apart
    hub: Hub

    def log_message(self, *_) -> None:
        pass

    def do_GET(self) -> None:
        path, _, query = unquote(self.path).partition("?")
        self.hub.asked.append(f"{self.command} {path}")
        fault = next((f for f in self.hub.faults if f.method == self.command and re.search(f.path, path)), None)
        if fault is not None:
            fault.times -= 1
            if fault.times <= 0:
                self.hub.faults.remove(fault)
            if fault.hang:
                self.hub.release.wait(600)
            if fault.status is None and not fault.after:
                self.rfile.read(min(self._length(), 100))  # it ends in the middle
                self._hang_up()
                return
        body = self._body()
        if fault is not None and fault.status is not None and not fault.after:
            # like a careless proxy, which repeats what it was sent
            told = json.dumps({"error": f"made to fail, for {self.headers.get('Authorization')}"}).encode()
            self._answer(fault.status, told)
            return
        answer = self._find(path, query, body)
        if fault is not None and fault.after:
            self._hang_up()
            return
        self._answer(*answer)

    do_HEAD = do_POST = do_PUT = do_GET

    def _find(self, path: str, query: str, body: bytes):
        known = self.headers.get("Authorization") == f"Bearer {TOKEN}"
        if path.startswith("/storage/"):
            assert "Authorization" not in self.headers, "a token is not for the storage"
            return self._store(path.removeprefix("/storage/"), body)
        if path == "/api/whoami-v2":
            return self._whoami() if known else error(401, "Invalid username or password.")
        if path == "/api/repos/create":
            return self._create(json.loads(body)) if known else error(401, "Invalid username or password.")
        if path == "/api/validate-yaml":
            return self._validate(json.loads(body)["content"])
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(\w+))?(?:/(.+))?", path):
            return self._of_repo(*found.groups(), known=known, body=body)
        if found := re.fullmatch(r"/([^/]+/[^/]+)\.git/info/lfs/objects/(batch|verify)", path):
            return self._batch(json.loads(body)) if found[2] == "batch" and known else (200, b"{}")
        if found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            return self._send_file(*found.groups(), known=known)
        return error(404, "not here")

    def _whoami(self):
        auth = {"type": "access_token", "accessToken": {"displayName": "t", "role": self.hub.role}}
        return reply({"type": "user", "name": USER, "orgs": [{"name": "group"}], "auth": auth})

    def _create(self, asked):
        name = f"{asked.get('organization') or USER}/{asked['name']}"
        if name in self.hub.repos:
            return error(409, "You already created this model repo")
        if name.split("/")[0] not in (USER, "group"):
            return error(403, "You don't have the rights to create a model under this namespace")
        private = asked.get("private") or asked.get("visibility") == "private"
        self.hub.repos[name] = Repo(bool(private), [{".gitattributes": self.hub.keep(b"*.bin filter=lfs\n", False)}])
        return reply({"url": f"{self.hub.address}/{name}"})

    def _validate(self, content: str):
        import yaml

        try:
            block = re.match(r"---\n(.*?)\n---\n", content, re.DOTALL)
            metadata = yaml.safe_load(block[1]) if block else {}
            wrong = [] if isinstance(metadata, dict) else ["is no mapping"]
            wrong += [f"{key} holds no text" for key in ("tags", "language") if not texts(metadata.get(key, []))]
        except yaml.YAMLError as problem:
            wrong = [str(problem)]
        answer = {"errors": [{"message": one} for one in wrong], "warnings": []}
        return reply(answer, 400 if wrong else 200)

    def _of_repo(self, name, what, rest, *, known, body):
        repo = self.hub.repos.get(name)
        if repo is None or (repo.private and not known):
            return error(404 if known else 401, "Repository not found", "RepoNotFound")
        if what in ("preupload", "commit", "branch"):
            if not known or name.split("/")[0] not in (USER, "group"):
                return error(403, "This repository is not yours to write")
            return getattr(self, f"_{what}")(name, repo, rest, body)
        if what == "tree" and "/" in rest:
            return error(404, f"{rest} does not exist", "EntryNotFound")  # no model here has folders
        if what in (None, "revision", "tree"):
            commit = self._commit_of(repo, rest or "main")
            if commit is None:
                return error(404, f"Invalid rev id: {rest}", "RevisionNotFound")
            entries = [self._entry(file, sha) for file, sha in repo.commits[commit].items()]
            if what == "tree":
                return reply([_in_tree(entry) for entry in entries])
            return reply({"id": name, "sha": oid(commit), "private": repo.private, "siblings": entries, "tags": []})
        return error(404, "not here")

    def _entry(self, file, sha):
        content = self.hub.stored[sha]
        lfs = {"lfs": {"sha256": sha, "size": len(content), "pointerSize": 130}} if len(sha) == 64 else {}
        return {"rfilename": file, "size": len(content), "blobId": git_id(content), **lfs}

    @staticmethod
    def _commit_of(repo, revision):
        if revision in repo.branches:
            return repo.branches[revision]
        numbers = {oid(number): number for number in range(len(repo.commits))}
        return numbers.get(revision)

    def _branch(self, name, repo, branch, body):
        repo.branches.setdefault(branch, repo.branches["main"])
        return reply({})

    def _preupload(self, name, repo, branch, body):
        there = repo.commits[repo.branches[branch]]
        answers = [
            {"path": file["path"], "shouldIgnore": False, "oid": there.get(file["path"])}
            | {"uploadMode": "lfs" if large(file["path"]) else "regular"}
            for file in json.loads(body)["files"]
        ]
        return reply({"files": answers})

    def _batch(self, asked):
        objects = []
        for one in asked["objects"]:
            sha, size = one["oid"], one["size"]
            if sha in self.hub.stored:
                objects.append(one)
                continue
            count = -(-size // PART)
            if count > 1:
                header = {f"{n:05d}": f"{self.hub.address}/storage/{sha}/{n}" for n in range(1, count + 1)}
                upload = {"href": f"{self.hub.address}/storage/{sha}/end", "header": header | {"chunk_size": str(PART)}}
            else:
                upload = {"href": f"{self.hub.address}/storage/{sha}/whole"}
            objects.append({**one, "actions": {"upload": upload}})
        return reply({"transfer": "basic", "objects": objects})

    def _store(self, place, body):
        sha, part = place.split("/")
        parts = self.hub.parts.setdefault(sha, {})
        if part.isdecimal():
            parts[int(part)] = body
            return 200, b"", {"ETag": f'"{hashlib.md5(body).hexdigest()}"'}
        content = body if part == "whole" else b"".join(parts[number] for number in sorted(parts))
        if hashlib.sha256(content).hexdigest() != sha:
            return error(400, "not the content of that hash")
        self.hub.keep(content, True)
        return reply({})

    def _commit(self, name, repo, branch, body):
        lines = [json.loads(line) for line in body.splitlines()]
        header = next(line["value"] for line in lines if line["key"] == "header")
        if header.get("parentCommit") not in (None, oid(repo.branches[branch])):
            return error(412, "A commit has happened since. Please refresh and try again.")
        files = dict(repo.commits[repo.branches[branch]])
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = self.hub.keep(base64.b64decode(value["content"]), False)
            elif line["key"] == "lfsFile":
                if value["oid"] not in self.hub.stored:
                    return error(400, f"{value['path']} was never uploaded")
                files[value["path"]] = value["oid"]
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        self.hub.commit(repo, branch, files)
        repo.messages.append(header["summary"])
        return reply({"commitUrl": f"{self.hub.address}/{name}", "commitOid": oid(repo.branches[branch])})

    def _send_file(self, name, revision, file, *, known):
        repo = self.hub.repos.get(name)
        if repo is None or (repo.private and not known):
            return error(404 if known else 401, "Repository not found", "RepoNotFound")
        commit = self._commit_of(repo, revision)
        if commit is None:
            return error(404, "Invalid rev id", "RevisionNotFound")
        sha = repo.commits[commit].get(file)
        if sha is None:
            return 404, b"{}", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": oid(commit)}
        content, headers = self.hub.stored[sha], {"ETag": f'"{sha}"', "X-Repo-Commit": oid(commit)}
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if not wanted:
            return 200, content, {**headers, "Accept-Ranges": "bytes"}
        first, stop = int(wanted[1]), int(wanted[2] or len(content) - 1) + 1
        headers["Content-Range"] = f"bytes {first}-{min(stop, len(content)) - 1}/{len(content)}"
        return 206, content[first:stop], headers

    def _length(self) -> int:
        return int(self.headers.get("Content-Length") or 0)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(self._length())
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _hang_up(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        told = {"Content-Type": "application/json", **(headers or {}), "Content-Length": str(len(body))}
        for name, value in told.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _in_tree(entry):
    large_one = {"lfs": {**entry["lfs"], "oid": entry["lfs"]["sha256"]}} if "lfs" in entry else {}
    return {"type": "file", "path": entry["rfilename"], "oid": entry["blobId"], "size": entry["size"], **large_one}


def texts(value) -> bool:
    return all(isinstance(one, str) for one in (value if isinstance(value, list) else [value]))


def reply(value, status: int = 200):
    return status, json.dumps(value).encode(), {}


def error(status: int, message: str, code: str = ""):
    headers = {"X-Error-Message": message, **({"X-Error-Code": code} if code else {})}
    return status, json.dumps({"error": message}).encode(), headers
