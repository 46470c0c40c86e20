"""A client of the dispatcher's REST API, which has Flink's paths and field names."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType, TracebackType
from typing import IO, TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from millpond.errors import DispatcherError, DispatcherUnreachableError, SetupError

if TYPE_CHECKING:
    import httpx

    from millpond.dispatcher.messages import Json

_TIMEOUT_S = 30.0
_MAX_HOPS = 3
HOW_TO_START = (
    "Start one with `millpond start-cluster`, or name a running one with --address http://HOST:PORT or "
    "MILLPOND_ADDRESS."
)


class RestClient:
    """A connection to one dispatcher out of several: the first that answers. Redirects from a standby to the
    leader are followed.

    All requests raise DispatcherUnreachableError if no dispatcher answers, and DispatcherError with the
    dispatcher's message if it refuses. Use it as a context manager, or call `close`."""

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
        is_local = all(urlsplit(address).hostname in _LOOPBACK for address in self.addresses)
        self._client = self._httpx.Client(
            verify=_tls(self.addresses, ca_file),
            timeout=timeout_s,
            trust_env=not is_local,  # a proxy cannot reach this machine's loopback address
        )

    def get(self, path: str, query: Mapping[str, object] | None = None) -> Json:
        """Send a GET request and return the JSON object of the answer."""
        return self._json(self._request("GET", path, params=query))

    def get_bytes(
        self, path: str, query: Mapping[str, object] | None = None, byte_range: str | None = None
    ) -> tuple[int, bytes, Mapping[str, str]]:
        """Send a GET request and return (status, content, headers).

        `byte_range` is "100-" (from byte 100 on) or "-100" (the last 100 bytes). The status is 206 if the
        content is that range, 200 if it is everything, and 416 if the range is beyond the end."""
        headers = {} if byte_range is None else {"Range": f"bytes={byte_range}"}
        answer = self._request("GET", path, params=query, headers=headers, expected=(416,))
        return answer.status_code, answer.content, answer.headers

    def post(self, path: str, body: Mapping[str, object] | None = None) -> Json:
        """Send a POST request with a JSON body and return the JSON object of the answer."""
        return self._json(self._request("POST", path, json=dict(body or {})))

    def patch(self, path: str, query: Mapping[str, object] | None = None) -> Json:
        """Send a PATCH request and return the JSON object of the answer."""
        return self._json(self._request("PATCH", path, params=query))

    def delete(self, path: str) -> Json:
        """Send a DELETE request and return the JSON object of the answer."""
        return self._json(self._request("DELETE", path))

    def upload(self, file: Path, sent: Callable[[int], None] | None = None) -> str:
        """Upload an application and return its id. `sent` is called with the number of bytes sent so far."""
        with file.open("rb") as opened:
            content = _Counted(opened, sent) if sent else opened
            files = {"jarfile": (file.name, content, "application/octet-stream")}
            answer = self._json(self._request("POST", "/jars/upload", files=files, rewind=opened))
        try:
            return str(answer["filename"]).rpartition("/")[2]
        except (KeyError, TypeError):
            raise DispatcherError(
                f"The dispatcher's answer has no id of the uploaded {file.name}: {answer}."
            ) from None

    def close(self) -> None:
        """Close the connections. The client cannot be used afterwards."""
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
        **content: object,
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
                refused = answer  # another one may lead
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
        content: Mapping[str, object],
    ) -> httpx.Response:
        url = address + path
        arguments = dict(content)
        for _ in range(_MAX_HOPS):
            if rewind is not None:
                rewind.seek(0)
            answer: httpx.Response = self._client.request(
                method, url, headers={**self._headers, **(headers or {})}, **arguments
            )
            # Redirects are followed here, because httpx would not send the token to another address.
            if answer.status_code not in (307, 308) or "location" not in answer.headers:
                return answer
            url = urljoin(url, answer.headers["location"])
            arguments.pop("params", None)  # they are part of the location
        raise DispatcherError(
            f"The dispatcher at {address} redirects to another one, which redirects again, and so on. "
            "Try again: another dispatcher may be about to lead."
        )

    def _accepted(self, answer: httpx.Response, expected: Sequence[int]) -> httpx.Response:
        status = answer.status_code
        if status < 300 or status in expected:
            return answer
        if status == 401:
            raise DispatcherError(
                "The dispatcher requires a token, or does not accept the one that was sent. Name the file "
                "with the token by --token-file or MILLPOND_TOKEN_FILE: it is `token` in the cluster's "
                "folder, or in the storage folder of a dispatcher that was started on its own.",
                status,
            )
        raise DispatcherError(_error_text(answer), status)

    def _json(self, answer: httpx.Response) -> Json:
        try:
            return answer.json()  # type: ignore[no-any-return]
        except ValueError:
            raise DispatcherError(
                f"{answer.url} does not answer like a dispatcher. {HOW_TO_START}"
            ) from None


class _Counted:
    """A file that reports how far it has been read."""

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


def _import_httpx() -> ModuleType:
    try:
        import httpx
    except ImportError:
        raise SetupError(
            "Talking to a dispatcher needs httpx: pip install 'millpond[cluster]'."
        ) from None
    return httpx


def _checked(address: str) -> str:
    text = address.strip().rstrip("/")
    if "://" not in text:
        text = f"http://{text}"
    try:
        parts = urlsplit(text)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname)
        _ = parts.port  # raises ValueError if it is not a port
    except ValueError:
        is_valid = False
    if not is_valid:
        raise DispatcherUnreachableError(
            f"'{address}' is not the address of a dispatcher; write it as http://HOST:PORT."
        )
    return text


def _tls(addresses: Sequence[str], ca_file: str | None) -> ssl.SSLContext:
    if not any(address.startswith("https:") for address in addresses):
        # TLS is not used, and loading certificates takes time: a context that trusts nobody will do.
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as problem:
        raise DispatcherUnreachableError(
            f"The certificates in --ca-file {ca_file} cannot be read: {problem}."
        ) from None


def _reason(problem: Exception) -> str:
    text = str(problem) or type(problem).__name__
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return "its certificate is not trusted; name the certificate to trust with --ca-file"
    return "connection refused" if "refused" in text else text


def _error_text(answer: httpx.Response) -> str:
    """Return the dispatcher's error messages, without the stack traces that may follow their first lines."""
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
