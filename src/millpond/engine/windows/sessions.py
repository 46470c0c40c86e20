"""Session windows in event time that combine their elements (reduce, aggregate), without lateness.

The sessions of a key rest together in one value: ((start, end, content), ...). Mostly there is only one. An
element merges the sessions that it touches into one. Sessions that are open beyond a batch have a timer at or
before their end; if a session has grown when its timer fires, it gets another one at its new end. So no timer
is ever deleted, and sessions that begin and end within a batch cost neither state nor timers.
"""

from __future__ import annotations

from operator import attrgetter, itemgetter
from typing import Any

from millpond.core.bundle import Bundle
from millpond.core.codec import freeze, thaw, thaw_all
from millpond.core.columns import Numbers
from millpond.core.key_groups import order_of
from millpond.datastream.state import StateKind
from millpond.engine.context import TaskRuntimeContext
from millpond.engine.windows.batched import BatchedWindowOperator
from millpond.state.shard_state import ShardState
from millpond.state.tables import MISSING, ValueTable

_SESSIONS = "_sessions"


class _Session:
    at_rest: tuple[int, int, Any] | None = None  # as it is in the state; None if it is not there
    has_timer = False

    def __init__(self, start: int, end: int, content: object) -> None:
        self.start = start
        self.end = end
        self.content = content

    @staticmethod
    def stored(at_rest: tuple[int, int, Any]) -> _Session:
        start, end, content = at_rest
        session = _Session(start, end, thaw(content))
        session.at_rest = at_rest
        session.has_timer = True
        return session

    def put_to_rest(self) -> tuple[int, int, Any]:
        return self.at_rest or (self.start, self.end, freeze(self.content))


_start = attrgetter("start")
_end_of_window = itemgetter(1)


class SessionWindowOperator(BatchedWindowOperator):
    """Session windows that combine their elements. `_open` has the session of each key that a batch touches;
    None if it has ended. Keys with several sessions at the same time are in `_several` instead."""

    _open: dict[Any, _Session | None]

    def open(self, context: TaskRuntimeContext) -> None:
        super().open(context)
        self._gap: int | None = getattr(self._assigner, "session_gap", None)

    def bind(self, state: ShardState) -> None:
        self._table: ValueTable = state.table(_SESSIONS, StateKind.VALUE)
        self._timers = state.event_timers

    def begin(self) -> None:
        super().begin()
        self._several: dict[Any, list[_Session]] = {}
        self._over: list[tuple[int, int, Any, Any]] = []  # (start, end, key, content) to emit
        self._untimed: set[object] = set()  # keys whose timers have fired

    # --- elements --------------------------------------------------------------------------------

    def take(self, bundle: Bundle) -> None:
        times = self._times(bundle, self._gap or 0)
        values = bundle.open_values()
        value = None
        added, opened, over = self._combining.added, self._open, self._over
        try:
            for position, key, value, start, end, clock in zip(  # noqa: B905
                range(len(values)),
                thaw_all(bundle.keys or []),
                values,
                times.tolist(),
                self._ends(values, times),
                bundle.each_clock(),
            ):
                if key not in opened:
                    self._load(key)
                session = opened.get(key)
                if session is not None and session.end - 1 <= clock:
                    over.append((session.start, session.end, key, session.content))
                    session = opened[key] = None
                if session is None:
                    if end - 1 > clock and key in opened:
                        opened[key] = _Session(start, end, added(MISSING, value))
                        continue
                elif session.start <= end and session.end >= start:
                    if start < session.start:
                        session.start = start
                    if end > session.end:
                        session.end = end
                    session.content = added(session.content, value)
                    session.at_rest = None
                    continue
                if not self._take_among_several(key, start, end, clock, value):
                    self._reject_at(bundle, position, value)
        except Exception as problem:
            raise self.failed(problem, self.action, value) from None

    def _ends(self, values: list[Any], times: Numbers) -> list[int]:
        """Return where the session of each element would end if the element were alone in it."""
        if self._gap is not None:
            return (times + self._gap).tolist()  # type: ignore[no-any-return]
        value = None
        assign, context = self._assigner.assign_windows, self._assigner_context
        ends: list[int] = []
        try:
            for value, time_ms in zip(values, times.tolist(), strict=True):
                (window,) = assign(value, time_ms, context)
                ends.append(window.end)
        except Exception as problem:
            raise self.failed(problem, self.action, value) from None
        return ends

    def _load(self, key: object) -> None:
        """Load the sessions of a key from the state, unless the batch has already touched the key."""
        stored = self._table.data.get(key)
        if stored is None or len(stored) == 1:
            if key not in self._several:
                self._open[key] = None if stored is None else _Session.stored(stored[0])
        elif key not in self._several:
            self._several[key] = list(map(_Session.stored, stored))

    def _take_among_several(
        self, key: object, start: int, end: int, clock: int, value: object
    ) -> bool:
        """Put an element into one of several sessions of its key. Return False if the element is late."""
        sessions = self._several.get(key)
        if sessions is None:
            if end - 1 <= clock:
                return False
            first = self._open.pop(key)
            sessions = self._several[key] = [] if first is None else [first]
        self._close(key, sessions, clock)
        touched = sorted(
            (session for session in sessions if session.start <= end and session.end >= start),
            key=_start,
        )
        if not touched:
            if end - 1 > clock:
                sessions.append(_Session(start, end, self._combining.added(MISSING, value)))
            return end - 1 > clock
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
        opened, over = self._open, self._over
        while (timer := self._timers.pop_due(watermark)) is not None:
            key = timer[1]
            self._untimed.add(key)
            if key not in opened:
                self._load(key)
        for key, session in opened.items():
            if session is not None and session.end - 1 <= watermark:
                over.append((session.start, session.end, key, session.content))
                opened[key] = None
        for key, sessions in self._several.items():
            self._close(key, sessions, watermark)
        self._over = []
        over.sort(key=_end_of_window)
        if len(set(map(_end_of_window, over))) < len(over):
            # The order must not depend on where batches are cut.
            over.sort(key=lambda window: (window[1], order_of(window[2])))
        self._emit_windows(over, is_over=True)

    def _close(self, key: object, sessions: list[_Session], clock: int) -> None:
        """Move the sessions that have ended at `clock`, and so take no more elements, to those to emit."""
        left = []
        for session in sessions:
            if session.end - 1 <= clock:
                self._over.append((session.start, session.end, key, session.content))
            else:
                left.append(session)
        sessions[:] = left

    def _rest(self) -> None:
        for key, session in self._open.items():
            self._put_to_rest(key, [] if session is None else [session])
        for key, sessions in self._several.items():
            self._put_to_rest(key, sessions)

    def _put_to_rest(self, key: object, sessions: list[_Session]) -> None:
        stored = self._table.data.get(key, ())
        if not sessions:
            if stored:
                self._table.remove(key)
            return
        if len(sessions) != len(stored) or any(session.at_rest is None for session in sessions):
            self._table.set(key, tuple(session.put_to_rest() for session in sessions))
        for session in sessions:
            if not session.has_timer or key in self._untimed:
                self._timers.register(session.end - 1, key)
