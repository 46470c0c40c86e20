"""Makes changes to a folder survive a power failure."""

from __future__ import annotations

import os


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """Make the names of new, renamed and removed files in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
