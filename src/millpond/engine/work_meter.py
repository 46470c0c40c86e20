"""What a host does for a task: records and bytes in and out, time, hottest keys.

Counted per frame and per pass, never per record. The numbers of a pass go to the driver with its other
messages, so those of an attempt that fails are lost with it, and those that arrive are exact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle
from operator import itemgetter
from random import Random
from typing import TYPE_CHECKING, Any

import numpy

from millpond.core.codec import Frozen, thaw
from millpond.engine.exchange.reports import Report, WorkCounts

if TYPE_CHECKING:
    from millpond.engine.exchange.router import Router

_SAMPLE = 32  # keys; one that matters to the job dominates its key group
_SAMPLE_EVERY = 200  # records of a key group
_HOTTEST = 3
_KEY_TEXT = 80
# Where to look: one place in each of so many equal parts, by chance, so that it is never in step with a
# pattern of keys; and not always the same places.
_chance = Random(7)
_places = cycle(
    [
        numpy.array([(part + _chance.random()) / _SAMPLE for part in range(_SAMPLE)])
        for _ in range(16)
    ]
)
_times = itemgetter(0)


@dataclass(frozen=True)
class Surroundings:
    """What a host cannot know by itself: time in ns from any start (it need not be the time of day), the
    share of the memory it may use that is in use (0: unknown), and the name of its machine."""

    clock_ns: Callable[[], int] = lambda: 0
    memory_share: Callable[[], float] = lambda: 0.0
    machine: str = ""


class WorkMeter:
    """One for each host."""

    def __init__(self, surroundings: Surroundings) -> None:
        self.clock_ns = surroundings.clock_ns
        self.memory_share = surroundings.memory_share
        self.machine = surroundings.machine
        self._untold_ns: dict[tuple[int, int], int] = {}
        self.unseen: dict[tuple[int, int], int] = {}  # records since the keys were looked at

    def begin(self, task: int, subtask: int) -> Pass:
        return Pass(self, task, subtask)

    def add_time(self, task: int, subtask: int, busy_ns: int) -> None:
        self._untold_ns[task, subtask] = self._untold_ns.get((task, subtask), 0) + busy_ns

    def take_time(self, task: int, subtask: int) -> int:
        """What was not told yet."""
        return self._untold_ns.pop((task, subtask), 0)

    def sink_work(self, sink: int, subtask: int) -> WorkCounts:
        """The time a sink took; its records are counted where they come from."""
        return WorkCounts(sink, subtask, busy_ns=self.take_time(sink, subtask))


class Pass:
    """Time counts from `begin` on, without the pauses in which others work."""

    def __init__(self, meter: WorkMeter, task: int, subtask: int) -> None:
        self._meter = meter
        self._task = task
        self._subtask = subtask
        self._since_ns = meter.clock_ns()
        self.records_in = 0
        self.bytes_in = 0
        self._keyed: tuple[int, int] | None = None
        self._hottest: tuple[tuple[str, int], ...] = ()

    def pause(self) -> None:
        self._meter.add_time(self._task, self._subtask, self._meter.clock_ns() - self._since_ns)

    def resume(self) -> None:
        self._since_ns = self._meter.clock_ns()

    def take_keys(self, key_group: int, keys: list[Any], keyed_count: int) -> None:
        """The keys of all records of a key group. If fewer have one, None among them is no key. When many
        batches are small, some stand for all."""
        self._keyed = (key_group, keyed_count)
        unseen = self._meter.unseen
        before = unseen.get((self._task, key_group))
        count = keyed_count + (before or 0)
        is_due = before is None or count >= _SAMPLE_EVERY
        unseen[self._task, key_group] = 0 if is_due else count
        if is_due:
            self._hottest = hottest(keys, count, none_is_a_key=keyed_count == len(keys))

    def end(self, router: Router, report: Report) -> None:
        """Put the counts into the pass's report, unless it is empty and no record came or went."""
        self.pause()
        if not (report or self.records_in or router.records_out):
            return
        meter, sinks = self._meter, router.to_sinks
        report.work = WorkCounts(
            self._task,
            self._subtask,
            self.records_in,
            router.records_out,
            self.bytes_in,
            router.bytes_out,
            meter.take_time(self._task, self._subtask),
            self._keyed,
            self._hottest,
            tuple((*target, *sent) for target, sent in sinks.items()) if sinks else (),
            round(meter.memory_share(), 3),
            meter.machine,
        )


def hottest(keys: list[Any], count: int, none_is_a_key: bool = True) -> tuple[tuple[str, int], ...]:
    """The most frequent keys of a key group, as text, with how often they came in `count` records: estimated
    from a sample. Where there are more than a few, a key that came once says nothing, and is left out."""
    sample = keys
    if len(keys) > _SAMPLE:
        sample = [keys[i] for i in (next(_places) * len(keys)).astype(numpy.int64).tolist()]
    if sample and type(sample[0]) is Frozen:
        # The same object for the same bytes: to compare two of them would mean to read both.
        same: dict[bytes, Any] = {}
        sample = [same.setdefault(key.data, key) if type(key) is Frozen else key for key in sample]
    counts = Counter(sample)
    least = 1 if len(keys) <= _HOTTEST else 2
    if least == 2 and len(counts) == len(sample):
        return ()
    if not none_is_a_key:
        counts.pop(None, None)
    found = [(times, key) for key, times in counts.items() if times >= least]
    found.sort(key=_times, reverse=True)
    scale = count / max(1, sum(counts.values()))
    return tuple((key_text(thaw(key)), round(times * scale)) for times, key in found[:_HOTTEST])


def key_text(key: Any) -> str:
    """What people get to see of a key."""
    try:
        text = key if isinstance(key, str) else repr(key)
    except Exception:  # a class of the user's
        text = f"a {type(key).__name__}"
    return text if len(text) <= _KEY_TEXT else text[: _KEY_TEXT - 3] + "..."
