"""What a relay and its slot must agree on: who they are, where they meet, and their limits."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from dataclasses import dataclass

_SHARE_OF_MEMORY = 0.7
_CONTAINER_LIMIT = "/sys/fs/cgroup/memory.max"


@dataclass(frozen=True)
class SlotSettings:
    """`generation` counts the runs of a job, over restarts of the driver: the higher one is right.
    `run_file` in the job folder says which run is going on."""

    job_id: str
    run_id: str
    generation: int
    run_file: str
    partitions: int
    memory_mb: int
    hang_timeout_s: float
    idle_timeout_s: float
    local_dir: str | None = None
    queryable_host: str = "127.0.0.1"  # "": the machine's own name
    queryable_ports: str = "0"

    def run_file_content(self) -> str:
        return f"{self.generation} running"

    def memory_limit_mb(self) -> int:
        if self.memory_mb:
            return self.memory_mb
        return int(_machine_memory() * _SHARE_OF_MEMORY / self.partitions) >> 20

    @property
    def folder(self) -> str:
        """Where the job's slots on this host have their sockets. Short: such paths are limited."""
        name = hashlib.sha256(self.job_id.encode()).hexdigest()[:12]
        return os.path.join(base_folder(), name)

    def state_folder(self, partition: int) -> str:
        """Where a backend that needs a disk has its files."""
        if self.local_dir is None:
            return self.path(partition, "state")
        return os.path.join(
            self.local_dir, f"millpond-{os.getuid()}-{os.path.basename(self.folder)}-{partition}"
        )

    def path(self, partition: int, suffix: str) -> str:
        return os.path.join(self.folder, f"{partition}.{suffix}")


def _machine_memory() -> int:
    """Bytes. In a container, what the container may have."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        with open(_CONTAINER_LIMIT) as file:
            text = file.read().strip()
    except OSError:
        return physical
    return min(physical, int(text)) if text.isdecimal() else physical


def base_folder() -> str:
    return os.path.join(tempfile.gettempdir(), f"millpond-{os.getuid()}")


def worker_folder(local_dir: str | None, run_id: str) -> str:
    """Where the backends of Spark's workers have their files, if there are no slots."""
    return os.path.join(local_dir or base_folder(), f"run-{run_id[:12]}")


def remove_slot_files(settings: SlotSettings) -> None:
    """Slots that end remove their files; those that were killed cannot. For when the job is over."""
    shutil.rmtree(settings.folder, ignore_errors=True)
    for partition in range(settings.partitions):
        shutil.rmtree(settings.state_folder(partition), ignore_errors=True)
