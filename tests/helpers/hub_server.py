"""A small Hub on loopback, which the real client talks to: as much of its protocol as publishing and loading takes."""

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import unquote, urlparse

WRITER, READER = "hf_writer", "hf_reader"  # tokens


@dataclass
class Hub:
    """What the server holds and what it is to do wrong.

    Attributes:
        url: its address.
        repositories: id -> path -> content.
        commits: (id, message, paths) of each commit.
        cut: how many of the next commits break off while they are sent.
        broken: how many of the next commits end in "502 Bad Gateway".
        gated: ids that nobody may read.
        requests: method and path of each request.
    """

    url: str = ""
    repositories: dict[str, dict[str, bytes]] = field(default_factory=dict)
    commits: list[tuple[str, str, list[str]]] = field(default_factory=list)
    cut: int = 0
    broken: int = 0
    gated: set[str] = field(default_factory=set)
    requests: list[str] = field(default_factory=list)


@contextmanager
def running_hub() -> Iterator[Hub]:
    """A Hub that runs meanwhile, on a free port."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    @property
    def token(self) -> str:
        return self.headers.get("Authorization", "").removeprefix("Bearer ")

    def answer(self, status: int, value=None, headers=None) -> None:
        content = value if isinstance(value, bytes) else json.dumps(value or {}).encode()
        self.send_response(status)
        for name, header in {"Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(name, header)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def refuse(self, status: int, message: str, code: str = "") -> None:
        self.answer(
            status, {"error": message}, {"X-Error-Message": message} | ({"X-Error-Code": code} if code else {})
        )

    def do_POST(self):
        path = urlparse(self.path).path
        self.hub.requests.append(f"POST {path}")
        length = int(self.headers.get("Content-Length", 0))
        if path.endswith("/commit/main") and self.hub.cut:
            self.hub.cut -= 1
            self.rfile.read(length // 2)
            self.close_connection = True
            self.connection.close()
            return
        body = self.rfile.read(length)
        if self.token != WRITER:
            known = self.token == READER
            self.refuse(403 if known else 401, "Forbidden: a read token" if known else "Invalid username or password.")
        elif path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked.get('organization') or 'me'}/{asked['name']}"
            status = 409 if name in self.hub.repositories else 200
            self.hub.repositories.setdefault(name, {})
            self.answer(status, {"url": f"{self.hub.url}/{name}", "name": name})
        elif path == "/api/validate-yaml":
            self.answer(200, {"errors": [], "warnings": []})
        elif match := re.fullmatch(r"/api/models/(.+)/preupload/main", path):
            held = self.hub.repositories[match[1]]
            files = []
            for file in json.loads(body)["files"]:
                content = held.get(file["path"])
                oid = None if content is None else hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
                files.append({"path": file["path"], "uploadMode": "regular", "shouldIgnore": False, "oid": oid})
            self.answer(200, {"files": files})
        elif match := re.fullmatch(r"/api/models/(.+)/commit/main", path):
            self.commit(match[1], [json.loads(line) for line in body.splitlines()])
        else:
            self.refuse(404, f"no route {path}")

    def commit(self, name: str, lines: list[dict]) -> None:
        if self.hub.broken:
            self.hub.broken -= 1
            self.refuse(502, "Bad Gateway")
            return
        files = {line["value"]["path"]: line["value"]["content"] for line in lines if line["key"] == "file"}
        for line in lines:
            if line["key"] == "deletedFile":
                del self.hub.repositories[name][line["value"]["path"]]
        self.hub.repositories[name] |= {path: base64.b64decode(content) for path, content in files.items()}
        self.hub.commits.append((name, lines[0]["value"]["summary"], sorted(files)))
        oid = f"{len(self.hub.commits):040x}"
        self.answer(200, {"commitUrl": f"{self.hub.url}/{name}/commit/{oid}", "commitOid": oid})

    def do_GET(self):
        path = unquote(urlparse(self.path).path)
        self.hub.requests.append(f"{self.command} {path}")
        match = re.fullmatch(
            r"/(?:api/models/|(?:api/)?datasets/)?([^/]+/[^/]+?)(?:/(?:resolve|revision|tree)/[^/]+(?:/(.*))?)?", path
        )
        name, file = match.groups() if match else (None, None)
        if name in self.hub.gated:
            self.refuse(403 if self.token else 401, f"Access to model {name} is restricted.", "GatedRepo")
        elif name not in self.hub.repositories:
            self.refuse(401 if not self.token else 404, "Repository not found", "RepoNotFound")
        elif path.startswith("/api/"):
            held = self.hub.repositories[name]
            info = {"id": name, "sha": f"{len(self.hub.commits):040x}", "tags": []}
            info["siblings"] = [{"rfilename": file} for file in held]
            tree = [{"type": "file", "path": file, "size": len(held[file]), "oid": f"{0:040x}"} for file in held]
            self.answer(200, tree if "/tree/" in path else info)
        elif file not in self.hub.repositories[name]:
            self.refuse(404, "Entry not found", "EntryNotFound")
        else:
            content = self.hub.repositories[name][file]
            commit = {"X-Repo-Commit": f"{len(self.hub.commits):040x}"}
            self.answer(200, content, {"ETag": f'"{hashlib.sha1(content).hexdigest()}"', **commit})

    do_HEAD = do_GET
