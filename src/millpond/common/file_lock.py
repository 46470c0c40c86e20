"""Locks on files: held by a process until it ends, however it ends, because the kernel gives them back."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

_TRIES = 10
_PAUSE_S = 0.05


def try_lock(path: Path) -> int | None:
    """The descriptor that holds the lock; None if another process holds it.

    `is_held` takes a lock for a moment, too: so this is tried for half a second."""
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
    """True while a process holds the lock."""
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
