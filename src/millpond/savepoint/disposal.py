"""Deletes a savepoint."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from millpond.savepoint.manifest import Manifest


def dispose(path: Path) -> None:
    """Nothing else is ever deleted: there must be a manifest. Gone at once; what a crash leaves is not taken
    for a savepoint."""
    path = path.resolve()
    Manifest.read(path)
    aside = path.with_name(f".{path.name}.disposed")
    os.rename(path, aside)
    shutil.rmtree(aside)
