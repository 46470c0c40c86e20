"""Notices at once when an executor is lost that a job relies on.

Spark runs the tasks of a lost executor elsewhere, but only after they have waited for their machine in vain.
Meanwhile it may give other tasks to the replacement of the executor, away from their state. So it is better
to stop the batch and to place its partitions anew.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from millpond.executors.spark.executor_list import executor_ids

if TYPE_CHECKING:
    from pyspark import SparkContext

_LOOK_EVERY_S = 0.5


class ExecutorWatch:
    """Looks every half second which executors there are, in a thread of its own. `on_loss` is called as long
    as an executor is missing that is relied on."""

    def __init__(self, context: SparkContext, on_loss: Callable[[], None]) -> None:
        self._context = context
        self._on_loss = on_loss
        self._relied_on: frozenset[str] = frozenset()
        self._is_over = threading.Event()
        threading.Thread(target=self._watch, name="watch-executors", daemon=True).start()

    def rely_on(self, executors: Iterable[str]) -> None:
        """Watch these executors, given their ids, instead of those of the call before."""
        self._relied_on = frozenset(executors)

    def has_lost_one(self) -> bool:
        """Return whether an executor is missing that is relied on."""
        return bool(self._relied_on) and not self._relied_on <= executor_ids(self._context)

    def close(self) -> None:
        """End the thread. It may still finish what it is doing."""
        self._is_over.set()

    def _watch(self) -> None:
        while not self._is_over.wait(_LOOK_EVERY_S):
            try:
                if self.has_lost_one():
                    self._on_loss()
            except Exception:  # Spark is stopping; the attempt ends for that reason
                pass
