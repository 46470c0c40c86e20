"""Deletes savepoints."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from millpond.savepoint.manifest import Manifest


def dispose(path: Path) -> None:
    """Delete a savepoint. Raises SavepointError, and deletes nothing, if the folder has no manifest. The
    folder is renamed first, so that what a crash leaves of it is not taken for a savepoint."""
    path = path.resolve()
    Manifest.read(path)
    aside = path.with_name(f".{path.name}.disposed")
    os.rename(path, aside)
    shutil.rmtree(aside)
