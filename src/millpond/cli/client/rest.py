"""Speaks to a dispatcher over REST (Flink's paths and field names)."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from millpond.errors import DispatcherError, DispatcherUnreachableError, SetupError

if TYPE_CHECKING:
    import httpx

_TIMEOUT_S = 30.0
_MAX_HOPS = 3
HOW_TO_START = (
    "Start one: millpond start-cluster. Or name one: --address http://HOST:PORT, MILLPOND_ADDRESS."
)


class RestClient:
    """Asks the first of several dispatchers that answers; a standby sends on to the leader.

    Raises DispatcherUnreachableError if none answers, DispatcherError with the dispatcher's own words if it
    refuses. Use with `with`, or `close` it."""

    def __init__(
        self,
        addresses: Sequence[str],
        token: str | None = None,
        ca_file: str | None = None,
        timeout_s: float = _TIMEOUT_S,
    ) -> None:
        self._httpx = _import_httpx()
        self.addresses = [_checked(address) for address in addresses]
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        near = all(urlsplit(address).hostname in _LOOPBACK for address in self.addresses)
        self._client = self._httpx.Client(
            verify=_tls(self.addresses, ca_file),
            timeout=timeout_s,
            trust_env=not near,  # a proxy has no way to this machine's loopback
        )

    def get(self, path: str, query: Mapping[str, Any] | None = None) -> Any:
        return self._json(self._request("GET", path, params=query))

    def get_bytes(
        self, path: str, query: Mapping[str, Any] | None = None, byte_range: str | None = None
    ) -> tuple[int, bytes, Mapping[str, str]]:
        """(status, content, headers). `byte_range` is "100-" or "-100" (the last 100); the dispatcher may
        send all nevertheless (200 instead of 206), or say that there is nothing more (416)."""
        headers = {} if byte_range is None else {"Range": f"bytes={byte_range}"}
        answer = self._request("GET", path, params=query, headers=headers, expected=(416,))
        return answer.status_code, answer.content, answer.headers

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        return self._json(self._request("POST", path, json=dict(body or {})))

    def patch(self, path: str, query: Mapping[str, Any] | None = None) -> Any:
        return self._json(self._request("PATCH", path, params=query))

    def delete(self, path: str) -> Any:
        return self._json(self._request("DELETE", path))

    def upload(self, file: Path, sent: Callable[[int], None] | None = None) -> str:
        """Bring an application to the dispatcher; returns its id. `sent` is told how many bytes have gone."""
        with file.open("rb") as opened:
            content = _Counted(opened, sent) if sent else opened
            files = {"jarfile": (file.name, content, "application/octet-stream")}
            answer = self._json(self._request("POST", "/jars/upload", files=files, rewind=opened))
        try:
            return str(answer["filename"]).rpartition("/")[2]
        except (KeyError, TypeError):
            raise DispatcherError(f"The dispatcher gave no name to {file.name}.") from None

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> RestClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _request(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        expected: Sequence[int] = (),
        rewind: IO[bytes] | None = None,
        **content: Any,
    ) -> httpx.Response:
        problems: list[str] = []
        refused: httpx.Response | None = None
        for address in list(self.addresses):
            try:
                answer = self._ask(method, address, path, headers, rewind, content)
            except self._httpx.TransportError as problem:
                problems.append(f"{address}: {_reason(problem)}")
                continue
            if answer.status_code == 503 and address != self.addresses[-1]:
                refused = answer  # perhaps another one leads
                continue
            return self._accepted(answer, expected)
        if refused is not None:
            return self._accepted(refused, expected)
        raise DispatcherUnreachableError(
            f"No dispatcher answers ({'; '.join(problems)}). {HOW_TO_START}"
        )

    def _ask(
        self,
        method: str,
        address: str,
        path: str,
        headers: Mapping[str, str] | None,
        rewind: IO[bytes] | None,
        content: Mapping[str, Any],
    ) -> httpx.Response:
        url = address + path
        given = dict(content)
        for _ in range(_MAX_HOPS):
            if rewind is not None:
                rewind.seek(0)
            answer: httpx.Response = self._client.request(
                method, url, headers={**self._headers, **(headers or {})}, **given
            )
            # By hand: the token must go along, which a client does not do by itself.
            if answer.status_code not in (307, 308) or "location" not in answer.headers:
                return answer
            url = urljoin(url, answer.headers["location"])
            given.pop("params", None)  # the location has them
        raise DispatcherError(f"{address} sends from one dispatcher to the next without end.")

    def _accepted(self, answer: httpx.Response, expected: Sequence[int]) -> httpx.Response:
        status = answer.status_code
        if status < 300 or status in expected:
            return answer
        if status == 401:
            raise DispatcherError(
                "The dispatcher wants a token, or another one: --token-file FILE, or MILLPOND_TOKEN_FILE. A "
                "cluster has it in `token` in its folder, a dispatcher started by itself in its storage.",
                status,
            )
        raise DispatcherError(_error_text(answer), status)

    def _json(self, answer: httpx.Response) -> Any:
        try:
            return answer.json()
        except ValueError:
            raise DispatcherError(
                f"{answer.url} does not answer as a dispatcher does. {HOW_TO_START}"
            ) from None


class _Counted:
    """A file that tells how far it was read."""

    def __init__(self, file: IO[bytes], sent: Callable[[int], None]) -> None:
        self._file = file
        self._sent = sent

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._sent(self._file.tell())
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def fileno(self) -> int:
        return self._file.fileno()


_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def _import_httpx() -> Any:
    try:
        import httpx
    except ImportError:
        raise SetupError(
            "To speak to a dispatcher httpx is needed: pip install 'millpond[cluster]'."
        ) from None
    return httpx


def _checked(address: str) -> str:
    text = address.strip().rstrip("/")
    if "://" not in text:
        text = f"http://{text}"
    try:
        parts = urlsplit(text)
        right = parts.scheme in ("http", "https") and bool(parts.hostname)
        _ = parts.port  # raises if it is none
    except ValueError:
        right = False
    if not right:
        raise DispatcherUnreachableError(
            f"'{address}' is not the address of a dispatcher; it looks like http://HOST:PORT."
        )
    return text


def _tls(addresses: Sequence[str], ca_file: str | None) -> ssl.SSLContext:
    if not any(address.startswith("https:") for address in addresses):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # trusts nobody, and is made at once
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as problem:
        raise DispatcherUnreachableError(f"--ca-file {ca_file}: {problem}.") from None


def _reason(problem: Exception) -> str:
    text = str(problem) or type(problem).__name__
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return "its certificate is not trusted; --ca-file names one that is"
    return "connection refused" if "refused" in text else text


def _error_text(answer: httpx.Response) -> str:
    """The dispatcher's own words; they may have a stack trace behind the first line."""
    try:
        texts = [str(text).strip() for text in answer.json()["errors"]]
        lines = [line for text in texts for line in text.splitlines()[:1]]
        if lines:
            return " ".join(lines)
    except (ValueError, KeyError, TypeError):
        pass
    return (
        f"The dispatcher answers {answer.status_code} to {answer.request.method} {answer.url.path}."
    )
