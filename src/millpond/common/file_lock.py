"""Locks on files. A process holds one until it ends, however it ends: the kernel releases it."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

_TRIES = 10
_PAUSE_S = 0.05


def try_lock(path: Path) -> int | None:
    """Lock a file, creating it if need be; return the descriptor that holds the lock, or None if another
    process has it.

    Tries for half a second, because `is_held` takes the lock for a moment too.
    """
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    for tried in range(_TRIES):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except OSError:
            if tried < _TRIES - 1:
                time.sleep(_PAUSE_S)
    os.close(lock)
    return None


def is_held(path: Path) -> bool:
    """Return True while a process holds the lock on a file."""
    try:
        lock = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(lock)
    return False
