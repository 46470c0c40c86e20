"""Savepoints that were asked for: by the program that runs the job, or by a file in the job's folder.

A request from elsewhere is `requests/ID.json` in the job's folder: {"directory", "stop", "drain"}. The answer
is `.NAME.ID.done` beside that folder, which goes when the job is stopped: {"path"} or {"error"}.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import uuid
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from millpond.common.paths import local_folder
from millpond.errors import MillpondError, SavepointError
from millpond.savepoint.writer import building_folder, savepoint_name

REQUESTS = "requests"
_DONE = ".done"


@dataclass(frozen=True)
class SavepointOrder:
    """One savepoint to write. `stop`: the job ends with it; `drain`: and event time with the job."""

    id: str
    directory: str
    stop: bool = False
    drain: bool = False
    name: str = ""

    @property
    def target(self) -> Path:
        return Path(self.directory) / self.name

    @property
    def staging(self) -> Path:
        """Beside the target: where the job's workers can write, and on the same file system."""
        return Path(self.directory) / f".{self.name}.staging"

    def clean_up(self) -> None:
        """What an earlier try has left."""
        for folder in (self.staging, building_folder(self.target)):
            shutil.rmtree(folder, ignore_errors=True)

    def make_staging(self) -> None:
        """An empty folder: nothing of an earlier try may get into it."""
        self.clean_up()
        self.staging.mkdir(parents=True, mode=0o700)

    def to_plan(self) -> dict[str, Any]:
        return asdict(self)


class SavepointOrders:
    """Taken one at a time. Used from the thread that plans batches and from those that ask."""

    def __init__(self, folder: Path | None, job_id: str, default_directory: str | None) -> None:
        self._folder = None if folder is None else folder / REQUESTS
        self._job_id = job_id
        self._default = default_directory
        self._lock = threading.Lock()
        self._waiting: list[SavepointOrder] = []
        self._futures: dict[str, Future[str]] = {}
        self._seen: set[str] = (
            set()
        )  # ids of requests in files, and of those that batches have taken
        self._by_file: set[str] = (
            set()
        )  # asked for by a file, which goes when nobody waits any more
        self._is_closed = False

    def ask(self, directory: str | None, stop: bool = False, drain: bool = False) -> Future[str]:
        """The future has the savepoint's path."""
        order = self._order(uuid.uuid4().hex, directory, stop, drain)
        future: Future[str] = Future()
        with self._lock:
            if self._is_closed:
                future.set_exception(SavepointError("The job has ended; there is nothing to save."))
            else:
                self._futures[order.id] = future
                self._waiting.append(order)
        return future

    def _order(
        self, order_id: str, directory: str | None, stop: bool, drain: bool
    ) -> SavepointOrder:
        where = directory or self._default
        if where is None:
            raise SavepointError(
                "Where to? Name a folder for the savepoint, or set execution.checkpointing.savepoint-dir."
            )
        path = local_folder(where, "The folder for savepoints")
        path.mkdir(parents=True, exist_ok=True)
        return SavepointOrder(
            order_id, str(path), stop, drain, savepoint_name(self._job_id, order_id)
        )

    def go_on(self, order: SavepointOrder) -> None:
        """A batch of an earlier life of the driver has taken this one: whoever asked for it still waits, but
        it must not be taken twice."""
        with self._lock:
            self._seen.add(order.id)
            if self._request(order.id).exists():
                self._by_file.add(order.id)
            self._waiting = [waiting for waiting in self._waiting if waiting.id != order.id]

    def take(self) -> SavepointOrder | None:
        """The next one, if any was asked for."""
        self._look_for_files()
        with self._lock:
            while self._waiting:
                order = self._waiting.pop(0)
                if not self.is_withdrawn(order):
                    return order
        return None

    def is_withdrawn(self, order: SavepointOrder) -> bool:
        """True if whoever asked for it waits no longer."""
        return order.id in self._by_file and not self._request(order.id).exists()

    def _request(self, order_id: str) -> Path:
        return (self._folder or Path()) / f"{order_id}.json"

    def is_waiting(self) -> bool:
        self._look_for_files()
        return bool(self._waiting)

    def _look_for_files(self) -> None:
        if self._folder is None or not self._folder.is_dir():
            return
        for path in sorted(self._folder.glob("*.json")):
            if path.stem in self._seen:
                continue
            self._seen.add(path.stem)
            self._by_file.add(path.stem)
            try:
                asked = json.loads(path.read_text())
                order = self._order(
                    path.stem,
                    asked.get("directory"),
                    bool(asked.get("stop")),
                    bool(asked.get("drain")),
                )
            except (ValueError, AttributeError, OSError, MillpondError) as problem:
                self._answer(path.stem, {"error": str(problem)})
                continue
            if order.target.exists():  # taken before the driver died
                order.clean_up()
                self._answer(order.id, {"path": str(order.target)})
                continue
            with self._lock:
                self._waiting.append(order)

    def done(self, order: SavepointOrder, problem: Exception | None) -> None:
        """Tell whoever asked."""
        future = self._futures.pop(order.id, None)
        if future is not None:
            if problem is None:
                future.set_result(str(order.target))
            else:
                future.set_exception(problem)
        elif problem is None:
            self._answer(order.id, {"path": str(order.target)})
        else:
            self._answer(order.id, {"error": str(problem)})

    def give_up(self, reason: str) -> None:
        """The job has ended."""
        with self._lock:
            self._is_closed = True
            waiting, self._waiting = self._waiting, []
        for order in waiting:
            self.done(order, SavepointError(reason))

    def _answer(self, order_id: str, answer: dict[str, str]) -> None:
        if self._folder is None or not self._request(order_id).exists():
            return  # nobody waits for it
        path = _answer_path(self._folder.parent, order_id)
        aside = path.with_suffix(f".{os.getpid()}")
        aside.write_text(json.dumps(answer))
        os.replace(aside, path)
        self._request(order_id).unlink(missing_ok=True)


def request_by_file(
    job_folder: Path,
    directory: str | None,
    stop: bool,
    drain: bool,
    order_id: str | None = None,
) -> str:
    """Ask a job that another process runs; the id under which the answer comes."""
    folder = job_folder / REQUESTS
    folder.mkdir(mode=0o700, exist_ok=True)
    order_id = order_id or uuid.uuid4().hex
    aside = folder / f".{order_id}"
    aside.write_text(json.dumps({"directory": directory, "stop": stop, "drain": drain}))
    os.replace(aside, folder / f"{order_id}.json")
    return order_id


def is_requested(job_folder: Path, order_id: str) -> bool:
    """True if it was asked for and is not answered."""
    return (job_folder / REQUESTS / f"{order_id}.json").exists()


def read_answer(job_folder: Path, order_id: str) -> dict[str, str] | None:
    """None while there is none."""
    path = _answer_path(job_folder, order_id)
    if not path.exists():
        return None
    answer: dict[str, str] = json.loads(path.read_text())
    path.unlink()
    return answer


def _answer_path(job_folder: Path, order_id: str) -> Path:
    return job_folder.parent / f".{job_folder.name}.{order_id}{_DONE}"


def withdraw(job_folder: Path, order_id: str) -> None:
    """Whatever comes of it, nobody waits any more."""
    (job_folder / REQUESTS / f"{order_id}.json").unlink(missing_ok=True)
    _answer_path(job_folder, order_id).unlink(missing_ok=True)
