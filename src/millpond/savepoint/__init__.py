"""Savepoints: a job's state as a folder that needs nothing else (E45-E48). See docs/savepoint-format.md.

`from millpond.savepoint import Savepoint` reads, changes and makes them (`processor.py`).
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    # Imported on demand: tasks import this package, too, and do not need the state processor.
    if name == "Savepoint":
        from millpond.savepoint.processor import Savepoint

        return Savepoint
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
