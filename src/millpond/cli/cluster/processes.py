"""Processes that an earlier command has started: whether they still live, and how they are ended.

A process id alone is not enough, because the system gives it to another process one day. When the process
was started belongs to it, too, and which boot of the machine that was. Only what fits in all three is ended.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

_POLL_S = 0.05
_PROC = Path("/proc")


@dataclass(frozen=True)
class ProcessIdentity:
    pid: int
    started: str  # in the system's own words; only ever compared
    boot: str


class Ending(Enum):
    """How a process went."""

    GONE = "had ended already"
    TERMINATED = "ended"
    KILLED = "killed: it did not end by itself"


def identify(pid: int) -> ProcessIdentity | None:
    """None if there is no such process, or only its remains that nobody has waited for."""
    started = _started(pid)
    return None if started is None else ProcessIdentity(pid, started, _boot())


def is_alive(process: ProcessIdentity) -> bool:
    return identify(process.pid) == process


def end(process: ProcessIdentity, grace_s: float) -> Ending:
    """Ask it to end, and kill it if it has not after `grace_s`."""
    if not _signal(process, signal.SIGTERM):
        return Ending.GONE
    if _ends_within(process, grace_s):
        return Ending.TERMINATED
    if not _signal(process, signal.SIGKILL):
        return Ending.TERMINATED
    _ends_within(process, 10)
    return Ending.KILLED


def _ends_within(process: ProcessIdentity, wait_s: float) -> bool:
    until_s = time.monotonic() + wait_s
    while is_alive(process):
        if time.monotonic() >= until_s:
            return False
        time.sleep(_POLL_S)
    return True


def _signal(process: ProcessIdentity, number: signal.Signals) -> bool:
    """False if it is not there. Where the system can hold on to a process, there is no moment between
    looking and signalling in which the id could go to another one."""
    try:
        if not hasattr(os, "pidfd_open"):
            if not is_alive(process):
                return False
            os.kill(process.pid, number)
            return True
        handle = os.pidfd_open(process.pid)
        try:
            if not is_alive(process):
                return False
            signal.pidfd_send_signal(handle, number)
            return True
        finally:
            os.close(handle)
    except ProcessLookupError:
        return False


def _started(pid: int) -> str | None:
    if (_PROC / "self" / "stat").exists():
        try:
            text = (_PROC / str(pid) / "stat").read_text()
        except (OSError, ValueError):
            return None
        fields = text.rpartition(")")[2].split()  # the name before it may have blanks and brackets
        return None if fields[0] in ("Z", "X") else fields[19]
    command = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    return None if not answer or answer[0].startswith("Z") else " ".join(answer[1:])


def _boot() -> str:
    try:
        return (_PROC / "sys" / "kernel" / "random" / "boot_id").read_text().strip()
    except OSError:
        return ""
