"""Garbage collection for a process with millions of small objects that live long.

Python's collector looks for cycles whenever a certain number of objects has been created: it then walks
through all young objects, and now and then through all objects. In a slot nearly all of these are state that
stays: a job with two map states and a timer per record took 24.8 s with the collector and 22.0 s without. It
is therefore off while the slot works.

Reference counts free most garbage at once. Between batches, the collector looks for cycles among new objects,
and those that survive are set aside. When the process has doubled in size since the last full collection, it
looks through everything.
"""

from __future__ import annotations

import gc

_WORTH_A_LOOK = 10_000  # new containers
_SMALL_MB = 512.0


class IdleCollector:
    """Collects garbage only when it is told to. Creating one switches Python's automatic collection off."""

    def __init__(self) -> None:
        gc.disable()
        gc.collect()
        gc.freeze()
        self._after_full_mb = _SMALL_MB

    def look_through_everything(self) -> None:
        """Do so at the next opportunity, because much of what was set aside is no longer needed."""
        self._after_full_mb = 0.0

    def between_batches(self, resident_mb: float) -> None:
        """Look for cycles among new objects, or among all if the process has grown to twice its size.
        `resident_mb` is how much memory it uses."""
        if resident_mb > 2 * self._after_full_mb:
            self.collect_everything()
            self._after_full_mb = max(resident_mb, _SMALL_MB)
        elif gc.get_count()[0] > _WORTH_A_LOOK:
            gc.collect(0)
        gc.freeze()

    def collect_everything(self) -> None:
        """Look for cycles among all objects, now."""
        gc.unfreeze()
        gc.collect()
        gc.freeze()
