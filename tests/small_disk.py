"""A disk that is full when a test wants it to be."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


class SmallDisk:
    """A file system of its own in a folder. It is real, so whoever writes to it fails as in real life."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / ".filler"

    def fill(self, but_kb: int = 0) -> None:
        """Leave only so much space."""
        self.empty()
        with contextlib.suppress(OSError), self._filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        with self._filler.open("r+b") as file:
            file.truncate(self._filler.stat().st_size - but_kb * 1024)

    def empty(self) -> None:
        """Give all the space back."""
        self._filler.unlink(missing_ok=True)


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[SmallDisk]:
    """Mount a disk of this size in a folder. Skips the test where that is not allowed."""
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("needs the right to mount a small file system")
    try:
        yield SmallDisk(folder)
    finally:
        # A job that failed in this process may not have closed its files yet.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
