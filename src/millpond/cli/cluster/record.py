"""`cluster.json`: describes what `start-cluster` has started. `stop-cluster` reads it, and so does every
command that looks for a dispatcher.

{"format": 1, "machine": "name", "created": ms, "storage": path, "master": URL or null,
 "token_file": path or null, "ca_file": path or null,
 "processes": [{"role": "dispatcher", "number": 1, "pid": 1, "started": "...", "boot": "...",
                "address": "http://127.0.0.1:8081" or "", "log": path}]}

It is in the cluster's folder, which only the user who started the cluster can enter.
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

from millpond.cli.cluster.processes import ProcessIdentity, is_alive
from millpond.errors import ClusterError

FORMAT = 1
HOME_VARIABLE = "MILLPOND_HOME"
CLUSTER_FOLDER_HELP = f"the cluster's folder (default: ${HOME_VARIABLE} or ~/.millpond)"
_NAME = "cluster.json"


@dataclass
class ClusterProcess:
    """One process of a cluster. `number` counts the processes of a role from 1 on; `address` is empty until
    the process answers there, and for processes that have none."""

    role: str  # master, worker, dispatcher or job
    number: int
    pid: int
    started: str
    boot: str
    log: str
    address: str = ""

    @property
    def title(self) -> str:
        """What to call the process in messages, such as `worker 2`."""
        return {"master": "Spark master"}.get(self.role, f"{self.role} {self.number}")

    @property
    def identity(self) -> ProcessIdentity:
        """The identity by which the process can be found and ended."""
        return ProcessIdentity(self.pid, self.started, self.boot)

    def is_alive(self) -> bool:
        """Return True if the process still runs. Ask only on the cluster's machine."""
        return is_alive(self.identity)


@dataclass
class ClusterRecord:
    """The contents of `cluster.json`. `created` is in ms since 1970; `master` is the URL of the Spark master
    if the cluster has its own."""

    storage: str
    created: int
    master: str | None = None
    token_file: str | None = None
    ca_file: str | None = None
    machine: str = field(default_factory=platform.node)
    processes: list[ClusterProcess] = field(default_factory=list)

    def of(self, role: str) -> list[ClusterProcess]:
        """Return the processes with this role."""
        return [process for process in self.processes if process.role == role]

    def is_here(self) -> bool:
        """Return True if the cluster runs on this machine. Machines may share the folder, but not the
        process ids in it."""
        return self.machine == platform.node()

    def living(self) -> list[ClusterProcess]:
        """Return the processes that still run; none if the cluster is on another machine."""
        return (
            [process for process in self.processes if process.is_alive()] if self.is_here() else []
        )

    def dispatcher_addresses(self) -> list[str]:
        """Return the addresses of dispatchers that should answer: those that run, or are on another
        machine."""
        dispatchers = [process for process in self.of("dispatcher") if process.address]
        return [each.address for each in dispatchers if not self.is_here() or each.is_alive()]

    def to_json(self) -> dict[str, object]:
        """Return the contents of `cluster.json`."""
        return {"format": FORMAT, **asdict(self)}


def cluster_folder(given: str | None) -> Path:
    """Return the folder of the cluster as an absolute path: `given` (--dir), or else $MILLPOND_HOME, or else
    ~/.millpond."""
    return Path(given or os.environ.get(HOME_VARIABLE) or "~/.millpond").expanduser().absolute()


def read_cluster(folder: Path) -> ClusterRecord | None:
    """Return the record of the cluster in a folder; None if none was started there, or it has been stopped.
    Raise ClusterError if the record cannot be read."""
    path = folder / _NAME
    try:
        content = json.loads(path.read_text())
        version = content.pop("format")
        if version != FORMAT:
            raise ClusterError(
                f"{path} has format {version}; this Millpond reads format {FORMAT}. Use the version of "
                "Millpond that wrote it."
            )
        processes = [ClusterProcess(**entry) for entry in content.pop("processes")]
        return ClusterRecord(**content, processes=processes)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise ClusterError(f"{path} cannot be read: {problem!r}.") from None


def write_cluster(folder: Path, record: ClusterRecord) -> None:
    """Write the record of a cluster, in place of an earlier one."""
    write_private(folder / _NAME, json.dumps(record.to_json(), indent=1) + "\n")


def remove_cluster(folder: Path) -> None:
    """Remove the record of a cluster that has been stopped. It need not exist."""
    (folder / _NAME).unlink(missing_ok=True)


def make_private(folder: Path) -> Path:
    """Create a folder that only this user can enter, or make an existing one private; return it. Raise
    ClusterError if it belongs to another user."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if folder.stat().st_uid != os.getuid():
        raise ClusterError(f"{folder} belongs to another user. Choose another folder with --dir.")
    folder.chmod(0o700)
    return folder


def write_private(path: Path, text: str) -> None:
    """Write a file that only this user can read, in one step: readers find the old text or the new one."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, path)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock that allows one start or stop in a folder at a time. The lock ends with the process.
    Raise ClusterError if another process holds it."""
    lock = os.open(folder / "cluster.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise ClusterError(
            f"Another start-cluster or stop-cluster is at work in {folder}. Wait until it has ended."
        ) from None
    try:
        yield
    finally:
        os.close(lock)
