"""A server with the part of the Hub's interface that ``huggingface_hub`` calls for datasets.

It keeps everything in memory: repositories with commits, files in Git or in large file storage, which it
serves from another address (as the Hub's network of copies does), pages of listings, and conditional commits.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

Files = dict[str, bytes]
TOKEN = "hf_of_the_tests"
_LARGE = (".parquet", ".tfrecord", ".gz", ".jpg", ".png", ".tar")  # as .gitattributes of a new repository


@dataclass
class Repository:
    """Commits (digest -> files) and branches (name -> digest), newest last."""

    commits: dict[str, Files] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    is_private: bool = False
    is_gated: bool = False

    def commit(self, files: Files, branch: str = "main") -> str:
        """Add a commit with exactly these files."""
        sha = hashlib.sha1(f"{len(self.commits)} {sorted(files)}".encode()).hexdigest()
        self.commits[sha] = dict(files)
        self.refs[branch] = sha
        return sha

    def files(self, revision: str = "main") -> Files | None:
        """The files of a revision; None: there is none."""
        return self.commits.get(self.refs.get(revision, revision))


@dataclass
class Hub:
    """The state of a server.

    Attributes:
        page: entries in a page of a listing.
        faults: answers in place of the right ones: (part of "METHOD path", status, headers), each used once.
        requests: "METHOD path" of every request.
        uploads: digest of each upload, as they came.
        lost: digests of large files that are not there any more.
        before_commit: called once, before the next commit is made.
    """

    url: str = ""
    page: int = 1000
    repositories: dict[str, Repository] = field(default_factory=dict)
    large: Files = field(default_factory=dict)
    faults: list[tuple[str, int, dict[str, str]]] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    uploads: list[str] = field(default_factory=list)
    lost: set[str] = field(default_factory=set)
    before_commit: Callable[[], Any] | None = None

    def add(self, name: str, files: Files, **options: bool) -> str:
        """Make a repository with one commit; return its digest."""
        self.repositories[name] = Repository(**options)
        return self.repositories[name].commit(files)


def is_large(path: str, data: bytes) -> bool:
    return bool(data) and path.endswith(_LARGE)


def _entry(path: str, data: bytes) -> dict[str, Any]:
    blob = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
    entry: dict[str, Any] = {"type": "file", "path": path, "size": len(data), "oid": blob}
    if is_large(path, data):
        oid = hashlib.sha256(data).hexdigest()
        entry["lfs"] = {"oid": oid, "size": len(data), "pointerSize": 130}
    return entry


def _tree(files: Files, folder: str, recursive: bool) -> list[dict[str, Any]]:
    prefix = f"{folder}/" if folder else ""
    found: dict[str, dict[str, Any]] = {}
    for path, data in sorted(files.items()):
        if not path.startswith(prefix):
            continue
        parts = path[len(prefix) :].split("/")
        for depth in range(1, len(parts) if recursive else min(len(parts), 2)):
            name = prefix + "/".join(parts[:depth])
            found[name] = {"type": "directory", "path": name, "size": 0, "oid": "0" * 40}
        if recursive or len(parts) == 1:
            found[path] = _entry(path, data)
    return [found[name] for name in sorted(found)]


class _Answer(Exception):
    def __init__(self, status: int, body: Any = b"", **headers: str) -> None:
        super().__init__(status)
        self.status, self.body = status, body
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


def _missing(code: str) -> _Answer:
    return _Answer(404, {"error": f"{code} here"}, X_Error_Code=code, X_Error_Message=f"{code} here")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *_: Any) -> None:
        pass

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self.body = self.rfile.read(length) if length else self._chunks()
        parts = urlsplit(self.path)
        self.place, self.query = parts.path, parse_qs(parts.query)
        asked = f"{self.command} {unquote(self.place)}"
        self.hub.requests.append(asked)
        try:
            for fault in self.hub.faults:
                if fault[0] in asked:
                    self.hub.faults.remove(fault)
                    raise _Answer(fault[1], {"error": "busy"}, **fault[2])
            for pattern, method in self._ROUTES:
                if found := re.fullmatch(pattern, f"{self.command} {self.place}"):
                    method(self, *(group and unquote(group) for group in found.groups()))
            raise _missing("RepoNotFound")
        except _Answer as answer:
            self._send(answer)

    do_GET = do_HEAD = do_POST = do_PUT = _serve  # noqa: N815

    def _chunks(self) -> bytes:
        data = b""
        while "chunked" in self.headers.get("Transfer-Encoding", ""):
            size = int(self.rfile.readline(), 16)
            data += self.rfile.read(size)
            self.rfile.readline()
            if not size:
                break
        return data

    def _send(self, answer: _Answer) -> None:
        body = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _user(self) -> bool:
        given = self.headers.get("Authorization")
        if given not in (None, f"Bearer {TOKEN}"):
            message = "Invalid credentials in Authorization header"
            raise _Answer(401, {"error": message}, X_Error_Message=message)
        return given is not None

    def _repository(self, name: str) -> Repository:
        known = self._user()
        repository = self.hub.repositories.get(name)
        if repository is None or (repository.is_private and not known):
            raise _missing("RepoNotFound") if known else _Answer(401, {"error": "Repository not found"})
        return repository

    def _at(self, name: str, revision: str) -> tuple[str, Files]:
        repository = self._repository(name)
        files = repository.files(revision)
        if files is None:
            raise _missing("RevisionNotFound")
        return repository.refs.get(revision, revision), files

    def _info(self, name: str, revision: str | None) -> None:
        sha, files = self._at(name, revision or "main")
        siblings = [{"rfilename": path} for path in files]
        raise _Answer(200, {"id": name, "sha": sha, "private": False, "siblings": siblings, "tags": []})

    def _list(self, name: str, revision: str, folder: str | None) -> None:
        _, files = self._at(name, revision)
        entries = _tree(files, folder or "", self.query.get("recursive") in (["true"], ["True"]))
        if folder and not entries:
            raise _missing("EntryNotFound")
        first = int(self.query.get("cursor", ["0"])[0])
        last = first + self.hub.page
        headers = {}
        if last < len(entries):
            recursive = self.query.get("recursive", ["false"])[0]
            link = f"{self.hub.url}{self.place}?recursive={recursive}&cursor={last}"
            headers["Link"] = f'<{link}>; rel="next"'
        raise _Answer(200, entries[first:last], **headers)

    def _paths(self, name: str, revision: str) -> None:
        _, files = self._at(name, revision)
        paths = parse_qs(self.body.decode()).get("paths", [])
        found = []
        for path in paths:
            if path in files:
                found.append(_entry(path, files[path]))
            elif any(other.startswith(f"{path}/") for other in files):
                found.append({"type": "directory", "path": path, "size": 0, "oid": "0" * 40})
        raise _Answer(200, found)

    def _resolve(self, name: str, revision: str, path: str) -> None:
        repository = self._repository(name)
        if repository.is_gated and not self._user():
            raise _Answer(403, {"error": "gated"}, X_Error_Code="GatedRepo")
        sha, files = self._at(name, revision)
        if path not in files:
            raise _missing("EntryNotFound")
        data = files[path]
        oid = _entry(path, data).get("lfs", {}).get("oid")
        if oid is None:
            self._ranged(data, ETag='"git"', X_Repo_Commit=sha)
        self.hub.large[oid] = data
        elsewhere = self.hub.url.replace("127.0.0.1", "localhost")
        raise _Answer(
            302, b"", Location=f"{elsewhere}/large/{oid}", X_Repo_Commit=sha,
            X_Linked_Etag=f'"{oid}"', X_Linked_Size=str(len(data)),
        )  # fmt: skip

    def _ranged(self, data: bytes, **headers: str) -> None:
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if found is None:
            raise _Answer(200, data, **headers)
        start, end = int(found[1]), min(int(found[2] or len(data)), len(data) - 1)
        if start >= len(data):
            raise _Answer(416, b"", Content_Range=f"bytes */{len(data)}")
        headers["Content_Range"] = f"bytes {start}-{end}/{len(data)}"
        raise _Answer(206, data[start : end + 1], **headers)

    def _large(self, oid: str) -> None:
        assert self.headers.get("Authorization") is None, "a token never leaves the Hub"
        if oid in self.hub.lost:
            raise _Answer(404)
        self._ranged(self.hub.large[oid], ETag=f'"{oid}"')

    def _create(self) -> None:
        asked = json.loads(self.body)
        if not self._user():
            raise _Answer(401, {"error": "log in"})
        name = f"{asked['organization']}/{asked['name']}"
        if name in self.hub.repositories:
            raise _Answer(409, {"error": "You already created this dataset repo"})
        self.hub.add(
            name, {".gitattributes": b"*.parquet filter=lfs"}, is_private=asked.get("visibility") == "private"
        )
        raise _Answer(200, {"url": f"{self.hub.url}/datasets/{name}", "name": name, "id": name})

    def _preupload(self, name: str, revision: str) -> None:
        _, files = self._at(name, revision)
        answers = []
        for file in json.loads(self.body)["files"]:
            mode = "lfs" if file["size"] and file["path"].endswith(_LARGE) else "regular"
            answer = {"path": file["path"], "uploadMode": mode, "shouldIgnore": False}
            if file["path"] in files:
                entry = _entry(file["path"], files[file["path"]])
                answer["oid"] = entry.get("lfs", entry)["oid"]
            answers.append(answer)
        raise _Answer(200, {"files": answers})

    def _batch(self, name: str) -> None:
        self._repository(name)
        objects = []
        for each in json.loads(self.body)["objects"]:
            if each["oid"] not in self.hub.large:
                upload = {"href": f"{self.hub.url}/large/{each['oid']}"}
                each["actions"] = {"upload": upload}
            objects.append(each)
        raise _Answer(200, {"transfer": "basic", "objects": objects})

    def _upload(self, oid: str) -> None:
        assert hashlib.sha256(self.body).hexdigest() == oid
        self.hub.large[oid] = self.body
        self.hub.uploads.append(oid)
        raise _Answer(200)

    def _commit(self, name: str, revision: str) -> None:
        if not self._user():
            raise _Answer(403, {"error": "you may not write here"}, X_Error_Message="you may not write here")
        if self.hub.before_commit is not None:
            act, self.hub.before_commit = self.hub.before_commit, None
            act()
        head, files = self._at(name, revision)
        lines = [json.loads(line) for line in self.body.splitlines()]
        parent = lines[0]["value"].get("parentCommit")
        if parent not in (None, head):
            raise _Answer(412, {"error": "A commit has happened since. Please refresh and try again."})
        made = dict(files)
        for line in lines[1:]:
            value = line["value"]
            if line["key"] == "file":
                made[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                made[value["path"]] = self.hub.large[value["oid"]]
            elif line["key"] == "deletedFile":
                del made[value["path"]]
        sha = self._repository(name).commit(made)
        url = f"{self.hub.url}/datasets/{name}/commit/{sha}"
        raise _Answer(200, {"commitUrl": url, "commitOid": sha, "success": True})

    def _valid(self) -> None:
        errors = (
            [{"message": '"license" must be one of ...'}]
            if "license: none-such" in self.body.decode()
            else []
        )
        raise _Answer(400 if errors else 200, {"errors": errors, "warnings": []})

    _ROUTES: tuple[tuple[str, Callable[..., None]], ...] = (
        (r"GET /api/datasets/([^/]+/[^/]+)(?:/revision/(.+))?", _info),
        (r"GET /api/datasets/([^/]+/[^/]+)/tree/([^/]+)(?:/(.+))?", _list),
        (r"POST /api/datasets/([^/]+/[^/]+)/paths-info/(.+)", _paths),
        (r"(?:GET|HEAD) /datasets/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", _resolve),
        (r"GET /large/(.+)", _large),
        (r"POST /api/repos/create", _create),
        (r"POST /api/datasets/([^/]+/[^/]+)/preupload/(.+)", _preupload),
        (r"POST /datasets/([^/]+/[^/]+)\.git/info/lfs/objects/batch", _batch),
        (r"PUT /large/(.+)", _upload),
        (r"POST /api/datasets/([^/]+/[^/]+)/commit/(.+)", _commit),
        (r"POST /api/validate-yaml", _valid),
    )


@contextmanager
def serving() -> Iterator[Hub]:
    """Serve an empty hub while the block runs."""
    hub = Hub()
    handler = type("Handler", (_Handler,), {"hub": hub})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        hub.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()
