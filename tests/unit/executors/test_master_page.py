"""The page of a Spark master that answers only to those who have its key (O9)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from millpond.executors.spark import daemons
from millpond.executors.spark.master_page import MasterPage, MasterState, make_key, sign

WORKERS = [
    {"state": "ALIVE", "cores": 4},
    {"state": "DEAD", "cores": 8},
    {"state": "ALIVE", "cores": 2},
]


@contextmanager
def page(content: Any) -> Iterator[tuple[str, list[str | None]]]:
    """A page, and the `Authorization` of requests to it."""
    seen: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers.get("Authorization"))
            body = json.dumps(content).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", seen
        server.shutdown()


def part(text: str) -> Any:
    return json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))


def test_living_workers_and_their_cores_count() -> None:
    with page({"status": "ALIVE", "url": "spark://h:1", "workers": WORKERS}) as (address, seen):
        assert MasterPage(address, None).state() == MasterState("spark://h:1", 2, 6)
    assert seen == [None]


@pytest.mark.parametrize("content", [{"status": "RECOVERING"}, {"status": "ALIVE"}, [], "no"])
def test_master_that_is_not_ready_has_no_state(content: Any) -> None:
    with page(content) as (address, _):
        assert MasterPage(address, None).state() is None
    assert MasterPage(address, None).state() is None, "nor has one that is gone"


def test_requests_are_signed_and_good_for_a_minute(tmp_path: Path) -> None:
    key_file = tmp_path / "key"
    make_key(key_file)
    with page({"status": "ALIVE", "url": "u", "workers": []}) as (address, seen):
        assert MasterPage(address, key_file, lambda: 1000.9).state() is not None
    (header,) = seen
    assert header is not None
    head, claims, signature = header.removeprefix("Bearer ").split(".")
    assert (part(head), part(claims)) == ({"alg": "HS256"}, {"exp": 1060})
    key = base64.urlsafe_b64decode(key_file.read_text() + "=")
    expected = hmac.digest(key, f"{head}.{claims}".encode(), hashlib.sha256)
    assert base64.urlsafe_b64decode(signature + "=") == expected


def test_key_is_private_and_stays(tmp_path: Path) -> None:
    key_file = tmp_path / "key"
    make_key(key_file)
    first = key_file.read_text()
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600 and len(sign(first, 1).split(".")) == 3
    make_key(key_file)
    assert key_file.read_text() == first


def test_what_keeps_strangers_out_wins_over_settings_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, own = tmp_path / "given", tmp_path / "own"
    given.mkdir()
    own.mkdir()
    (given / "spark-defaults.conf").write_text(
        "spark.authenticate false\nspark.master.rest.enabled true\nspark.ui.filters x\nspark.a b\n"
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(given))
    daemons.write_settings(own, "127.0.0.1")
    path = own / "spark-defaults.conf"
    settings = dict(line.split() for line in path.read_text().splitlines() if line)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert settings["spark.a"] == "b" and settings["spark.authenticate"] == "true"
    assert settings["spark.master.rest.enabled"] == "false"
    assert settings["spark.ui.filters"] == "org.apache.spark.ui.JWSFilter"
    assert settings["spark.driver.bindAddress"] == "127.0.0.1"
    daemons.write_settings(own, "10.0.0.5")
    assert "spark.driver.host" not in path.read_text(), "drivers may be on other machines"
