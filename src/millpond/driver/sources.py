"""The sources of a job as the driver sees them: their enumerators, driven together."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping

from millpond.datastream.connectors.base import SplitEnumerator
from millpond.engine.context import TaskClock, TaskRuntimeContext
from millpond.engine.exchange.batch import Unread, UnreadSplits
from millpond.engine.exchange.reports import Split
from millpond.engine.metric_group import TaskMetrics
from millpond.errors import ProgramError
from millpond.plan.physical import JobPlan
from millpond.state.source_lists import SourceLists

_log = logging.getLogger(__name__)
Reads = UnreadSplits
"""split -> what a batch reads of it"""
Ended = dict[int, list[bool]]
"""source -> for each split, whether nothing more comes"""


class Sources:
    """One enumerator per source. `wake` is set when one of them has something to read."""

    def __init__(self, plan: JobPlan, wake: threading.Event) -> None:
        self._plan = plan
        self._wake = wake
        self._enumerators: dict[int, SplitEnumerator] = {}
        self._unread: UnreadSplits = {}

    def open(self) -> None:
        """Create the enumerators. They do nothing until `start`, so that they can be restored."""
        for task in self._plan.source_tasks:
            operator = self._plan.operators[task.root]
            context = TaskRuntimeContext(
                operator, TaskClock(), TaskMetrics(), 0, False, self._plan.job_parameters
            )
            enumerator = operator.function.create_enumerator(task.parallelism, context)
            enumerator.available = self._wake
            enumerator.stops_at_end = self._plan.settings.stop_at_end
            enumerator.open_lists = SourceLists
            self._enumerators[task.root] = enumerator

    def restore(self, positions: Mapping[int, object], unread: UnreadSplits) -> None:
        """Set sources to where they were, and what they had handed out to what was not read of it. Called
        between `open` and `start`."""
        for source, position in positions.items():
            self._enumerators[source].restore(position)
        self._unread = dict(unread)

    def start(self) -> None:
        """Let every source begin to look for records, from where it was restored."""
        for enumerator in self._enumerators.values():
            enumerator.start()

    def poll(self, epoch: int, now_ms: int, limit: int, paused: Mapping[int, set[int]]) -> Reads:
        """Return what the batch `epoch` can read now: what earlier batches have left, and otherwise at most
        `limit` records per source; nothing of the splits that are paused."""
        reads: Reads = {}
        for source, enumerator in self._enumerators.items():
            stopped = paused.get(source, set())
            behind = self._take_unread(source, stopped, reads)
            enumerator.paused = stopped | behind
            enumerator.checkpoint = (epoch, now_ms)
            if len(enumerator.paused) == enumerator.split_count():
                continue
            for work in enumerator.poll(limit):
                reads.setdefault((source, work.split), Unread([])).reads.append(work.arguments)
        return reads

    def _take_unread(self, source: int, stopped: set[int], reads: Reads) -> set[int]:
        """Move what earlier batches have left of a source to `reads`. Return the splits that have such."""
        behind: set[int] = set()
        # In this order, what is left under the number of a split is taken before what splits that are gone
        # have left to it. So that number is free when something is given back.
        for split in sorted(split for own, split in self._unread if own == source):
            now = self._read_by(source, split)
            behind.add(now)
            if now not in stopped and (source, now) not in reads:
                reads[source, now] = self._unread.pop((source, split))
        return behind

    def _read_by(self, source: int, split: int) -> int:
        """Return which split reads what is left of a split: after a restore, there may be fewer of them."""
        return split % self._enumerators[source].split_count()

    def give_back(self, unread: UnreadSplits) -> None:
        """Keep what a batch has left unread, for the next one."""
        assert not self._unread.keys() & unread.keys(), "what is left of a split would be lost"
        self._unread |= unread

    @property
    def unread(self) -> UnreadSplits:
        """What was handed out and is not read, nor part of the batch that is planned."""
        return dict(self._unread)

    def backlogs(self) -> Iterable[int | None]:
        """Return, for each source, how many records it has that no batch was given; None if it cannot
        tell."""
        return (enumerator.backlog() for enumerator in self._enumerators.values())

    def ended(self) -> Ended:
        """Return which splits of each source give no further records."""
        behind = {(source, self._read_by(source, split)) for source, split in self._unread}
        return {
            source: [
                flag and (source, split) not in behind
                for split, flag in enumerate(enumerator.ended())
            ]
            for source, enumerator in self._enumerators.items()
        }

    def are_over(self, ended: Ended) -> bool:
        """Return whether no source can ever give another record, now that these splits have ended."""
        return all(
            all(splits) and not self._plan.operators[source].function.endless
            for source, splits in ended.items()
        )

    def have_caught_up(self) -> bool:
        """Return whether, after a poll that gave nothing, there is nothing more to read for now."""
        return not self._unread and all(
            enumerator.caught_up() for enumerator in self._enumerators.values()
        )

    def positions(self) -> dict[int, object]:
        """Return where each source is, for `restore`: after everything that was handed out."""
        return {source: enumerator.position() for source, enumerator in self._enumerators.items()}

    def splits(self) -> list[Split]:
        """Return all splits known so far, source after source."""
        return [
            (source, split)
            for source, enumerator in self._enumerators.items()
            for split in range(enumerator.split_count())
        ]

    def split_count(self, source: int) -> int:
        """Return how many splits a source has. Raises ProgramError if it has none."""
        count = self._enumerators[source].split_count()
        if count < 1:
            name = self._plan.operators[source].name
            raise ProgramError(f"Source '{name}' has no splits; a source must have at least one.")
        return count

    def next_polls_ms(self) -> list[int]:
        """Return in how many milliseconds those sources want to be polled that do not set `wake`."""
        polls = (enumerator.next_poll_in_ms() for enumerator in self._enumerators.values())
        return [poll_ms for poll_ms in polls if poll_ms is not None]

    def committed(self, epoch: int) -> None:
        """Tell every source that the batches up to `epoch` count."""
        for enumerator in self._enumerators.values():
            enumerator.committed(epoch)

    def close(self) -> None:
        """Close every source. What one of them raises is logged only: the job has ended already, and how it
        ended must not be hidden."""
        for source, enumerator in self._enumerators.items():
            try:
                enumerator.close()
            except Exception as problem:
                name = self._plan.operators[source].name
                _log.warning("Source '%s' failed while it was closed: %r", name, problem)
