"""A dispatcher that says what a test wants it to say, over real HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

JID = "0123456789abcdef0123456789abcdef"
OTHER = "fedcba9876543210fedcba9876543210"


@dataclass
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Answer:
    content: Any = field(default_factory=dict)
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


Route = Answer | Any | Callable[[Request], Any]


class FakeDispatcher:
    """`answers["GET /jobs/overview"]` is JSON, an Answer, a function of the request, or Steps of such.
    `requests` has what came."""

    def __init__(self) -> None:
        self.answers: dict[str, Route] = {"GET /overview": {}}
        self.requests: list[Request] = []
        dispatcher = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                length = int(self.headers.get("content-length", 0))
                parts = urlsplit(self.path)
                query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
                request = Request(
                    self.command, parts.path, query, dict(self.headers), self.rfile.read(length)
                )
                answer = dispatcher._answer(request)
                raw = answer.content
                content = raw if isinstance(raw, bytes) else json.dumps(raw).encode()
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def __getattr__(self, name: str) -> Any:
                if name.startswith("do_"):
                    return self.handle_any
                raise AttributeError(name)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def _answer(self, request: Request) -> Answer:
        self.requests.append(request)
        key = f"{request.method} {unquote(request.path)}"
        found: Any = self.answers.get(key, Answer({"errors": [f"Not found: {key}"]}, 404))
        if isinstance(found, Steps):
            found = found.pop(0) if len(found) > 1 else found[0]
        if callable(found):
            found = found(request)
        return found if isinstance(found, Answer) else Answer(found)

    def sent(self, method: str) -> list[str]:
        return [request.path for request in self.requests if request.method == method]

    def job(self, state: str = "RUNNING", jid: str = JID, name: str = "views") -> None:
        """One more job, in all the places where a dispatcher tells of it."""
        entry = {
            "jid": jid,
            "name": name,
            "state": state,
            "start-time": 1_700_000_000_000,
            "end-time": -1,
            "duration": 65_000,
        }
        jobs = self.answers.setdefault("GET /jobs/overview", {"jobs": []})
        jobs["jobs"].append(entry)
        vertex = {
            "id": "a" * 32,
            "name": "Source: views",
            "parallelism": 2,
            "status": state,
            "metrics": {"read-records": 0, "write-records": 1234},
        }
        self.answers[f"GET /jobs/{jid}"] = {**entry, "vertices": [vertex]}
        self.answers[f"GET /jobs/{jid}/plan"] = {
            "plan": {"jid": jid, "name": name, "nodes": [{"id": "a" * 32, "inputs": []}]}
        }

    def __enter__(self) -> FakeDispatcher:
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Steps(list[Any]):
    """Answers that come one after the other; the last one for ever."""
