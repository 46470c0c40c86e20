"""Which run of a job is going on: the object `run` in the storage of the job.

It is "<generation> running" during a run, otherwise "<generation> ended". Slots watch it, wherever they are.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from millpond.core.storage import Storage
from millpond.errors import CorruptDataError

RUN = "run"
_STATES = {True: "running", False: "ended"}
_CONTENT = re.compile(r"(\d+) (running|ended)")


class JobRun(NamedTuple):
    """A run of a job. Every run has a higher generation than the one before."""

    generation: int
    is_going_on: bool


def read_run(storage: Storage) -> JobRun | None:
    """Return the newest run of a job; None if there was none yet. Raises CorruptDataError if the object is
    damaged."""
    content = storage.find(RUN)
    if content is None:
        return None
    text = content.decode("ascii", errors="replace")
    found = _CONTENT.fullmatch(text)
    if found is None:
        raise CorruptDataError(
            f"{storage.location(RUN)}: '{text[:40]}' is not the number of a run and its state. If no process "
            "of the job is running any more, remove the file."
        )
    return JobRun(int(found[1]), found[2] == _STATES[True])


def write_run(storage: Storage, run: JobRun) -> None:
    """Write down which run is the newest, and whether it is going on."""
    storage.write(RUN, f"{run.generation} {_STATES[run.is_going_on]}".encode("ascii"))
