"""The states of key groups that a host keeps in memory from one batch to the next."""

from __future__ import annotations

from millpond.engine.state_views import StateViews
from millpond.state.change_log import CachedState

_MAX_WAITING = 50_000
_MAX_WAITING_QUERYABLE = 500_000


class KeptStates:
    """States by task and key group (or subtask). The log says whether they are still the truth."""

    def __init__(self, views: StateViews) -> None:
        self._views = views
        self._states: dict[tuple[int, int], CachedState] = {}
        self._waiting = 0  # number of uncommitted changes in memory, in all key groups

    def get(self, task: int, number: int) -> CachedState | None:
        """Return a state that is kept; None if it is not."""
        return self._states.get((task, number))

    def take(self, task: int, number: int) -> CachedState | None:
        """Take a state out, so that it is not found again if the batch fails half-way."""
        kept = self._states.pop((task, number), None)
        if kept is not None:
            self._waiting -= kept.state.waiting_count()
        return kept

    def keep(self, task: int, number: int, written: CachedState) -> None:
        """Keep a state until the next batch, which tells whether this one counts.

        If too many changes would wait in memory for that, the batch is assumed to count: after a failure, the
        state then has to be loaded from the log."""
        written.state.rest()
        self._states[task, number] = written
        self._waiting += written.state.waiting_count()
        if self._waiting > _MAX_WAITING:
            self._commit_early(queryable=False)
        if self._waiting > _MAX_WAITING_QUERYABLE:
            self._commit_early(queryable=True)  # look-ups then have to wait for the batch

    def _commit_early(self, queryable: bool) -> None:
        for (task, number), kept in self._states.items():
            count = kept.state.waiting_count()
            if count and self._views.is_read(task) == queryable:
                self._views.commit_early(task, number, kept.state)
                self._states[task, number] = kept._replace(previous=None)
                self._waiting -= count

    def clear(self) -> None:
        """Forget all states."""
        self._states.clear()
        self._waiting = 0
