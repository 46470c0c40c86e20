"""Finds the slots of a job by what is on their command lines."""

from __future__ import annotations

import json
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


def executor_of(slot: int) -> int:
    """The JVM of the executor that a slot was started for. (The worker that has started the slot may be gone,
    so its parents do not tell.)"""
    arguments = Path(f"/proc/{slot}/cmdline").read_bytes().split(b"\0")
    return int(json.loads(arguments[-2])["executor_pid"])


def is_executor(pid: int) -> bool:
    """Whether a process is an executor of a cluster. A slot may have outlived its own."""
    try:
        return b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


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
