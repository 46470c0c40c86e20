"""`cluster.json`: what `start-cluster` has started, for `stop-cluster` and for all who look for a dispatcher.

{"format": 1, "machine": "name", "created": ms, "storage": path, "master": URL or null,
 "token_file": path or null, "ca_file": path or null,
 "processes": [{"role": "dispatcher", "number": 1, "pid": 1, "started": "...", "boot": "...",
                "address": "http://127.0.0.1:8081" or "", "log": path}]}

It is in the cluster's folder, which only its user may enter.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from millpond.cli.cluster.processes import ProcessIdentity, is_alive
from millpond.errors import ClusterError

FORMAT = 1
HOME_VARIABLE = "MILLPOND_HOME"
_NAME = "cluster.json"


@dataclass
class ClusterProcess:
    role: str  # master, worker, dispatcher
    number: int
    pid: int
    started: str
    boot: str
    log: str
    address: str = ""

    @property
    def title(self) -> str:
        return {"master": "Spark master"}.get(self.role, f"{self.role} {self.number}")

    @property
    def identity(self) -> ProcessIdentity:
        return ProcessIdentity(self.pid, self.started, self.boot)

    def is_alive(self) -> bool:
        return is_alive(self.identity)


@dataclass
class ClusterRecord:
    storage: str
    created: int
    master: str | None = None
    token_file: str | None = None
    ca_file: str | None = None
    machine: str = field(default_factory=platform.node)
    processes: list[ClusterProcess] = field(default_factory=list)

    def of(self, role: str) -> list[ClusterProcess]:
        return [process for process in self.processes if process.role == role]

    def is_here(self) -> bool:
        """Homes can be shared by machines; process ids are not."""
        return self.machine == platform.node()

    def living(self) -> list[ClusterProcess]:
        return [own for own in self.processes if own.is_alive()] if self.is_here() else []

    def dispatcher_addresses(self) -> list[str]:
        """Of dispatchers that can be expected to answer."""
        dispatchers = [own for own in self.of("dispatcher") if own.address]
        return [own.address for own in dispatchers if not self.is_here() or own.is_alive()]

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, **asdict(self)}


def cluster_folder(given: str | None) -> Path:
    """--dir, or $MILLPOND_HOME, or ~/.millpond."""
    return Path(given or os.environ.get(HOME_VARIABLE) or "~/.millpond").expanduser().absolute()


def read_cluster(folder: Path) -> ClusterRecord | None:
    """None if no cluster was started there, or it was stopped."""
    path = folder / _NAME
    try:
        content = json.loads(path.read_text())
        found = content.pop("format")
        if found != FORMAT:
            raise ClusterError(
                f"{path} has format {found}; this Millpond knows {FORMAT}. Use the Millpond that wrote it."
            )
        processes = [ClusterProcess(**entry) for entry in content.pop("processes")]
        return ClusterRecord(**content, processes=processes)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise ClusterError(f"{path} cannot be read: {problem!r}.") from None


def write_cluster(folder: Path, record: ClusterRecord) -> None:
    write_private(folder / _NAME, json.dumps(record.to_json(), indent=1) + "\n")


def remove_cluster(folder: Path) -> None:
    (folder / _NAME).unlink(missing_ok=True)


def make_private(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if folder.stat().st_uid != os.getuid():
        raise ClusterError(f"{folder} belongs to another user. Choose another one with --dir.")
    folder.chmod(0o700)
    return folder


def write_private(path: Path, text: str) -> None:
    """Aside, then renamed; nobody else can read it at any time."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, path)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One start or stop in a folder at a time. The lock goes with the process."""
    lock = os.open(folder / "cluster.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise ClusterError(
            f"Another start-cluster or stop-cluster works in {folder} just now. Wait for its end."
        ) from None
    try:
        yield
    finally:
        os.close(lock)
