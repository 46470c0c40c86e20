"""The processes of a job on one machine: which there are, and when they were started."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.faults.jvms import jvms_of
from tests.slot.processes import is_running, slots_of

KINDS = ("slot", "worker", "executor", "JVM", "driver")


def of_kind(kind: str, driver: int, folder: Path) -> list[int]:
    """Return the process ids of one kind of process of a job, given its driver and a folder above its job
    folder."""
    if kind == "driver":
        return [driver]
    if kind == "JVM":
        return jvms_of(driver)
    slots = slots_of(folder)
    if kind == "slot":
        return slots
    if kind == "executor":
        # A slot is a child of a worker, which a daemon has forked that the executor has started.
        found = [_parent(_parent(_parent(slot))) for slot in slots]
        return [executor for executor in found if executor > 1]
    # The JVM starts a daemon, which forks the workers; slots are children of workers.
    daemons = [pid for jvm in jvms_of(driver) for pid in _children(jvm)]
    return [pid for daemon in daemons for pid in _children(daemon) if pid not in slots]


def _parent(pid: int) -> int:
    """Return the parent's process id, 0 if there is none any more."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    except OSError:
        return []  # it has just ended
    return list(filter(is_running, found))


def started_at_s(pid: int) -> float | None:
    """Return when a process was started, in seconds since 1970, to a hundredth; None if it is gone."""
    try:
        ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return None
    up_s = float(Path("/proc/uptime").read_text().split()[0])
    return time.time() - up_s + ticks / os.sysconf("SC_CLK_TCK")
