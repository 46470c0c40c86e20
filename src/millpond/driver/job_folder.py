"""The job folder: everything durable about a job.

    job.blob            what the job is: name, operators, parallelism (written once)
    lock                held by the driver that runs the job
    run                 which run of the job is going on, if any (core/job_run.py)
    journal/            the plan of every batch, and what it left behind: what counts (core/journal.py,
                        epochs/epoch_log.py)
    log/LEVEL/PARTITION/  state: segments of change logs (state/partition_log.py); the journal says how much
                        of them counts
    unions/T-N          union lists of the subtasks of task T, as batch N left them
    committed, queryable.json, queryable/   for look-ups of queryable state (queryable/files.py)
    requests/           savepoints that other processes ask for (savepoint_requests.py)

`job.blob`, `run` and union lists are objects of the job's storage, the journal and the segments are logs in
it (`core/storage.py`); `core/codec.py` describes the blobs. A batch is planned once: if its plan is in the
journal, a restart runs exactly that plan again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from millpond.common.file_lock import is_held, try_lock
from millpond.common.paths import local_folder
from millpond.core import codec
from millpond.core.codec import BlobKind
from millpond.core.job_run import JobRun, read_run, write_run
from millpond.core.journal import JOURNAL, newest_epoch, read_journal
from millpond.core.storage import FileStorage, Storage
from millpond.errors import (
    CheckpointInUseError,
    CorruptDataError,
    IncompatibleCheckpointError,
    SavepointError,
    StorageError,
)
from millpond.plan.identity import JobIdentity

_log = logging.getLogger(__name__)
_IDENTITY = "job.blob"
_LOGS = "log"
_UNIONS = "unions"


def folder_name(job_name: str) -> str:
    """Return the name of the folder for a job of this name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", job_name).strip("-.") or "job"


class JobFolder:
    """The folder of one job, and the lock on it. The layout is at the top of this file.

    Used by the driver. A file that a reader must find and that is missing raises IncompatibleCheckpointError;
    one that is damaged raises CorruptDataError."""

    def __init__(self, path: Path, temporary: bool) -> None:
        self.path = path
        self.temporary = temporary
        self.storage: Storage = FileStorage(path)
        self.generation = 0  # of the current run
        self._lock: int | None = None

    @staticmethod
    def open(checkpoint_dir: str | None, job_name: str) -> JobFolder:
        """Create and lock the folder of a job below `checkpoint_dir`, or a temporary one if that is None.
        Raises CheckpointInUseError if another process holds the lock."""
        if checkpoint_dir is None:
            path = Path(tempfile.mkdtemp(prefix="millpond-"))
            folder = JobFolder(path, temporary=True)
        else:
            base = local_folder(checkpoint_dir, "execution.checkpointing.dir")
            folder = JobFolder(base / folder_name(job_name), temporary=False)
        folder.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder._take_lock()
        return folder

    def _take_lock(self) -> None:
        lock = try_lock(self.path / "lock")
        if lock is None:
            holder = (self.path / "lock").read_text(errors="replace").strip()
            raise CheckpointInUseError(
                f"The job folder {self.path} is in use by another running job ({holder}). Stop that "
                "job, or give this one another name or another execution.checkpointing.dir."
            )
        os.truncate(lock, 0)
        with contextlib.suppress(
            OSError
        ):  # the text is only for messages, and the disk may be full
            os.write(lock, f"process {os.getpid()} on {os.uname().nodename}".encode())
        self._lock = lock

    def check_identity(self, identity: JobIdentity) -> JobIdentity:
        """Write down what the job is, or compare it with what the folder holds; return what the folder holds.

        The id of the job and the savepoint from which it once started are taken from the folder."""
        blob = self.storage.find(_IDENTITY)
        if blob is None:
            if self.has_begun():
                raise self.incomplete(_IDENTITY, "which says what the job is")
            self.storage.write(_IDENTITY, identity.encode())
            return identity
        stored = JobIdentity.decode(blob, self.storage.location(_IDENTITY))
        if not self.has_begun() and self.storage.has_any(_LOGS):
            raise self.incomplete(JOURNAL, "which says what of the job counts")
        difference = stored.difference(identity)
        if difference is not None:
            name, before, now = difference
            raise IncompatibleCheckpointError(
                f"The job folder {self.path} was written by another program: its {name} was {before}, but "
                f"here it is {now}. Run the program that wrote it, or use another job name or folder to "
                "start afresh."
            )
        return self._with_savepoint(stored, identity.savepoint)

    def _with_savepoint(self, stored: JobIdentity, savepoint: str | None) -> JobIdentity:
        """Write down the savepoint from which the job starts. Raises SavepointError if the job has begun."""
        if savepoint is None or savepoint == stored.savepoint:
            return stored
        if self.has_begun():
            raise SavepointError(
                f"The job in the job folder {self.path} has begun already, so it cannot start from "
                f"the savepoint {savepoint}. Leave the savepoint out to go on with that job, or use "
                "another job name or folder."
            )
        stored = replace(stored, savepoint=savepoint)
        self.storage.write(_IDENTITY, stored.encode())
        return stored

    def has_begun(self) -> bool:
        """Return whether a batch of the job was planned."""
        return any(True for _ in read_journal(self.storage))

    def has_counted(self) -> bool:
        """Return whether a batch of the job counts, so that the first one never runs again."""
        return newest_epoch(self.storage) >= 0

    def incomplete(self, lacking: str, use: str) -> IncompatibleCheckpointError:
        """Return the error for a file that is missing although no crash can have removed it. `use` says what
        the file is for."""
        return IncompatibleCheckpointError(
            f"The job folder {self.path} lacks {lacking}, {use}. Somebody has removed it: restore the whole "
            "folder from a copy, or start the job in another folder, from a savepoint if there is one."
        )

    def start_run(self) -> int:
        """Begin the next run of the job. Return its generation, which is higher than that of any earlier
        run."""
        last = read_run(self.storage)
        generation = 1 if last is None else last.generation + 1
        write_run(self.storage, JobRun(generation, is_going_on=True))
        self.generation = generation
        return generation

    def end_run(self) -> None:
        """Tell the slots, wherever they are, that they are no longer needed. If that cannot be written, it is
        logged only, so that it does not hide how the job ended; slots also end with their executors."""
        with contextlib.suppress(CorruptDataError):  # start_run has raised it already
            run = read_run(self.storage)
            if run is not None:
                try:
                    write_run(self.storage, run._replace(is_going_on=False))
                except StorageError as problem:
                    _log.warning("Slots cannot be told that the job has ended: %s", problem)

    def write_unions(self, epoch: int, task: int, unions: dict[int, bytes]) -> str:
        """Write the union lists of a task's subtasks, by subtask, to an object. Return its location."""
        name = f"{_UNIONS}/{task}-{epoch}"
        self.storage.write(name, codec.encode(BlobKind.UNIONS, unions))
        return self.storage.location(name)

    def unions_location(self, location: str) -> str:
        """Return where an object with union lists is now, for the folder may have been moved."""
        return self.storage.location(_unions_name(location))

    def read_unions(self, location: str) -> dict[int, bytes]:
        """Return the union lists in an object, by subtask."""
        name = _unions_name(location)
        blob = self.storage.find(name)
        if blob is None:
            raise self.incomplete(name, "the union lists of a task")
        unions: dict[int, bytes] = codec.decode(BlobKind.UNIONS, blob, location)
        return unions

    def drop_unions(self, epoch: int) -> None:
        """Delete union lists that are not needed after batch `epoch`, because there are newer ones."""
        written = [_task_and_epoch(name) for name in self.storage.names(_UNIONS)]
        for task, own in written:
            if any(other == task and own < newer <= epoch for other, newer in written):
                self.storage.discard(f"{_UNIONS}/{task}-{own}")

    def close(self, delete: bool) -> None:
        """End the run and free the lock. `delete` removes the folder as well."""
        self.end_run()
        if delete:
            shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _unions_name(location: str) -> str:
    return f"{_UNIONS}/{location.rpartition('/')[2]}"


def _task_and_epoch(name: str) -> tuple[int, int]:
    task, _, epoch = name.rpartition("/")[2].partition("-")
    return int(task), int(epoch)


def is_locked(checkpoint_dir: Path, job_name: str) -> bool:
    """Return whether a job of this name is running in its folder below `checkpoint_dir`."""
    return is_held(checkpoint_dir / folder_name(job_name) / "lock")
