"""Starts the processes of a cluster one by one and waits until each of them answers."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from millpond.cli.client.connection import Target
from millpond.cli.cluster.processes import identify
from millpond.cli.cluster.record import (
    ClusterProcess,
    ClusterRecord,
    make_private,
    remove_cluster,
    write_cluster,
    write_private,
)
from millpond.cli.cluster.stop import end_cluster
from millpond.cli.progress import Progress
from millpond.errors import ClusterError, DispatcherError, DispatcherUnreachableError

if TYPE_CHECKING:
    from millpond.executors.spark.master_page import MasterPage

_POLL_S = 0.1
_GRACE_S = 10.0
_LOG_LINES = 20
_PORT_FILE = "master-port"
_READY = re.compile(r"^millpond dispatcher: (https?://\S+)\s*$", re.MULTILINE)
T = TypeVar("T")


class ClusterStarter:
    """Starts processes as a context manager: if the block raises, by Ctrl-C too, all of them are ended.

    Each process is recorded in `cluster.json` before it is waited for, so that `stop-cluster` finds it even
    if this process dies."""

    def __init__(self, folder: Path, record: ClusterRecord, host: str, timeout_s: float) -> None:
        self.record = record
        self._folder = folder
        self._host = host
        self._timeout_s = timeout_s
        self._progress = Progress()
        self._environment = {**os.environ, **_absolute_path(), "PYTHONUNBUFFERED": "1"}
        self._spark_environment: dict[str, str] = {}
        self.master_page: MasterPage | None = None
        self._started: dict[int, subprocess.Popen[bytes]] = {}
        record.created = time.time_ns() // 1_000_000
        make_private(folder / "logs")
        Path(record.storage).mkdir(parents=True, exist_ok=True, mode=0o700)

    def start_master(self, port: int, page_port: int) -> str:
        """Start a Spark master, wait until it answers, and return its URL."""
        from millpond.executors.spark import daemons
        from millpond.executors.spark.master_page import MasterPage

        make_private(self._folder / "spark")
        settings = make_private(self._folder / "spark" / "conf")
        scratch = make_private(self._folder / "spark" / "scratch")
        daemons.write_settings(settings, self._host)
        daemon = daemons.daemon_environment(self._host, settings, scratch)
        self._spark_environment = {**daemon, **_absolute_path()}
        self._environment["SPARK_CONF_DIR"] = str(settings)  # jobs need the secret as well
        address = f"http://{_in_url(self._host)}:{page_port}"
        self.master_page = MasterPage(address, settings / daemons.PAGE_KEY_FILE)
        command = daemons.master_command(self._host, port, page_port)
        master = self._spawn("master", 1, command, self._spark_environment)
        master.address = self._wait(master, self.master_page.state).url
        self.record.master = master.address
        write_private(settings / _PORT_FILE, f"{port}\n")
        return master.address

    def master_port(self) -> int | None:
        """Return the port of the Spark master of an earlier start; None if there was none. Jobs that are to
        resume look for the master there."""
        try:
            return int((self._folder / "spark" / "conf" / _PORT_FILE).read_text())
        except (OSError, ValueError):
            return None

    def start_worker(self, number: int, cores: int, memory: str) -> None:
        """Start a Spark worker; `wait_for_all` waits for it. Start the master first."""
        from millpond.executors.spark import daemons

        folder = make_private(self._folder / "spark" / f"worker-{number}")
        assert self.record.master is not None
        command = daemons.worker_command(self.record.master, self._host, cores, memory, folder)
        self._spawn("worker", number, command, self._spark_environment)

    def start_dispatcher(self, number: int, command: Sequence[str]) -> None:
        """Start a dispatcher; `wait_for_all` waits for it."""
        self._spawn("dispatcher", number, command, self._environment)

    def wait_for_all(self) -> None:
        """Wait until all dispatchers answer requests and all workers have registered with the master. Raise
        ClusterError if a process ends, or takes longer than the time-out."""
        for dispatcher in self.record.of("dispatcher"):
            self._wait_for_dispatcher(dispatcher)
        workers = self.record.of("worker")
        for number, worker in enumerate(workers, 1):
            self._wait(worker, partial(self._has_workers, number))
        write_cluster(self._folder, self.record)

    def _has_workers(self, expected: int) -> bool:
        assert self.master_page is not None
        state = self.master_page.state()
        return state is not None and state.workers >= expected

    def _wait_for_dispatcher(self, process: ClusterProcess) -> None:
        """Wait until a dispatcher answers. A standby does so with 503 or a redirect to the leader."""
        process.address = self._wait(process, lambda: _announced(Path(process.log)))
        target = Target([process.address], self.record.token_file, self.record.ca_file, "started")
        with target.connect() as client:

            def answers() -> bool:
                try:
                    client.get("/overview")
                except DispatcherUnreachableError:
                    return False
                except DispatcherError as problem:
                    return problem.status == 503
                return True

            self._wait(process, answers)

    def _spawn(
        self, role: str, number: int, command: Sequence[str], environment: Mapping[str, str]
    ) -> ClusterProcess:
        name = f"{role}-{number}" if role != "master" else role
        log = self._folder / "logs" / f"{name}.log"
        if log.exists():
            os.replace(log, log.with_suffix(".log.1"))
        opened = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            started = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=opened,
                stderr=opened,
                env=dict(environment),
                cwd=self._folder,
                start_new_session=True,  # Ctrl-C in the terminal must not reach it
            )
        finally:
            os.close(opened)
        self._started[started.pid] = started
        identity = identify(started.pid)
        process = ClusterProcess(
            role,
            number,
            started.pid,
            identity.started if identity else "",
            identity.boot if identity else "",
            str(log),
        )
        self.record.processes.append(process)
        write_cluster(self._folder, self.record)
        return process

    def _wait(self, process: ClusterProcess, answer: Callable[[], T | None]) -> T:
        began_s = time.monotonic()
        while not (result := answer()):
            waited_s = time.monotonic() - began_s
            code = self._started[process.pid].poll()
            if code is not None:
                raise ClusterError(
                    f"The {process.title} ended with exit code {code} while starting.{_tail(process)}"
                )
            if waited_s > self._timeout_s:
                raise ClusterError(
                    f"The {process.title} did not answer within {waited_s:.0f} s.{_tail(process)}"
                )
            self._progress.show(f"starting {process.title} ... {waited_s:.0f} s")
            time.sleep(_POLL_S)
        return result

    def __enter__(self) -> ClusterStarter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            for _ in end_cluster(self.record, _GRACE_S, self._progress):
                pass
            for started in self._started.values():
                started.wait()
            remove_cluster(self._folder)
        for started in self._started.values():
            # They outlive this process on purpose; Python would otherwise warn that nobody waits for them.
            started.returncode = 0
        self._progress.clear()


def _absolute_path() -> dict[str, str]:
    """Return PYTHONPATH with absolute paths, for processes with another working folder; empty if not set."""
    paths = os.environ.get("PYTHONPATH")
    if not paths:
        return {}
    return {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, paths.split(os.pathsep)))}


def _announced(log: Path) -> str | None:
    """Return the address that a dispatcher has printed to its log; None if it has not yet."""
    match = _READY.search(log.read_text(errors="replace"))
    return match.group(1) if match else None


def _tail(process: ClusterProcess) -> str:
    lines = Path(process.log).read_text(errors="replace").splitlines()[-_LOG_LINES:]
    shown = "".join(f"\n  {line}" for line in lines)
    return f" Its log, {process.log}, ends with:{shown}" if lines else f" Its log is {process.log}."


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
