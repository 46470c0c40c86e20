"""Sessions in event time whose elements are combined (reduce, aggregate), without lateness.

The sessions of a key lie together in one value: ((start, end, content), ...), mostly one. An element takes
those it touches into one session. Each session has a timer at or before its end; if it has grown when that
fires, it sets one at its new end. So an element costs one look-up, and no timer is ever deleted.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any

from millpond.datastream.state import StateKind
from millpond.datastream.window import TimeWindow
from millpond.datastream.window.assigners import event_time
from millpond.runtime.task.codec import freeze, thaw
from millpond.runtime.task.combining import Combining
from millpond.runtime.task.context import TaskRuntimeContext
from millpond.runtime.task.window_operator import Stamped, WindowOperator
from millpond.state.key_group_state import KeyGroupState
from millpond.state.tables import MISSING

_SESSIONS = "_sessions"
Session = tuple[int, int, Any]  # start, end, content at rest


class SessionWindowOperator(WindowOperator):
    """Gives what the general operator gives."""

    def open(self, context: TaskRuntimeContext) -> None:
        super().open(context)
        self._combining = Combining(self._operation.combine)
        self._assigner: Any = self._assigner
        self._gap: int | None = getattr(self._assigner, "session_gap", None)
        self._table: Any = None
        self._timers: Any = None
        self.clock.bound.append(self)

    def bind(self, state: KeyGroupState) -> None:
        self._table = state.table(_SESSIONS, StateKind.VALUE)
        self._timers = state.event_timers

    def _element(self, value: Any, _: Any) -> list[Stamped] | None:
        clock = self.clock
        key, start = clock.current.key, clock.timestamp
        if start is None:
            start = event_time(start)
        if self._gap is None:
            end = self._assigner.assign_windows(value, start, self._assigner_context)[0].end
        else:
            end = start + self._gap
        sessions: tuple[Session, ...] = self._table.data.get(key, ())
        touched = [s for s in sessions if s[0] <= end and s[1] >= start] if sessions else None
        if touched:
            self._join(key, start, end, value, sessions, touched)
            return None
        if end - 1 <= clock.watermark:
            results: list[Stamped] = []
            self._reject(value, start, results)
            return results
        self._table.set(
            key, (*sessions, (start, end, freeze(self._combining.added(MISSING, value))))
        )
        self._timers.register(end - 1, key)
        return None

    def _join(
        self,
        key: Any,
        start: int,
        end: int,
        value: Any,
        sessions: tuple[Session, ...],
        touched: list[Session],
    ) -> None:
        """One session of the element and those it touches, merged in the order of time."""
        touched.sort(key=itemgetter(0))
        content = thaw(touched[0][2])
        for session in touched:
            start, end = min(start, session[0]), max(end, session[1])
            if session is not touched[0]:
                content = self._combining.merged(content, thaw(session[2]))
        joined = (start, end, freeze(self._combining.added(content, value)))
        if len(sessions) == len(touched):
            self._table.set(key, (joined,))
        else:
            self._table.set(key, (*(s for s in sessions if s not in touched), joined))

    def _timer(self, time_ms: int, _: Any) -> list[Stamped] | None:
        key = self.clock.current.key
        sessions: tuple[Session, ...] = self._table.data.get(key, ())
        over = [session for session in sessions if session[1] - 1 <= time_ms]
        left = tuple(session for session in sessions if session[1] - 1 > time_ms)
        for session in left:
            self._timers.register(session[1] - 1, key)
        if not over:
            return None
        if left:
            self._table.set(key, left)
        else:
            self._table.remove(key)
        results: list[Stamped] = []
        for start, end, content in sorted(over, key=lambda session: session[1]):
            window = TimeWindow(start, end)
            for value in self._call(
                key, (start, end), window, [self._combining.result(thaw(content))]
            ):
                results.append((value, end - 1))
            if self._has_own_state():
                self._clear_function(key, (start, end), window)
        return results
