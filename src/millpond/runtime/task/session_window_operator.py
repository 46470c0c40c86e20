"""Sessions in event time whose elements are combined (reduce, aggregate), without lateness.

The sessions of a key rest together in one value: ((start, end, content), ...), mostly one. An element takes
those it touches into one session. Sessions that are open beyond a batch have a timer at or before their
end; one that has grown when its timer fires gets another at its new end. So no timer is ever deleted, and
sessions that begin and end within a batch cost neither state nor timer.
"""

from __future__ import annotations

from operator import attrgetter, itemgetter
from typing import Any

from millpond.datastream.state import StateKind
from millpond.datastream.window import TimeWindow
from millpond.runtime.task.batched_window_operator import BatchedWindowOperator, event_times
from millpond.runtime.task.bundle import Bundle
from millpond.runtime.task.codec import freeze, thaw, thaw_all
from millpond.runtime.task.context import TaskRuntimeContext
from millpond.runtime.task.key_groups import stable_hash
from millpond.state.key_group_state import KeyGroupState
from millpond.state.tables import MISSING

_SESSIONS = "_sessions"
_start = attrgetter("start")
_end = itemgetter(1)


class _Session:
    __slots__ = ("at_rest", "content", "end", "has_timer", "start")

    def __init__(self, start: int, end: int, content: Any, at_rest: Any = None) -> None:
        self.start = start
        self.end = end
        self.content = content
        self.at_rest: Any = at_rest  # as it is in the state; None if it is not
        self.has_timer = at_rest is not None

    def put_to_rest(self) -> tuple[int, int, Any]:
        return self.at_rest or (self.start, self.end, freeze(self.content))


class SessionWindowOperator(BatchedWindowOperator):
    """`_open`: key -> its sessions, for the keys that a batch touches."""

    def open(self, context: TaskRuntimeContext) -> None:
        super().open(context)
        self._assigner: Any = self._assigner
        self._gap: int | None = getattr(self._assigner, "session_gap", None)

    def bind(self, state: KeyGroupState) -> None:
        self._table: Any = state.table(_SESSIONS, StateKind.VALUE)
        self._timers = state.event_timers

    def begin(self) -> None:
        super().begin()
        self._over: list[tuple[int, int, Any, Any]] = []  # (start, end, key, content) to emit
        self._untimed: set[Any] = set()  # keys whose timers have fired

    # --- elements --------------------------------------------------------------------------------

    def take(self, bundle: Bundle) -> None:
        times = event_times(bundle.timestamps)
        values = bundle.open_values()
        if self._gap is None:
            ends = self._dynamic_ends(values, times.tolist())
        else:
            ends = (times + self._gap).tolist()
        value = None
        added, sessions_of = self._combining.added, self._open
        try:
            for position, key, value, start, end, clock in zip(  # noqa: B905
                range(len(values)),
                thaw_all(bundle.keys or []),
                values,
                times.tolist(),
                ends,
                bundle.each_clock(),
            ):
                sessions = sessions_of.get(key)
                if sessions is None:
                    sessions = sessions_of[key] = self._stored(key)
                if sessions:
                    if sessions[0].end - 1 <= clock or len(sessions) > 1:
                        self._close(key, sessions, clock)
                    if self._join(sessions, start, end, value):
                        continue
                if end - 1 <= clock:
                    self._reject_at(bundle, position)
                else:
                    sessions.append(_Session(start, end, added(MISSING, value)))
        except Exception as problem:
            raise self.failed(problem, self.action, value) from None

    def _dynamic_ends(self, values: list[Any], times: list[int]) -> list[int]:
        assign, context = self._assigner.assign_windows, self._assigner_context
        value = None
        ends: list[int] = []
        try:
            for value, time_ms in zip(values, times, strict=True):
                ends.append(assign(value, time_ms, context)[0].end)
        except Exception as problem:
            raise self.failed(problem, self.action, value) from None
        return ends

    def _stored(self, key: Any) -> list[_Session]:
        at_rest = self._table.data.get(key, ())
        return [_Session(own[0], own[1], thaw(own[2]), own) for own in at_rest]

    def _join(self, sessions: list[_Session], start: int, end: int, value: Any) -> bool:
        """Make one session of the element and those it touches, if there are any."""
        if len(sessions) == 1:  # by far the most frequent case
            touched = sessions if sessions[0].start <= end and sessions[0].end >= start else ()
        else:
            touched = sorted(
                (own for own in sessions if own.start <= end and own.end >= start), key=_start
            )
        if not touched:
            return False
        joined = touched[0]
        for other in touched[1:]:  # in the order of time
            joined.content = self._combining.merged(joined.content, other.content)
            joined.end = max(joined.end, other.end)
            joined.has_timer = joined.has_timer or other.has_timer
            sessions.remove(other)
        joined.start = min(start, joined.start)
        joined.end = max(end, joined.end)
        joined.content = self._combining.added(joined.content, value)
        joined.at_rest = None
        return True

    # --- the end of sessions ---------------------------------------------------------------------

    def fire(self, watermark: int) -> None:
        while (timer := self._timers.pop_due(watermark)) is not None:
            key = timer[1]
            self._untimed.add(key)
            if key not in self._open:
                self._open[key] = self._stored(key)
        for key, sessions in self._open.items():
            if sessions:
                self._close(key, sessions, watermark)
        over, self._over = self._over, []
        over.sort(key=_end)
        if len(set(map(_end, over))) < len(
            over
        ):  # the order must not depend on how batches are cut
            over.sort(key=lambda window: (window[1], stable_hash(window[2])))
        self._emit_windows(over)
        if self._has_own_state():
            for start, end, key, _ in over:
                self._clear_function(key, (start, end), TimeWindow(start, end))

    def _close(self, key: Any, sessions: list[_Session], clock: int) -> None:
        """Sessions that have ended at `clock` take no more elements."""
        left = []
        for session in sessions:
            if session.end - 1 <= clock:
                self._over.append((session.start, session.end, key, session.content))
            else:
                left.append(session)
        sessions[:] = left

    def _rest(self) -> None:
        for key, sessions in self._open.items():
            if not sessions:
                self._table.remove(key)
                continue
            if not all(session.at_rest for session in sessions) or len(sessions) != len(
                self._table.data[key]
            ):
                self._table.set(key, tuple(map(_Session.put_to_rest, sessions)))
            for session in sessions:
                if not session.has_timer or key in self._untimed:
                    self._timers.register(session.end - 1, key)
