"""What the driver knows about a job's work (E9, P6, E36): totals, and how things are now.

The thread that runs batches says when a batch begins, completes and is committed; any thread may ask. All
numbers of a batch are added at once, under a lock that is held only briefly.

Time is cut where batches begin. The stretch of a batch lasts until the next one begins, or until now if none
is running. What a running batch does is not known yet, so the newest numbers end where it began.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from millpond.driver.reporting.fading import FadingGroups, FadingKeys
from millpond.engine.exchange.reports import WorkCounts
from millpond.plan.vertices import Vertex

_WINDOW_MS = 10_000.0
_GROWTH_WINDOW_MS = 60_000.0
_LATENCIES = 100
_HOTTEST = 10
_ALMOST_FULL = 0.9

Totals = dict[int, tuple[list[tuple[int, ...]], float, float]]
"""number of a vertex -> (counts of its subtasks, idle ms, back-pressured ms)"""


@dataclass
class Counts:
    """What a subtask has done since the job began."""

    records_in: int = 0
    records_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    busy_ns: int = 0

    def add(self, work: WorkCounts) -> None:
        """Add what the subtask reports about one batch."""
        self.records_in += work.records_in
        self.records_out += work.records_out
        self.bytes_in += work.bytes_in
        self.bytes_out += work.bytes_out
        self.busy_ns += work.busy_ns


class Ratios(NamedTuple):
    """Shares of time; they add up to 1."""

    busy: float
    idle: float
    backpressured: float


class DoneBatch(NamedTuple):
    """What a batch teaches about the size of the next ones. `records`: how many the source that gave most has
    given; `is_first`: it was the first batch of an attempt, so processes had to start; `backlog`: how many
    records are waiting, None if that is not known."""

    duration_ms: float
    records: int
    was_waiting: bool
    memory_share: float
    is_first: bool
    backlog: int | None


@dataclass
class _Batch:
    """One batch. `waiting`: when it was planned, there were more records than it could take. `busy_ns` has,
    by vertex, the time of each subtask, and `records` has (records in, records out) by vertex."""

    began_ms: float
    waiting: bool = False
    ended_ms: float = 0.0
    read: int = 0
    most_read: int = 0
    memory_share: float = 0.0
    busy_ns: dict[int, list[int]] = field(default_factory=dict)
    records: dict[int, tuple[int, int]] = field(default_factory=dict)


@dataclass
class _OfVertex:
    counts: list[Counts]
    machines: list[str]
    key_groups: FadingGroups | None
    keys: FadingKeys = field(default_factory=FadingKeys)
    idle_ms: float = 0.0
    backpressured_ms: float = 0.0
    watermark: int | None = None
    state_bytes: deque[tuple[float, int]] = field(default_factory=deque)


@dataclass
class SubtaskView:
    """A subtask as it is now. `machine` is where it last ran; `ratios` is None before there are any."""

    counts: Counts
    ratios: Ratios | None
    machine: str


@dataclass
class VertexView:
    """A vertex as it is now."""

    subtasks: list[SubtaskView]
    ratios: Ratios | None
    records_in_per_s: float
    records_out_per_s: float
    busy_ms: float
    idle_ms: float
    backpressured_ms: float
    watermark: int | None
    state_bytes: int
    state_growth_per_s: float
    key_groups: list[float]
    hottest: list[tuple[str, float]]


@dataclass
class View:
    """A job as it is now. `duration_ms` and `records` are those of the newest complete batch."""

    vertices: dict[int, VertexView]
    is_running: bool
    backlog: int | None
    credits: int
    is_waiting: bool
    duration_ms: float
    records: int
    records_per_s: float
    latencies_ms: list[float]


class JobStatistics:
    """The statistics of one job, over all attempts. `clock_ms` may start anywhere, but must never go back."""

    def __init__(self, vertices: list[Vertex], clock_ms: Callable[[], float]) -> None:
        self._vertices = {vertex.number: vertex for vertex in vertices}
        self._owner = {sink: vertex.number for vertex in vertices for sink in vertex.sinks}
        self._owner |= {number: number for number in self._vertices}
        self._clock_ms = clock_ms
        self._lock = threading.Lock()
        self._of = {
            vertex.number: _OfVertex(
                [Counts() for _ in range(vertex.parallelism)],
                [""] * vertex.parallelism,
                FadingGroups(vertex.max_parallelism) if vertex.keyed else None,
            )
            for vertex in vertices
        }
        self._running: _Batch | None = None
        self._uncommitted: _Batch | None = None
        self._is_first = True  # no batch of this attempt is committed yet
        self._batches: deque[_Batch] = deque()  # complete: those in the window, and the newest one
        self._first_ms: float | None = None  # when the first batch began
        self._stopped_ms: float | None = None  # set between attempts, and after the last one
        self._latencies_ms: deque[float] = deque(maxlen=_LATENCIES)
        self._backlog: int | None = None
        self._is_all_known = False
        self._beyond_credits = False
        self._credits = 0

    # --- told by the thread that runs batches ----------------------------------------------------

    def set_credits(self, records: int) -> None:
        """Set how many records each source may give to the next batch."""
        with self._lock:
            self._credits = records

    def note_backlog(self, waiting: Iterable[int | None]) -> None:
        """Note how many records each source has that were not handed out; None where the source cannot
        tell."""
        told = list(waiting)
        known = [count for count in told if count is not None]
        with self._lock:
            self._is_all_known = len(known) == len(told)
            self._backlog = sum(known) if known else None
            self._beyond_credits = any(count > self._credits for count in known)

    def batch_begins(self) -> None:
        """Note that a batch begins now, which ends the stretch of the one before it."""
        with self._lock:
            now_ms = self._clock_ms()
            self._stopped_ms = None
            self._settle(now_ms)
            if self._first_ms is None:
                self._first_ms = now_ms
            self._running = _Batch(now_ms, waiting=bool(self._backlog))

    def batch_completes(
        self,
        works: list[WorkCounts],
        watermarks: dict[int, int | None],
        state_bytes: dict[int, int],
        is_cut: bool = False,
    ) -> int:
        """Add what a batch did: its work, the watermarks of tasks after it, and the size of their state in
        bytes, both by task; and whether its time was not enough. Return how many records it has read."""
        with self._lock:
            now_ms = self._clock_ms()
            batch = self._running or _Batch(now_ms)
            self._running = None
            batch.ended_ms = now_ms
            for work in works:
                self._take(work, batch)
            self._take_keys(works, now_ms)
            read = [
                count
                for number, (count, _) in batch.records.items()
                if self._vertices[number].level == 0
            ]
            batch.read, batch.most_read = sum(read), max(read, default=0)
            is_full = batch.most_read >= _ALMOST_FULL * self._credits > 0
            if is_cut or (is_full and not self._is_all_known):  # then there is, probably, more
                batch.waiting = self._beyond_credits = True
            for number, figures in self._of.items():
                figures.watermark = watermarks.get(number)
                figures.state_bytes.append((now_ms, state_bytes.get(number, 0)))
                while figures.state_bytes[0][0] < now_ms - _GROWTH_WINDOW_MS:
                    figures.state_bytes.popleft()
            self._batches.append(batch)
            while len(self._batches) > 1 and self._batches[0].ended_ms < now_ms - _WINDOW_MS:
                self._batches.popleft()
            self._uncommitted = batch
            return batch.read

    def _take(self, work: WorkCounts, batch: _Batch) -> None:
        number = self._owner[work.task]
        figures = self._of[number]
        index = min(work.subtask, len(figures.counts) - 1)
        figures.counts[index].add(work)
        figures.machines[index] = work.machine or figures.machines[index]
        busy_ns = batch.busy_ns.setdefault(number, [0] * len(figures.counts))
        busy_ns[index] += work.busy_ns
        records_in, records_out = batch.records.get(number, (0, 0))
        batch.records[number] = (records_in + work.records_in, records_out + work.records_out)
        batch.memory_share = max(batch.memory_share, work.memory_share)
        for sink, subtask, records, size in work.to_sinks:
            if sink in self._of:  # the sink is a vertex of its own
                self._take(WorkCounts(sink, subtask, records_in=records, bytes_in=size), batch)

    def _take_keys(self, works: list[WorkCounts], now_ms: float) -> None:
        groups: dict[int, list[tuple[int, int]]] = {}
        keys: dict[int, list[tuple[str, int]]] = {}
        for work in works:
            if work.keyed:
                groups.setdefault(work.task, []).extend(work.keyed)
                keys.setdefault(work.task, []).extend(work.hottest)
        for number, counts in groups.items():
            figures = self._of[number]
            assert figures.key_groups is not None
            figures.key_groups.add(counts, now_ms)
            figures.keys.add(keys[number], now_ms)

    def batch_is_committed(self) -> DoneBatch | None:
        """Note that the newest complete batch is committed. Return what is to be learnt from it; None if it
        was noted before."""
        with self._lock:
            batch, self._uncommitted = self._uncommitted, None
            if batch is None:
                return None
            duration_ms = self._clock_ms() - batch.began_ms
            self._latencies_ms.append(duration_ms)
            is_first, self._is_first = self._is_first, False
            return DoneBatch(
                duration_ms,
                batch.most_read,
                batch.waiting,
                batch.memory_share,
                is_first,
                self._backlog,
            )

    def attempt_ends(self) -> bool:
        """Note that an attempt is over. Return whether a batch was running, which is lost now."""
        with self._lock:
            was_running = self._running is not None
            self._running = self._uncommitted = None
            self._is_first = True
            self._stopped_ms = self._clock_ms()
            return was_running

    def _settle(self, now_ms: float) -> None:
        """Add the stretch of the newest batch, which is over, to the totals."""
        if self._batches:
            batch = self._batches[-1]
            for number, figures in self._of.items():
                rest_ms = self._rest_ms(batch, number, now_ms - batch.began_ms)
                if batch.waiting:
                    figures.backpressured_ms += rest_ms
                else:
                    figures.idle_ms += rest_ms

    def _rest_ms(self, batch: _Batch, number: int, stretch_ms: float) -> float:
        """Return for how long the subtasks of a vertex had nothing to do, all together."""
        busy_ns = batch.busy_ns.get(number, [])
        return max(0.0, stretch_ms * len(self._of[number].counts) - sum(busy_ns) / 1e6)

    # --- at rest ---------------------------------------------------------------------------------

    def totals(self) -> Totals:
        """Return the totals as plain containers, for `restore`. The number of a vertex is the same in every
        run of a job."""
        with self._lock:
            return {
                number: (
                    [tuple(vars(counts).values()) for counts in figures.counts],
                    figures.idle_ms,
                    figures.backpressured_ms,
                )
                for number, figures in self._of.items()
            }

    def restore(self, totals: Totals) -> None:
        """Set the totals back to earlier ones. What they do not contain begins at 0."""
        with self._lock:
            for number, figures in self._of.items():
                numbers_of_subtasks, idle_ms, backpressured_ms = totals.get(number, ([], 0.0, 0.0))
                counts = [Counts(*numbers) for numbers in numbers_of_subtasks]
                missing = len(figures.counts) - len(counts)
                figures.counts = (counts + [Counts() for _ in range(missing)])[
                    : len(figures.counts)
                ]
                figures.idle_ms = idle_ms
                figures.backpressured_ms = backpressured_ms

    # --- asked by anybody ------------------------------------------------------------------------

    def view(self) -> View:
        """Return the job as it is now, or as it was when the attempt ended. Any thread may ask."""
        with self._lock:
            now_ms = self._clock_ms() if self._stopped_ms is None else self._stopped_ms
            end_ms = now_ms if self._running is None else self._running.began_ms
            window = _Window.of(self._batches, self._first_ms, end_ms)
            newest = self._batches[-1] if self._batches else _Batch(now_ms, ended_ms=now_ms)
            return View(
                {number: self._view(number, window, now_ms) for number in self._of},
                self._running is not None,
                self._backlog,
                self._credits,
                self._beyond_credits,
                newest.ended_ms - newest.began_ms,
                newest.read,
                window.per_s(sum(batch.read for batch in window.batches)),
                list(self._latencies_ms),
            )

    def _view(self, number: int, window: _Window, now_ms: float) -> VertexView:
        figures = self._of[number]
        idle_ms, backpressured_ms = figures.idle_ms, figures.backpressured_ms
        if self._batches and self._running is None:  # the newest stretch is not settled yet
            newest = self._batches[-1]
            rest_ms = self._rest_ms(newest, number, now_ms - newest.began_ms)
            if newest.waiting:
                backpressured_ms += rest_ms
            else:
                idle_ms += rest_ms
        first_ms, first_bytes = figures.state_bytes[0] if figures.state_bytes else (now_ms, 0)
        last_ms, last_bytes = figures.state_bytes[-1] if figures.state_bytes else (now_ms, 0)
        records = [batch.records.get(number, (0, 0)) for batch in window.batches]
        return VertexView(
            [
                SubtaskView(Counts(*vars(counts).values()), window.ratios(number, [index]), machine)
                for index, (counts, machine) in enumerate(
                    zip(figures.counts, figures.machines, strict=True)
                )
            ],
            window.ratios(number, range(len(figures.counts))),
            window.per_s(sum(count for count, _ in records)),
            window.per_s(sum(count for _, count in records)),
            sum(counts.busy_ns for counts in figures.counts) / 1e6,
            idle_ms,
            backpressured_ms,
            figures.watermark,
            last_bytes,
            (last_bytes - first_bytes) / (last_ms - first_ms) * 1000 if last_ms > first_ms else 0.0,
            [] if figures.key_groups is None else figures.key_groups.counts(now_ms),
            figures.keys.hottest(_HOTTEST, now_ms),
        )


@dataclass
class _Window:
    """About the last ten seconds: the batches that ended in them, from where the first of those began."""

    batches: list[_Batch]
    begin_ms: float
    end_ms: float

    @staticmethod
    def of(batches: Iterable[_Batch], first_ms: float | None, end_ms: float) -> _Window:
        if first_ms is None:
            return _Window([], end_ms, end_ms)
        inside = [batch for batch in batches if batch.ended_ms > end_ms - _WINDOW_MS]
        begin_ms = end_ms - _WINDOW_MS
        if inside:
            begin_ms = min(begin_ms, inside[0].began_ms)
        return _Window(inside, max(begin_ms, first_ms), end_ms)

    def per_s(self, count: int) -> float:
        length_ms = self.end_ms - self.begin_ms
        return count / length_ms * 1000 if length_ms > 0 else 0.0

    def _stretches(self) -> Iterator[tuple[_Batch, float]]:
        next_ms = self.end_ms
        for batch in reversed(self.batches):
            yield batch, max(0.0, next_ms - batch.began_ms)
            next_ms = batch.began_ms

    def ratios(self, number: int, subtasks: Iterable[int]) -> Ratios | None:
        """Return the ratios of some subtasks of a vertex together; None before there is anything to tell."""
        numbers = list(subtasks)
        whole_ms = (self.end_ms - self.begin_ms) * len(numbers)
        if whole_ms <= 0:
            return None
        busy_ms = waiting_ms = 0.0
        for batch, stretch_ms in self._stretches():
            by_subtask = batch.busy_ns.get(number)
            worked_ms = sum(by_subtask[subtask] for subtask in numbers) / 1e6 if by_subtask else 0.0
            busy_ms += worked_ms
            if batch.waiting:
                waiting_ms += max(0.0, stretch_ms * len(numbers) - worked_ms)
        busy = min(1.0, busy_ms / whole_ms)
        backpressured = min(1.0 - busy, waiting_ms / whole_ms)
        return Ratios(busy, 1.0 - busy - backpressured, backpressured)
