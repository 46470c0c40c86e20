"""The page of a standalone Spark master, which says how many workers it has.

Spark's pages show logs and settings to whoever reaches them. The pages of a cluster that `start-cluster` has
started answer only requests with a token that is signed with the cluster's page key (Spark's own `JWSFilter`;
JSON Web Signature, HMAC with SHA-256). The key is in a private file; a token is valid for a minute.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import secrets
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_FILTER = "org.apache.spark.ui.JWSFilter"
_ANSWER_S = 2.0
_VALID_S = 60


@dataclass(frozen=True)
class MasterState:
    """What a master's page says about the master and the workers that are alive."""

    url: str
    workers: int
    cores: int


class MasterPage:
    """A client of a master's page. `key_file` has the key with which requests are signed; it is None if the
    page is open to all."""

    def __init__(
        self, address: str, key_file: Path | None, clock_s: Callable[[], float] = time.time
    ) -> None:
        self.address = address
        self.key_file = key_file
        self._clock_s = clock_s

    def state(self) -> MasterState | None:
        """Return the state of the master; None if the master does not answer, or is not ready."""
        try:
            request = urllib.request.Request(f"{self.address}/json/", headers=self._headers())
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with opener.open(request, timeout=_ANSWER_S) as answer:
                content = json.load(answer)
            if content["status"] != "ALIVE":
                return None
            alive = [worker for worker in content["workers"] if worker["state"] == "ALIVE"]
            cores = sum(int(worker["cores"]) for worker in alive)
            return MasterState(str(content["url"]), len(alive), cores)
        except (OSError, urllib.error.URLError, ValueError, KeyError, TypeError):
            return None

    def _headers(self) -> dict[str, str]:
        if self.key_file is None:
            return {}
        expires_at_s = int(self._clock_s()) + _VALID_S
        return {"Authorization": f"Bearer {sign(self.key_file.read_text(), expires_at_s)}"}


def make_key(path: Path) -> None:
    """Write a new page key, unless there is one: daemons that are still running know that one."""
    if not path.exists():
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(_base64(secrets.token_bytes(32)))


def filter_settings(key: str) -> dict[str, str]:
    """Return Spark's settings for pages that require a signed token."""
    return {
        "spark.ui.filters": _FILTER,
        f"spark.{_FILTER}.param.secretKey": key,
        f"spark.{_FILTER}.param.requireExpiration": "true",
    }


def sign(key: str, expires_at_s: int) -> str:
    """Return a token that opens the pages until `expires_at_s`. `key` is as `make_key` writes it."""
    parts = ({"alg": "HS256"}, {"exp": expires_at_s})
    text = ".".join(_base64(json.dumps(part).encode()) for part in parts)
    raw = base64.urlsafe_b64decode(key + "=" * (-len(key) % 4))
    return f"{text}.{_base64(hmac.digest(raw, text.encode(), hashlib.sha256))}"


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
