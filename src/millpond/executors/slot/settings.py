"""What a relay and its slot must agree on: who they are, where they meet, and their limits."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from dataclasses import dataclass, replace

_SHARE_OF_MEMORY = 0.7
_CONTAINER_LIMIT = "/sys/fs/cgroup/memory.max"


@dataclass(frozen=True)
class SlotSettings:
    """The settings of all slots of one run. `generation` counts the runs of a job, also over restarts of its
    driver; the highest one is right. `storage` is the location of the job's storage (`core/storage.py`),
    which says which run is going on."""

    job_id: str
    run_id: str
    generation: int
    storage: str
    partitions: int
    memory_mb: int
    hang_timeout_s: float
    idle_timeout_s: float
    local_dir: str | None = None
    queryable_host: str = "127.0.0.1"  # "": the machine's own name
    queryable_ports: str = "0"
    keep_s: float = 0.0
    """How long a slot waits for a newer run of the job when its own is gone."""

    def is_same_but_for_the_run(self, other: SlotSettings) -> bool:
        """Return whether slots with these settings can serve a run with the other ones."""
        return replace(self, run_id=other.run_id, generation=other.generation) == other

    def memory_limit_mb(self) -> int:
        """Return how much memory a slot may use: the setting, or its share of the machine's memory."""
        if self.memory_mb:
            return self.memory_mb
        return int(_machine_memory() * _SHARE_OF_MEMORY / self.partitions) >> 20

    @property
    def folder(self) -> str:
        """Where the job's slots on this machine have their sockets. It is short, because the length of such
        paths is limited."""
        name = hashlib.sha256(self.job_id.encode()).hexdigest()[:12]
        return os.path.join(base_folder(), name)

    def state_folder(self, partition: int) -> str:
        """Return where the backend of a partition has its files, if it needs a disk."""
        if self.local_dir is None:
            return self.path(partition, "state")
        return os.path.join(
            self.local_dir, f"millpond-{os.getuid()}-{os.path.basename(self.folder)}-{partition}"
        )

    def path(self, partition: int, suffix: str) -> str:
        """Return the path of one of a slot's files: `sock`, `lock` or `log`."""
        return os.path.join(self.folder, f"{partition}.{suffix}")


def _machine_memory() -> int:
    """Return the memory of the machine, or of the container if that is less, in bytes."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        with open(_CONTAINER_LIMIT) as file:
            text = file.read().strip()
    except OSError:
        return physical
    return min(physical, int(text)) if text.isdecimal() else physical


def base_folder() -> str:
    """Return the folder of this user for everything that Millpond keeps below the temporary folder."""
    return os.path.join(tempfile.gettempdir(), f"millpond-{os.getuid()}")


def remove_slot_files(settings: SlotSettings) -> None:
    """Remove what slots on this machine have left, once the job is over. Slots that end remove their files
    themselves; those that were killed could not."""
    shutil.rmtree(settings.folder, ignore_errors=True)
    for partition in range(settings.partitions):
        shutil.rmtree(settings.state_folder(partition), ignore_errors=True)
