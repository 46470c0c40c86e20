"""A stand-in for the dispatcher: the real static files, and answers that a test chooses.

Only for what the pages themselves do; that they fit the service is tested against the real one.
"""

from __future__ import annotations

import json
import mimetypes
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from millpond.dashboard import CONTENT_SECURITY_POLICY, static_folder
from tests.servers import wait_until

Answer = Any  # JSON, (status, JSON), or a function that gives one of them


@dataclass
class Request:
    method: str
    path: str
    query: str
    body: bytes
    token: str | None

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class StubDispatcher:
    """`answers` maps "GET /overview" to JSON; `token` makes it ask for one; `seen` are the requests
    to the service."""

    answers: dict[str, Answer]
    token: str | None = None
    port: int = 0
    seen: list[Request] = field(default_factory=list)
    _server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def start(self) -> None:
        """On the port it had before, if it was started before."""
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                stub._handle(self)

            def do_POST(self) -> None:
                stub._handle(self)

            def do_PATCH(self) -> None:
                stub._handle(self)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def received(self, method: str, path: str) -> list[Request]:
        return [one for one in list(self.seen) if (one.method, one.path) == (method, path)]

    def await_request(self, method: str, path: str) -> Request:
        wait_until(lambda: self.received(method, path), f"no {method} {path}", 20)
        return self.received(method, path)[-1]

    def _handle(self, handler: BaseHTTPRequestHandler) -> None:
        address = urlsplit(handler.path)
        length = int(handler.headers.get("Content-Length") or 0)
        given = handler.headers.get("Authorization")
        token = given.removeprefix("Bearer ") if given else None
        path = unquote(address.path)
        body = handler.rfile.read(length)
        if handler.command == "GET" and (path == "/" or path.startswith("/static/")):
            self._send_file(handler, path)
            return
        self.seen.append(Request(handler.command, path, address.query, body, token))
        if self.token is not None and token != self.token:
            self._send(handler, 401, {"errors": ["A token is needed."]})
            return
        answer = self.answers.get(f"{handler.command} {path}", (404, {"errors": ["Not found."]}))
        if isinstance(answer, Callable):
            answer = answer()
        status, content = answer if isinstance(answer, tuple) else (200, answer)
        self._send(handler, status, content)

    def _send_file(self, handler: BaseHTTPRequestHandler, path: str) -> None:
        file = static_folder() / (path.removeprefix("/static/") if path != "/" else "index.html")
        kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
        self._write(handler, 200, kind, file.read_bytes())

    def _send(self, handler: BaseHTTPRequestHandler, status: int, content: Any) -> None:
        self._write(handler, status, "application/json", json.dumps(content).encode())

    def _write(self, handler: BaseHTTPRequestHandler, status: int, kind: str, data: bytes) -> None:
        handler.send_response(status)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(data)))
        handler.send_header("Content-Security-Policy", CONTENT_SECURITY_POLICY)
        handler.end_headers()
        handler.wfile.write(data)
