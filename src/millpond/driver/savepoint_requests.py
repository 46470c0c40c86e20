"""Requests for savepoints: by the program that runs the job, or by a file in the job folder.

A request by another process is a file `requests/ID.json` in the job folder: {"directory", "stop", "drain"}.
The answer is a file `.NAME.ID.done` beside the job folder, because that may be removed when the job is
stopped: {"path"} or {"error"}.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import uuid
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from millpond.common.paths import local_folder
from millpond.errors import MillpondError, SavepointError
from millpond.savepoint.writer import building_folder, savepoint_name

REQUESTS = "requests"
_DONE = ".done"


@dataclass(frozen=True)
class SavepointRequest:
    """One savepoint to write. `stop`: the job ends with it. `drain`: event time then goes to its end
    first."""

    id: str
    directory: str
    stop: bool = False
    drain: bool = False
    name: str = ""

    @property
    def target(self) -> Path:
        """Where the savepoint will be."""
        return Path(self.directory) / self.name

    @property
    def staging(self) -> Path:
        """Where the job's workers write their parts: beside the target, on the same file system."""
        return Path(self.directory) / f".{self.name}.staging"

    def clean_up(self) -> None:
        """Remove what an earlier try has left."""
        for folder in (self.staging, building_folder(self.target)):
            shutil.rmtree(folder, ignore_errors=True)

    def make_staging(self) -> None:
        """Create an empty staging folder, so that nothing of an earlier try gets into the savepoint."""
        self.clean_up()
        self.staging.mkdir(parents=True, mode=0o700)


class SavepointRequests:
    """The requests of one attempt; batches take them one at a time. The thread that plans batches uses it,
    and so do those that ask."""

    def __init__(self, folder: Path | None, job_id: str, default_directory: str | None) -> None:
        self._folder = None if folder is None else folder / REQUESTS
        self._job_id = job_id
        self._default = default_directory
        self._lock = threading.Lock()
        self._waiting: list[SavepointRequest] = []
        self._futures: dict[str, Future[str]] = {}
        # Ids of requests in files, and of those that batches have taken.
        self._seen: set[str] = set()
        # Ids of requests by a file; the file is removed when nobody waits for the answer any more.
        self._by_file: set[str] = set()
        self._is_closed = False

    def ask(self, directory: str | None, stop: bool = False, drain: bool = False) -> Future[str]:
        """Add a request. The future gets the path of the savepoint, or the error. Raises SavepointError if
        neither `directory` nor a default folder is set."""
        request = self._make(uuid.uuid4().hex, directory, stop, drain)
        future: Future[str] = Future()
        with self._lock:
            if self._is_closed:
                future.set_exception(SavepointError("The job has ended; there is nothing to save."))
            else:
                self._futures[request.id] = future
                self._waiting.append(request)
        return future

    def _make(
        self, request_id: str, directory: str | None, stop: bool, drain: bool
    ) -> SavepointRequest:
        where = directory or self._default
        if where is None:
            raise SavepointError(
                "No folder for the savepoint: name one, or set execution.checkpointing.savepoint-dir."
            )
        path = local_folder(where, "The folder for savepoints")
        path.mkdir(parents=True, exist_ok=True)
        return SavepointRequest(
            request_id, str(path), stop, drain, savepoint_name(self._job_id, request_id)
        )

    def go_on(self, request: SavepointRequest) -> None:
        """Adopt a request that a batch took before the driver died: the process that asked is still waiting,
        but the request must not be taken twice."""
        with self._lock:
            self._seen.add(request.id)
            if self._request_file(request.id).exists():
                self._by_file.add(request.id)
            self._waiting = [waiting for waiting in self._waiting if waiting.id != request.id]

    def take(self) -> SavepointRequest | None:
        """Return the next request and remove it from the queue; None if there is none."""
        self._look_for_files()
        with self._lock:
            while self._waiting:
                request = self._waiting.pop(0)
                if not self.is_withdrawn(request):
                    return request
        return None

    def answer_late(self, request: SavepointRequest) -> bool:
        """Answer a request whose savepoint was there before the driver died. Return whether somebody was
        still waiting for that."""
        is_waiting = self._request_file(request.id).exists()
        self._seen.add(request.id)
        self._answer(request.id, {"path": str(request.target)})
        return is_waiting

    def is_withdrawn(self, request: SavepointRequest) -> bool:
        """Return whether the process that asked by a file no longer waits for the savepoint."""
        return request.id in self._by_file and not self._request_file(request.id).exists()

    def _request_file(self, request_id: str) -> Path:
        return (self._folder or Path()) / f"{request_id}.json"

    def is_waiting(self) -> bool:
        """Return whether there is a request for the next batch to take. Looks for new files first."""
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
                request = self._make(
                    path.stem,
                    asked.get("directory"),
                    bool(asked.get("stop")),
                    bool(asked.get("drain")),
                )
            except (ValueError, AttributeError, OSError, MillpondError) as problem:
                self._answer(path.stem, {"error": str(problem)})
                continue
            if request.target.exists():  # it was written before the driver died
                request.clean_up()
                self.answer_late(request)
                continue
            with self._lock:
                self._waiting.append(request)

    def done(self, request: SavepointRequest, problem: Exception | None) -> None:
        """Answer a request: with the path of the savepoint, or with the problem."""
        future = self._futures.pop(request.id, None)
        if future is not None:
            if problem is None:
                future.set_result(str(request.target))
            else:
                future.set_exception(problem)
        elif problem is None:
            self._answer(request.id, {"path": str(request.target)})
        else:
            self._answer(request.id, {"error": str(problem)})

    def give_up(self, reason: str) -> None:
        """Refuse all requests that wait, and all later ones, because the job has ended."""
        with self._lock:
            self._is_closed = True
            waiting, self._waiting = self._waiting, []
        for request in waiting:
            self.done(request, SavepointError(reason))

    def _answer(self, request_id: str, answer: dict[str, str]) -> None:
        if self._folder is None or not self._request_file(request_id).exists():
            return  # nobody is waiting for it
        path = _answer_path(self._folder.parent, request_id)
        aside = path.with_suffix(f".{os.getpid()}")
        aside.write_text(json.dumps(answer))
        os.replace(aside, path)
        self._request_file(request_id).unlink(missing_ok=True)


def request_by_file(
    job_folder: Path,
    directory: str | None,
    stop: bool,
    drain: bool,
    request_id: str | None = None,
) -> str:
    """Ask a job in another process for a savepoint. Return the id of the request, for `read_answer`."""
    folder = job_folder / REQUESTS
    folder.mkdir(mode=0o700, exist_ok=True)
    request_id = request_id or uuid.uuid4().hex
    aside = folder / f".{request_id}"
    aside.write_text(json.dumps({"directory": directory, "stop": stop, "drain": drain}))
    os.replace(aside, folder / f"{request_id}.json")
    return request_id


def is_requested(job_folder: Path, request_id: str) -> bool:
    """Return whether there is such a request that has not been answered."""
    return (job_folder / REQUESTS / f"{request_id}.json").exists()


def read_answer(job_folder: Path, request_id: str) -> dict[str, str] | None:
    """Return the answer to a request and remove it; None while there is none."""
    path = _answer_path(job_folder, request_id)
    if not path.exists():
        return None
    answer: dict[str, str] = json.loads(path.read_text())
    path.unlink()
    return answer


def _answer_path(job_folder: Path, request_id: str) -> Path:
    return job_folder.parent / f".{job_folder.name}.{request_id}{_DONE}"


def withdraw(job_folder: Path, request_id: str) -> None:
    """Withdraw a request: nobody waits for its answer any more, whatever it will be."""
    (job_folder / REQUESTS / f"{request_id}.json").unlink(missing_ok=True)
    _answer_path(job_folder, request_id).unlink(missing_ok=True)
