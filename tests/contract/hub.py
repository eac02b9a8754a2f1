"""A small hub on loopback that speaks the protocol of the real one, and fails in the ways that it does."""

import hashlib
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
BLOCK = 64 << 10
_RESOLVE = re.compile(r"/(?P<repo>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<name>.+)")
_BLOB = re.compile(r"/blob/(?P<repo>[^/]+/[^/]+)/(?P<name>.+)")
_INFO = re.compile(r"/api/models/(?P<repo>[^/]+/[^/]+)(?:/revision/(?P<revision>[^/]+))?")


@dataclass
class Hub:
    """Files by repository and name. `lfs` are told by their sha256 and served from another address, by a redirect.

    pace    bytes a second for each connection; 0 is as fast as it goes
    stalls  name -> byte at which its next transfer stops moving, once
    cuts    name -> bytes after which its connection ends, once each
    errors  name -> status codes for its next requests
    swapped name -> what is sent in the place of what is told
    xet     repositories whose large files are told to lie in a store that never answers
    """

    repos: dict[str, dict[str, bytes]]
    lfs: Callable[[str], bool] = lambda name: name.endswith(".safetensors")
    pace: int = 0
    token: str = ""
    branches: tuple[str, ...] = ("main",)
    stalls: dict[str, int] = field(default_factory=dict)
    cuts: dict[str, list[int]] = field(default_factory=dict)
    errors: dict[str, list[int]] = field(default_factory=dict)
    swapped: dict[str, bytes] = field(default_factory=dict)
    no_ranges: bool = False
    xet: bool = False
    sent: Counter[str] = field(default_factory=Counter)
    asked: list[tuple[str, str, str]] = field(default_factory=list)

    def __enter__(self) -> Self:
        self.over = threading.Event()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": self}))
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.over.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    @property
    def store(self) -> str:
        """Another name, as the real one sends its large files from: the client looks no further than to it."""
        return f"http://localhost:{self.server.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name of the overridden method
        return

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, *, body: bool) -> None:
        path = unquote(urlsplit(self.path).path)
        if path.startswith("/xet-token"):
            self.hub.over.wait()
            return None
        if self.hub.token and self.headers.get("Authorization") != f"Bearer {self.hub.token}" and "/blob/" not in path:
            return self.refuse(401, "RepoNotFound")
        if found := _INFO.fullmatch(path):
            return self.info(found["repo"], found["revision"] or "main")
        if found := _RESOLVE.fullmatch(path):
            return self.resolve(found["repo"], found["revision"], found["name"], body=body)
        if found := _BLOB.fullmatch(path):
            return self.send(found["name"], self.hub.repos[found["repo"]][found["name"]], {}, body=body)
        return self.refuse(404, "")

    def info(self, repo: str, revision: str) -> None:
        if repo not in self.hub.repos:
            return self.refuse(404, "RepoNotFound")
        if revision not in (*self.hub.branches, COMMIT):
            return self.refuse(404, "RevisionNotFound")
        siblings = []
        for name, data in self.hub.repos[repo].items():
            one = {"rfilename": name, "size": len(data), "blobId": git_digest(data)}
            if self.hub.lfs(name):
                one["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 135}
            siblings.append(one)
        text = json.dumps({"id": repo, "sha": COMMIT, "siblings": siblings, "private": False}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
        return None

    def resolve(self, repo: str, revision: str, name: str, *, body: bool) -> None:
        data = self.hub.repos.get(repo, {}).get(name)
        if data is None:
            return self.refuse(404, "EntryNotFound")
        self.hub.asked.append((self.command, name, self.headers.get("Range", "")))
        if self.hub.errors.get(name):
            return self.refuse(self.hub.errors[name].pop(0), "")
        told = {"X-Repo-Commit": COMMIT, "ETag": f'"{git_digest(data)}"'}
        if not self.hub.lfs(name):
            return self.send(name, data, told, body=body)
        told |= {"X-Linked-Etag": f'"{hashlib.sha256(data).hexdigest()}"', "X-Linked-Size": str(len(data))}
        if self.hub.xet:
            told |= {"X-Xet-Hash": hashlib.sha256(data).hexdigest()}
            told |= {"Link": f'<{self.hub.url}/xet-token>; rel="xet-auth"'}
        self.send_response(302)
        for key, value in told.items():
            self.send_header(key, value)
        self.send_header("Location", f"{self.hub.store}/blob/{repo}/{name}")
        self.send_header("Content-Length", "0")
        self.end_headers()
        return None

    def send(self, name: str, data: bytes, told: dict[str, str], *, body: bool) -> None:
        data = self.hub.swapped.get(name, data)
        start, end = 0, len(data)
        ranged = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if ranged and not self.hub.no_ranges:
            start, end = int(ranged[1]), int(ranged[2] or end - 1) + 1
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(data)}")
        else:
            self.send_response(200)
        for key, value in told.items():
            self.send_header(key, value)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(end - start))
        self.end_headers()
        if body:
            self.stream(name, memoryview(data)[start:end], start)

    def stream(self, name: str, data: memoryview, start: int) -> None:
        cut = self.hub.cuts[name].pop(0) if self.hub.cuts.get(name) else None
        stall = self.hub.stalls.get(name)
        for at in range(0, len(data), BLOCK):
            block = data[at : at + BLOCK]
            if stall is not None and start + at >= stall:
                self.hub.stalls.pop(name, None)
                self.hub.over.wait()
            if cut is not None and at >= cut:
                self.close_connection = True
                self.connection.close()
                return
            try:
                self.wfile.write(block)
            except OSError:
                self.close_connection = True
                return
            self.hub.sent[name] += len(block)
            if self.hub.pace:
                time.sleep(len(block) / self.hub.pace)

    def refuse(self, code: int, why: str) -> None:
        self.send_response(code)
        if why:
            self.send_header("X-Error-Code", why)
        self.send_header("Content-Length", "0")
        self.end_headers()


def git_digest(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
