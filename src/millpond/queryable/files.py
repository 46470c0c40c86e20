"""What a job folder says about queryable state (O6): who answers, and which batch counts.

    committed            "<generation> <epoch>": the newest batch that counts; by the driver
    queryable.json       the states that there are; by the driver, once it knows them; stays over restarts
    queryable/P.json     where the slot of partition P answers, and the token it expects; by the slot
    queryable/wanted     there if somebody waits for a batch, because a slot is gone or has not loaded yet

All of it is written aside and renamed, and private to the user. Nothing is there before a function has
declared a queryable state. `generation` numbers the runs of a job (`run` in the job folder has the one
that counts): what an older one has written is outdated.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from millpond.common import options
from millpond.core.job_run import read_run
from millpond.core.storage import FileStorage
from millpond.errors import CorruptDataError, ProgramError

FORMAT = 1
_FOLDER = "queryable"


@dataclass(frozen=True)
class Location:
    """Where the slot of a partition answers. `machine` and `pid` tell whether it is still alive."""

    generation: int
    partition: int
    partitions: int
    host: str
    port: int
    token: str
    machine: str
    pid: int
    states: dict[str, dict[str, Any]]

    def is_dead(self) -> bool:
        """Return True if the slot is certain to be gone."""
        here = self.machine == os.uname().nodename
        return here and not os.path.exists(f"/proc/{self.pid}")


def write_private(path: Path, text: str) -> os.stat_result:
    """Write a file aside and rename it. Not synced: after a power failure all of it is outdated."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        status = os.fstat(file.fileno())
    os.replace(aside, path)
    return status


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the content of a file; None if there is none, or none that this release can read."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        return None
    return content


def run_of(job_folder: Path) -> tuple[int, bool]:
    """Return (generation, whether it still runs) of the newest run; generation 0 if there was none."""
    try:
        return read_run(FileStorage(job_folder)) or (0, False)
    except (OSError, CorruptDataError):
        return 0, False


# --- slots -------------------------------------------------------------------------------------------


def location_path(job_folder: Path, partition: int) -> Path:
    """Return the file in which the slot of a partition says where it answers."""
    return job_folder / _FOLDER / f"{partition}.json"


def write_location(job_folder: Path, location: Location) -> os.stat_result:
    """Write where a slot answers. Return the status of the new file, which identifies it."""
    (job_folder / _FOLDER).mkdir(mode=0o700, exist_ok=True)
    content = json.dumps({"format": FORMAT, **asdict(location)})
    return write_private(location_path(job_folder, location.partition), content)


def read_locations(job_folder: Path, generation: int) -> list[Location]:
    """Return the locations that one run has written."""
    locations = []
    for path in sorted((job_folder / _FOLDER).glob("[0-9]*.json")):
        content = read_json(path)
        if content is not None and content.get("generation") == generation:
            content.pop("format")
            with contextlib.suppress(TypeError):  # a file of this name that is not ours
                locations.append(Location(**content))
    return locations


def drop_locations_before(job_folder: Path, generation: int) -> None:
    """Delete the locations of runs before `generation`."""
    for path in (job_folder / _FOLDER).glob("[0-9]*.json"):
        content = read_json(path)
        if content is None or content.get("generation", 0) < generation:
            path.unlink(missing_ok=True)


def has_queryable_state(job_folder: Path) -> bool:
    """Return True if a function of the job has ever declared a queryable state."""
    return (job_folder / _FOLDER).is_dir()


def folder_time_ns(job_folder: Path) -> int:
    """Return a time that changes when a slot writes something new; 0 if there is nothing."""
    try:
        return (job_folder / _FOLDER).stat().st_mtime_ns
    except OSError:
        return 0


# --- states ------------------------------------------------------------------------------------------


def write_states(job_folder: Path, generation: int, states: dict[str, dict[str, Any]]) -> None:
    """Write which states there are, as the run `generation` has found out."""
    content = {"format": FORMAT, "generation": generation, "states": states}
    write_private(job_folder / "queryable.json", json.dumps(content))


def read_states(job_folder: Path) -> tuple[int, dict[str, dict[str, Any]]]:
    """Return (the run that has found them, descriptions by name); (0, {}) if none has."""
    content = read_json(job_folder / "queryable.json")
    return (0, {}) if content is None else (content["generation"], content["states"])


# --- batches -----------------------------------------------------------------------------------------


def write_committed(job_folder: Path, generation: int, epoch: int) -> None:
    """Write that a batch counts."""
    write_private(job_folder / "committed", f"{generation} {epoch}")


class CommittedEpoch:
    """The newest batch of a run that counts, as the driver has written it down."""

    def __init__(self, job_folder: Path, generation: int) -> None:
        self._path = job_folder / "committed"
        self._generation = generation
        self._seen: tuple[int, int] | None = None  # which file was read
        self.epoch = -1  # as of the last look; -1 if nothing is known
        self.is_outdated = False  # a newer run has committed something

    def read(self) -> int:
        """Look again, and return the epoch. Costs one look at the file system unless there is a new one."""
        try:
            status = os.stat(self._path)
            seen = (status.st_ino, status.st_mtime_ns)
            if seen != self._seen:
                generation, epoch = map(int, self._path.read_text(encoding="ascii").split())
                if generation == self._generation:
                    self.epoch = max(self.epoch, epoch)
                self.is_outdated = generation > self._generation
                self._seen = seen
        except (OSError, ValueError):
            pass  # a shared folder that is away for a moment; what was known still holds
        return self.epoch


def want_batch(job_folder: Path) -> None:
    """Ask the driver for a batch, with which slots load what they lack."""
    if has_queryable_state(job_folder):
        with contextlib.suppress(
            OSError
        ):  # the folder is gone, or not writable: the client asks again anyway
            (job_folder / _FOLDER / "wanted").touch(mode=0o600)


def is_batch_wanted(job_folder: Path) -> bool:
    """Return True if somebody waits for a batch."""
    return (job_folder / _FOLDER / "wanted").exists()


def forget_wanted(job_folder: Path) -> None:
    """Note that nobody has to wait any more."""
    (job_folder / _FOLDER / "wanted").unlink(missing_ok=True)


def parse_ports(text: str) -> list[int]:
    """Return the ports in a text such as 0, 9067, 9067-9077, or several of them with commas. Raises
    ProgramError."""
    ports: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,5})\s*(?:-\s*(\d{1,5})\s*)?", part)
        first = int(match[1]) if match else -1
        last = int(match[2]) if match and match[2] else first
        if not 0 <= first <= last <= 65535:
            raise ProgramError(
                f"{options.QUERYABLE_PORTS.key} must be 0 (any), a port or a range such as 9067-9077, "
                f"not '{text}'."
            )
        ports.extend(range(first, last + 1))
    return ports
