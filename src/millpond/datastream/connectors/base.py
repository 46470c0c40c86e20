"""The contracts of sources and sinks, for users who write their own too."""

from __future__ import annotations

import itertools
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, NamedTuple

from millpond.common.type_variables import IN
from millpond.datastream.functions import RuntimeContext, SinkContext
from millpond.datastream.operator_state import OpenSourceLists

RECORDS_AT_ONCE = 4096


class DeliveryGuarantee(Enum):
    """How often a record may reach the target of a sink."""

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1
    NONE = 2


@dataclass
class SplitWork:
    """What one batch reads of one split.

    `arguments` go to `Source.read` on a worker. They are made durable before the batch runs, so that a
    batch that runs again is handed the same; it may stop reading elsewhere if its time is over.
    """

    split: int
    arguments: Any


class SplitEnumerator(ABC):
    """Runs on the driver and decides what each batch reads.

    All methods are called from one thread. A source with threads of its own sets the event `available` when
    there is something to read.
    """

    def __init__(self) -> None:
        self.available = threading.Event()
        # Splits that are too far ahead of those they are aligned with: `poll` must leave them out.
        self.paused: set[int] = set()
        # The job ends when everything has been read, and may resume later (millpond.input.stop-at-end).
        self.stops_at_end = False
        # The number of the batch being planned, and the processing time.
        self.checkpoint = (0, 0)
        # Opens the lists of a source function that keeps state; set before `start`.
        self.open_lists: OpenSourceLists | None = None

    @abstractmethod
    def split_count(self) -> int:
        """Return the number of splits known so far, at least one; they are numbered from 0 and never go
        away."""

    @abstractmethod
    def poll(self, max_records: int) -> list[SplitWork]:
        """Return what can be read now, at most `max_records` records; empty if there is nothing. Advance
        the position."""

    @abstractmethod
    def position(self) -> object:
        """Return a picklable description of what has been handed out, for `restore`."""

    @abstractmethod
    def restore(self, position: Any) -> None:
        """Continue after what `position` returned earlier. Called before `start`."""

    @abstractmethod
    def ended(self) -> list[bool]:
        """Return for each split whether nothing more will come after what was handed out.

        The input ends when all splits have ended, unless the source is endless.
        """

    def caught_up(self) -> bool:
        """Return True if there is nothing more for now. Asked after `poll` has returned nothing."""
        return all(self.ended())

    def backlog(self) -> int | None:
        """Return how many records were available but not handed out at the last `poll`: exactly, or the best
        estimate.

        None means unknown. It must not wait for anything.
        """
        return None

    def next_poll_in_ms(self) -> int | None:
        """Return when to poll again if `available` is not set before; None means only when it is set."""
        return None

    def committed(self, epoch: int) -> None:
        """React to the commit of all batches up to this one. May be called again for the same one."""

    def start(self) -> None:
        """Prepare. Called once before the first poll, after `restore` if there is something to restore."""

    def close(self) -> None:
        """Release everything. Called once at the end."""


class Source(ABC):
    """A source that can read the same records again: an enumerator on the driver, `read` on the workers.

    `bounded`: known to end, so AUTOMATIC mode may run it as a batch. `endless`: known never to end.
    """

    bounded = True
    endless = False

    @abstractmethod
    def create_enumerator(self, parallelism: int, context: RuntimeContext) -> SplitEnumerator:
        """Return a new enumerator. Called once per attempt, on the driver."""

    @abstractmethod
    def read(self, arguments: Any) -> Iterator[tuple[Any, int | None]]:
        """Yield (value, timestamp or None) for one SplitWork. It must give the same again when called
        again."""

    def read_many(self, arguments: Any) -> Iterator[tuple[list[Any], list[int | None] | None]]:
        """Yield what `read` does, many records at a time: (values, their timestamps, or None if there are
        none).

        Override it if many records can be read faster at once.
        """
        records = self.read(arguments)
        while chunk := list(itertools.islice(records, RECORDS_AT_ONCE)):
            timestamps = [timestamp for _, timestamp in chunk]
            has_none = timestamps.count(None) == len(timestamps)
            yield [value for value, _ in chunk], None if has_none else timestamps

    def rest(self, arguments: Any, done: int) -> tuple[Any, int]:
        """Return what is left of the newest read after its first `done` records: the arguments of another
        read, and how many of its first records to skip.

        Called on the worker when a batch ends in the middle of a read. Override it if records that have been
        read may disappear, as in a compacted topic: skipping as many would then skip the wrong ones.
        """
        return arguments, done


class Sink(ABC):
    """Base class of what `DataStream.sink_to` takes."""


class Epoch(NamedTuple):
    """A batch, as a sink sees it.

    `job_id` stays the same when a job is killed and started again, and differs for every new run of a
    program; `sink_uid` distinguishes the sinks of a job.
    """

    number: int
    job_id: str
    sink_uid: str


class SinkWriter(ABC, Generic[IN]):
    """Writes the records of one subtask in one epoch."""

    takes_columns = False  # True: `write_many` may get an Arrow record batch instead of a list

    @abstractmethod
    def write(self, value: IN, context: SinkContext) -> None:
        """Write a record."""

    def write_many(self, values: list[IN]) -> bool:
        """Write all values and return True, if that is faster and needs no context.

        Otherwise write nothing and return False: then `write` is called for each.
        """
        return False

    @abstractmethod
    def prepare(self) -> object:
        """Make what was written durable but not visible; return a small picklable message for `commit`.

        Nothing is written after this.
        """

    def abort(self) -> None:
        """Clean up after an epoch that failed before `prepare`. Not guaranteed to be called."""


class TwoPhaseSink(Sink):
    """Exactly-once output: workers prepare, and the driver commits once the batch counts.

    The driver stores the workers' messages with the epoch. An epoch that fails before that runs again, under
    the same number, with other writers; what the first attempt prepared is never committed. `commit` may be
    called again with the same messages after a crash, and must then change nothing.
    """

    @abstractmethod
    def create_writer(self, subtask: int, epoch: Epoch) -> SinkWriter:
        """Return a writer for a subtask and epoch. Called on a worker."""

    @abstractmethod
    def commit(self, epoch: Epoch, messages: list[Any]) -> None:
        """Make visible what the writers of an epoch prepared. Called on the driver, possibly more than
        once."""

    def recover(self, epoch: Epoch) -> None:
        """Clean up what later epochs left behind: it is never committed.

        Called on the driver when a job starts, or starts again, before any record is written. `epoch` is the
        newest one that counts, and it is committed.
        """

    def tick(self, epoch: Epoch, now_ms: int) -> int | None:
        """Do what depends on time; return in how many milliseconds to call again, or None for after the next
        epoch.

        Called on the driver after every epoch, and while the job waits for input. `epoch` is the newest
        committed one.
        """
        return None

    def finish(self, epoch: Epoch) -> None:
        """Make visible what was held back.

        Called on the driver after the commit of a job's last epoch, or of one with a savepoint, from which
        another job may continue.
        """

    def close(self) -> None:
        """Close connections. Called on the driver when a job ends, or before it starts again."""

    def validate(self) -> None:
        """Raise ProgramError if the sink cannot work. Called on the driver before the job starts."""
