"""Contracts of sources and sinks. A user's own source or sink implements them too."""

from __future__ import annotations

import itertools
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from millpond.datastream.functions import RuntimeContext, SinkContext
from millpond.datastream.operator_state import OpenSourceLists

RECORDS_AT_ONCE = 4096


class DeliveryGuarantee(Enum):
    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1
    NONE = 2


@dataclass
class SplitWork:
    """What one batch reads of one split. `arguments` go to `Source.read` on a worker; they are made
    durable before the batch runs, so a replay reads exactly the same."""

    split: int
    arguments: Any


class SplitEnumerator(ABC):
    """Runs on the driver and decides what each batch reads.

    All methods are called from one thread, except `wake`, which sources with threads call."""

    def __init__(self) -> None:
        self.available = threading.Event()
        # Splits that are ahead of others they are aligned with: `poll` must leave them out.
        self.paused: set[int] = set()
        # The job ends when all has been read, and may go on some day (millpond.input.stop-at-end).
        self.stops_at_end = False
        # The number of the batch that is planned, and the time.
        self.checkpoint = (0, 0)
        # Opens the lists of a source function that keeps state; set before `start`.
        self.open_lists: OpenSourceLists | None = None

    @abstractmethod
    def split_count(self) -> int:
        """Splits known so far, at least one; they are numbered from 0 and never go away."""

    @abstractmethod
    def poll(self, max_records: int) -> list[SplitWork]:
        """What can be read now, at most `max_records` records; empty if there is nothing.
        Advances the position."""

    @abstractmethod
    def position(self) -> Any:
        """A picklable description of what has been handed out, for `restore`."""

    @abstractmethod
    def restore(self, position: Any) -> None: ...

    @abstractmethod
    def ended(self) -> list[bool]:
        """For each split, whether nothing more will come after what was handed out. The input
        ends when all splits have, unless the source is endless."""

    def caught_up(self) -> bool:
        """Asked when `poll` has given nothing: True if that is all there is for now."""
        return all(self.ended())

    def backlog(self) -> int | None:
        """How many records are there that were not handed out, as the last `poll` has found it: exact, or the
        best estimate; None if nobody knows. Must not wait for anything."""
        return None

    def next_poll_in_ms(self) -> int | None:
        """When to poll again if nothing announces itself by `available`; None: only then."""
        return None

    def committed(self, epoch: int) -> None:
        """All batches up to this one count, and are visible. May be called again for the same one."""

    def start(self) -> None:
        """Called once before the first poll, after `restore` if there is something to restore."""

    def close(self) -> None:
        """Called once at the end."""


class Source(ABC):
    """A rewindable source: an enumerator on the driver, `read` on the workers.

    `bounded`: known to end, so AUTOMATIC mode may run it as a batch. `endless`: known never to."""

    bounded = True
    endless = False

    @abstractmethod
    def create_enumerator(self, parallelism: int, context: RuntimeContext) -> SplitEnumerator:
        """A new enumerator; called once per attempt at the job, on the driver."""

    @abstractmethod
    def read(self, arguments: Any) -> Iterator[tuple[Any, int | None]]:
        """The (value, timestamp or None) of one SplitWork. Must give the same again if called again."""

    def read_many(self, arguments: Any) -> Iterator[tuple[list[Any], list[int | None] | None]]:
        """The same as `read`, many at a time: (values, their timestamps; None if there are none).
        A source that can do it faster than record by record overrides this."""
        records = self.read(arguments)
        while chunk := list(itertools.islice(records, RECORDS_AT_ONCE)):
            timestamps = [timestamp for _, timestamp in chunk]
            has_none = timestamps.count(None) == len(timestamps)
            yield [value for value, _ in chunk], None if has_none else timestamps


class Sink(ABC):
    """Base of what `sink_to` takes."""


class Epoch(NamedTuple):
    """A batch, as a sink sees it. `job_id` is the same for a job that is killed and started again,
    and another one for each new run of a program; `sink_uid` tells the sinks of a job apart."""

    number: int
    job_id: str
    sink_uid: str


class SinkWriter(ABC):
    """Writes one subtask's records of one epoch."""

    takes_columns = False  # True: `write_many` may get an Arrow record batch instead of a list

    @abstractmethod
    def write(self, value: Any, context: SinkContext) -> None: ...

    def write_many(self, values: list[Any]) -> bool:
        """Write them all, if that is faster and needs no context; True if that is done. Else nothing is
        written, and `write` is called for each."""
        return False

    @abstractmethod
    def prepare(self) -> Any:
        """Make what was written durable but not visible; return a small picklable message for
        `commit`. After this nothing more is written."""

    def abort(self) -> None:
        """The epoch failed before `prepare`. Not guaranteed to be called."""


class TwoPhaseSink(Sink):
    """Exactly-once output: workers prepare; the driver writes the messages down with the epoch and
    commits them when Spark has committed the batch.

    An epoch that fails before that runs again, under the same number, with other writers; what the
    first attempt prepared is never committed. `commit` may be called again with the same messages
    after a crash and must then change nothing."""

    @abstractmethod
    def create_writer(self, subtask: int, epoch: Epoch) -> SinkWriter: ...

    @abstractmethod
    def commit(self, epoch: Epoch, messages: list[Any]) -> None: ...

    def recover(self, epoch: Epoch) -> None:
        """Called on the driver when a job starts, or starts again, before any record is written. `epoch` is
        the newest one that counts, and is committed; what later ones left behind is never committed."""

    def tick(self, epoch: Epoch, now_ms: int) -> int | None:
        """Called on the driver after every epoch, and while the job waits for input: for what depends on
        time. `epoch` is the newest that is committed. Returns in how many milliseconds to call again, or
        None: after the next epoch."""
        return None

    def finish(self, epoch: Epoch) -> None:
        """Called on the driver after the commit of the last epoch of a job, or of one with a savepoint, from
        which another job may go on: what was held back becomes visible now."""

    def close(self) -> None:
        """Called on the driver when a job ends, or before it starts again: end connections."""

    def validate(self) -> None:
        """Called on the driver before the job starts; raise ProgramError if it cannot work."""
