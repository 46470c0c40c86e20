"""Decides which requests are allowed, by token, origin, host and size, in one layer in front of all paths.

- Requests need a token (`Authorization: Bearer ...`), unless the dispatcher was started without one. The
  dashboard's own files need none, because they ask the user for it.
- A page of another site, open in the browser of somebody who can reach the dispatcher, must not be able to do
  anything. So requests with a foreign `Origin` are refused, and on loopback so are requests to a host name
  that is not this host's (a foreign name can be made to resolve to this host).
- The size of bodies is limited; an upload may be large.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_UPLOAD = "/jars/upload"
_MAX_BODY = 1 << 20
_LOOPBACK_NAMES = {"localhost", "testserver"}


@dataclass(frozen=True)
class Security:
    """What requests are checked against. `host` is the address that the dispatcher listens on. Without a
    `token`, none is needed. `allow_uploads` is None if uploads are allowed on loopback only."""

    host: str = "127.0.0.1"
    token: str | None = None
    allow_uploads: bool | None = None
    max_upload_bytes: int = 256 << 20

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the dispatcher."""
        return is_loopback(self.host)

    @property
    def uploads_allowed(self) -> bool:
        """Whether clients may upload programs."""
        return self.is_loopback if self.allow_uploads is None else self.allow_uploads


def is_loopback(host: str) -> bool:
    """Return True if a host name or address, without a port, stands for this machine alone."""
    if host in _LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class SecurityLayer:
    """ASGI middleware that answers requests that are not allowed, and passes the others on."""

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
            await _answer(send, 413, f"The body may have at most {limit} bytes.")
            return
        await self._app(scope, _limited(receive, limit), send)

    def _refusal(self, path: str, method: str, headers: dict[str, str]) -> tuple[int, str] | None:
        security = self._security
        host = headers.get("host", "")
        if security.is_loopback and not is_loopback(_name(host)):
            return (
                403,
                "This dispatcher serves this machine only; address it as 127.0.0.1 or localhost.",
            )
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != host:
            return 403, "Pages of other sites may not use this dispatcher."
        if security.token is not None and not _is_free(path):
            given = headers.get("authorization", "")
            if not hmac.compare_digest(given.encode(), f"Bearer {security.token}".encode()):
                return 401, "This request needs a token: Authorization: Bearer TOKEN"
        is_upload = path == _UPLOAD and method == "POST"
        if is_upload and not security.uploads_allowed:
            return 403, "Uploads are not allowed; start the dispatcher with --allow-uploads."
        return None


def _name(host: str) -> str:
    """Return a host without its port."""
    if host.startswith("["):
        return host[1 : host.find("]")] if "]" in host else host
    return host.rsplit(":", 1)[0] if ":" in host else host


def _is_free(path: str) -> bool:
    return path == "/" or path.startswith("/static/")


def _limited(receive: Receive, limit: int) -> Receive:
    """Enforce the limit on the bytes that arrive, whatever the length in the header says."""
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
    headers: list[tuple[bytes, bytes]] = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
