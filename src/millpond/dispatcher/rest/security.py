"""Who may ask for what: token, origin, host, size. One layer in front of all paths.

- A token, unless the dispatcher was started without one: `Authorization: Bearer ...`. The dashboard's own
  files are free: they ask for it.
- A page of another site, open in the browser of somebody who can reach the dispatcher, must not do anything:
  requests with a foreign `Origin` are refused, and on loopback so are names that are no name of this host (a
  foreign name can be made to lead here).
- Bodies are limited; an upload may be large.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_UPLOAD = "/jars/upload"
_MAX_BODY = 1 << 20
_LOOPBACK_NAMES = {"localhost", "testserver"}


@dataclass(frozen=True)
class Security:
    """`allow_uploads`: None means on loopback only."""

    host: str = "127.0.0.1"
    token: str | None = None
    allow_uploads: bool | None = None
    max_upload_bytes: int = 256 << 20

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.host)

    @property
    def uploads_allowed(self) -> bool:
        return self.is_loopback if self.allow_uploads is None else self.allow_uploads


def is_loopback(host: str) -> bool:
    if host in _LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class SecurityLayer:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, security: Security) -> None:
        self._app = app
        self._security = security

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in scope["headers"]
        }
        path = scope["path"].removeprefix("/v1")
        refusal = self._refusal(path, scope["method"], headers)
        if refusal is not None:
            await _answer(send, *refusal)
            return
        is_upload = path == _UPLOAD
        limit = self._security.max_upload_bytes if is_upload else _MAX_BODY
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > limit:
            await _answer(send, 413, f"The body may have {limit} bytes at most.")
            return
        await self._app(scope, _limited(receive, limit), send)

    def _refusal(self, path: str, method: str, headers: dict[str, str]) -> tuple[int, str] | None:
        security = self._security
        host = headers.get("host", "")
        if security.is_loopback and not is_loopback(_name(host)):
            return (
                403,
                "This dispatcher is for this machine only; ask for it by 127.0.0.1 or localhost.",
            )
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != host:
            return 403, "Pages of other sites may not use this dispatcher."
        if security.token is not None and not _is_free(path):
            given = headers.get("authorization", "")
            if not hmac.compare_digest(given.encode(), f"Bearer {security.token}".encode()):
                return 401, "A token is needed: Authorization: Bearer TOKEN"
        is_upload = path == _UPLOAD and method == "POST"
        if is_upload and not security.uploads_allowed:
            return 403, "Uploads are off; --allow-uploads switches them on."
        return None


def _name(host: str) -> str:
    """Without the port."""
    if host.startswith("["):
        return host[1 : host.find("]")] if "]" in host else host
    return host.rsplit(":", 1)[0] if ":" in host else host


def _is_free(path: str) -> bool:
    return path == "/" or path.startswith("/static/")


def _limited(receive: Receive, limit: int) -> Receive:
    """Whatever the header said, or if there was none."""
    got = 0

    async def receive_some() -> Message:
        nonlocal got
        message = await receive()
        got += len(message.get("body", b""))
        if got > limit:
            return {"type": "http.disconnect"}
        return message

    return receive_some


async def _answer(send: Send, status: int, text: str) -> None:
    body = json.dumps({"errors": [text]}).encode()
    headers: list[Any] = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
