"""Savepoints: a job's state as a folder that needs nothing else (E45-E48). See docs/savepoint-format.md.

`from millpond.savepoint import Savepoint` gives the class that reads, changes and makes them
(`processor.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millpond.savepoint.processor import Savepoint as Savepoint


def __getattr__(name: str) -> object:
    # It is imported on demand: tasks import this package, too, and do not need the state processor.
    if name == "Savepoint":
        from millpond.savepoint.processor import Savepoint

        return Savepoint
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
