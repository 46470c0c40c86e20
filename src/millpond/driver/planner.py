"""Decides when the next batch begins, and what it reads."""

from __future__ import annotations

import threading
from collections.abc import Callable

from millpond.driver.alignment import Alignment
from millpond.driver.batch_size import sizer_of
from millpond.driver.clocks import Clocks
from millpond.driver.reporting.statistics import JobStatistics
from millpond.driver.savepoint_requests import SavepointRequest, SavepointRequests
from millpond.driver.sources import Ended, Reads, Sources
from millpond.engine.exchange.batch import LanePlan, LogPositions, SplitPlan, Unread
from millpond.errors import JobCancelledError
from millpond.plan.physical import JobPlan
from millpond.queryable.desk import LOOK_EVERY_MS, QueryableDesk

_IDLE_POLL_S = 0.5
_LOOK_FOR_REQUESTS_MS = 500


class BatchPlanner:
    """Plans the batches of one attempt. `clock_ms` returns processing time. Sources set `wake` when there is
    something to read; any thread may do that. `cuts_by_time`: source tasks stop reading when a batch's time
    is over."""

    def __init__(
        self,
        plan: JobPlan,
        sources: Sources,
        clocks: Clocks,
        statistics: JobStatistics,
        clock_ms: Callable[[], int],
        wake: threading.Event,
        cuts_by_time: bool = False,
    ) -> None:
        self._plan = plan
        self._sources = sources
        self._clocks = clocks
        self._statistics = statistics
        self._clock_ms = clock_ms
        self._wake = wake
        self._hurry = threading.Event()  # somebody asks for a batch that does not wait for a pause
        self._cancelled = threading.Event()
        self._alignment = Alignment(plan)
        self.cuts_by_time = cuts_by_time
        self._credits = sizer_of(plan.settings, cuts_by_time)
        self._statistics.set_credits(self._credits.limit)
        self.time_ms = 0
        """The processing time of the newest planned batch."""
        self.completed_ms = 0
        """When the newest complete batch was complete."""
        self.wakeup_ms: int | None = None
        """When a batch is due although no record has arrived."""
        self.ended: Ended = {}
        """Which splits had ended when the newest batch was planned."""
        self.stops = False
        """Whether the job stops after the batch that is planned, because it has read all there is."""
        self.output_due_ms: int | None = None
        """In how many milliseconds a sink has something to do; None if none has."""

    def cancel(self) -> None:
        """Make `await_work` raise JobCancelledError, at once if it is waiting. Any thread may call this."""
        self._cancelled.set()
        self.hurry()

    def hurry(self) -> None:
        """Make `await_work` look at once whether somebody wants a batch. Any thread may call this."""
        self._hurry.set()
        self._wake.set()

    def learn(self) -> None:
        """Adjust the credits to how long the newest batch took, once its output is visible."""
        committed = self._statistics.batch_is_committed()
        if committed is not None:
            self._credits.took(*committed)
            self._statistics.set_credits(self._credits.limit)

    def await_work(
        self,
        epoch: int,
        requests: SavepointRequests,
        queries: QueryableDesk,
        tick: Callable[[int], int | None],
    ) -> Reads:
        """Block until a source has something to read, a timer is due, a split has ended, or somebody asks for
        a batch. Return what the batch reads. Raises JobCancelledError once the job is cancelled. Meanwhile,
        `tick` lets sinks act on time; it returns in how many milliseconds it must be called again."""
        while True:
            self._wake.clear()
            if self._cancelled.is_set():
                raise JobCancelledError("The job was cancelled.")
            now_ms = self._clock_ms()
            pause_ms = self._pause_ms(now_ms)
            if pause_ms <= 0 or requests.is_waiting():
                # A savepoint does not wait for anything to be read.
                at_once = self.cuts_by_time and requests.is_waiting()
                reads = {} if at_once else self._poll(epoch, now_ms)
                ended = self._sources.ended()
                self.stops = not at_once and self._is_to_stop(reads, ended)
                is_due = self.wakeup_ms is not None and now_ms >= self.wakeup_ms
                is_wanted = at_once or requests.is_waiting() or queries.wants_batch()
                ends = self._newly_ended(ended) or self._sources.are_over(ended)
                if reads or is_due or is_wanted or ends or self.stops:
                    return reads
            if self.output_due_ms is not None:
                self.output_due_ms = tick(now_ms)
            if pause_ms > 0:
                self._rest(pause_ms)
            else:
                self._wake.wait(self._wait_s(now_ms, queries.has_states))

    def _pause_ms(self, now_ms: int) -> int:
        """Return how long the settings want the job to pause before a batch that takes no savepoint."""
        settings = self._plan.settings
        return max(
            settings.batch_interval_ms - abs(now_ms - self.time_ms),
            settings.min_pause_ms - abs(now_ms - self.completed_ms),
        )

    def _poll(self, epoch: int, now_ms: int) -> Reads:
        paused = self._alignment.paused(self._clocks.channels, self.ended)
        reads = self._sources.poll(epoch, now_ms, self._credits.limit, paused)
        self._statistics.note_backlog(self._sources.backlogs())
        return reads

    def _is_to_stop(self, reads: Reads, ended: Ended) -> bool:
        return (
            self._plan.settings.stop_at_end
            and not reads
            and self._sources.have_caught_up()
            and not self._sources.are_over(ended)
        )

    def _newly_ended(self, ended: Ended) -> bool:
        for source, flags in ended.items():
            known = self.ended.get(source, [])
            if any(flag and known[i : i + 1] != [True] for i, flag in enumerate(flags)):
                return True
        return False

    def _rest(self, pause_ms: int) -> None:
        """Let a pause pass, or a part of it. Records that arrive do not end it."""
        due_ms = pause_ms if self.output_due_ms is None else min(pause_ms, self.output_due_ms)
        self._hurry.wait(min(due_ms, _LOOK_FOR_REQUESTS_MS) / 1000)
        self._hurry.clear()

    def _wait_s(self, now_ms: int, has_queryable_states: bool) -> float:
        waits = self._sources.next_polls_ms()
        if self.wakeup_ms is not None:
            waits.append(max(0, self.wakeup_ms - now_ms))
        if has_queryable_states:
            waits.append(LOOK_EVERY_MS)
        if self.output_due_ms is not None:
            waits.append(self.output_due_ms)
        return min(waits) / 1000 if waits else _IDLE_POLL_S

    def lanes(
        self,
        epoch: int,
        reads: Reads,
        request: SavepointRequest | None,
        is_last: bool,
        logs: LogPositions,
    ) -> list[LanePlan]:
        """Return the lanes of a batch that builds upon `logs`, with the splits of all sources dealt out to
        them in turn."""
        settings = self._plan.settings
        staging = None if request is None else str(request.staging)
        goes_to_newest = self.stops and settings.advance_at_end
        event_time = self._clocks.newest_time_ms() if goes_to_newest else None
        lanes = [
            LanePlan(
                epoch,
                lane,
                self.time_ms,
                [],
                self._clocks.starts,
                is_last,
                staging,
                event_time,
                read_ms=round(self._credits.target_ms) if self.cuts_by_time else None,
            )
            for lane in range(settings.lanes)
        ]
        lanes[0].logs = logs
        for number, (source, split) in enumerate(self._sources.splits()):
            to_read = reads.get((source, split), Unread([]))
            lanes[number % settings.lanes].splits.append(
                SplitPlan(
                    source,
                    split,
                    to_read.reads,
                    self.ended[source][split],
                    self._clocks.generators.get((source, split), {}),
                    to_read.skipped,
                )
            )
        return lanes
