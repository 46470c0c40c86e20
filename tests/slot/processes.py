"""Finds the slots of a job by what is on their command lines."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path


def slots_of(folder: Path) -> list[int]:
    """The process ids of all slots whose job folder is below `folder`."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                command = Path(f"/proc/{entry}/cmdline").read_bytes()
            except OSError:
                continue
            ours = b"executors.slot.process" in command and str(folder).encode() in command
            if ours and is_running(int(entry)):
                found.append(int(entry))
    return found


def is_running(pid: int) -> bool:
    """False also for one that has ended and waits for its parent to notice."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def is_stopped(pid: int) -> bool:
    """True after SIGSTOP: it will never answer."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False


def wait_until(condition: Callable[[], bool], complaint: str, timeout_s: float = 120.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, complaint
        time.sleep(0.02)
