"""Measures the work of a host for its tasks: records and bytes in and out, time, hottest keys.

Work is counted per frame and per pass, never per record. The numbers of a pass go to the driver with the rest
of its report, so the numbers of a failed attempt are lost with it, and those that arrive are exact.
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

from millpond.core.codec import Frozen, thaw, thaw_all
from millpond.engine.exchange.reports import Report, WorkCounts
from millpond.state.grouping import Grouping

if TYPE_CHECKING:
    from millpond.engine.exchange.router import Router

_SAMPLE = 32  # keys; enough, because a key that matters to the job dominates its key group
_SAMPLES_OF_MANY = 16  # of as many keys each, from a shard of many key groups
_SAMPLE_EVERY = 200  # records of a shard
_COUNTED = 4096  # records of a batch at most are counted by key group; they stand for the others
_starts = cycle(range(7))
_HOTTEST = 3
_KEY_TEXT = 80
# Where to sample: a random position in each of _SAMPLE equal parts, so that the positions never coincide with
# a pattern in the keys; and not always the same positions.
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
    """What a host cannot know by itself: the time in ns since any moment (it need not be the time of day),
    how much of the memory it may use is in use (from 0 to 1; 0 if unknown), and the name of its machine."""

    clock_ns: Callable[[], int] = lambda: 0
    memory_share: Callable[[], float] = lambda: 0.0
    machine: str = ""


class WorkMeter:
    """Measures the work of one host."""

    def __init__(self, surroundings: Surroundings) -> None:
        self.clock_ns = surroundings.clock_ns
        self.memory_share = surroundings.memory_share
        self.machine = surroundings.machine
        self._untold_ns: dict[tuple[int, int], int] = {}
        self.unseen: dict[tuple[int, int], int] = {}
        """(task, shard) -> records since its keys were last sampled"""

    def begin(self, task: int, subtask: int) -> Pass:
        """Return a pass whose time starts to count now."""
        return Pass(self, task, subtask)

    def add_time(self, task: int, subtask: int, busy_ns: int) -> None:
        """Add time that a subtask has worked, for the next report that has its work."""
        self._untold_ns[task, subtask] = self._untold_ns.get((task, subtask), 0) + busy_ns

    def take_time(self, task: int, subtask: int) -> int:
        """Return the time in ns that has not been reported yet, and count from 0 again."""
        return self._untold_ns.pop((task, subtask), 0)

    def sink_work(self, sink: int, subtask: int) -> WorkCounts:
        """Return the time that a sink took since the last call. Records are counted where they come from."""
        return WorkCounts(sink, subtask, busy_ns=self.take_time(sink, subtask))


class Pass:
    """The work of one pass. Time counts from `WorkMeter.begin` on, except while others work."""

    def __init__(self, meter: WorkMeter, task: int, subtask: int) -> None:
        self._meter = meter
        self._task = task
        self._subtask = subtask
        self._since_ns = meter.clock_ns()
        self.clock_ns = meter.clock_ns
        self.records_in = 0
        self.bytes_in = 0
        self._keyed: list[tuple[int, int]] = []
        self._hottest: list[tuple[str, int]] = []
        self._records_out = 0
        self._bytes_out = 0
        self._to_sinks: dict[tuple[int, int], tuple[int, int]] = {}

    def pause(self) -> None:
        """Stop counting time, until `resume` is called."""
        self._meter.add_time(self._task, self._subtask, self._meter.clock_ns() - self._since_ns)

    def resume(self) -> None:
        """Count time again."""
        self._since_ns = self._meter.clock_ns()

    def take_keys(
        self, shard: int, grouping: Grouping | None, keys: list[Any], keyed_count: int
    ) -> None:
        """Count the records of a batch of a shard by key group, and look for the hottest keys among them.

        `grouping` is None if the shard is one key group. `keys` has an entry for every record, and
        `keyed_count` says how many of the records came by key: if they are fewer, a None among the keys is
        not a key. If batches are small, only some of them are looked at, and stand for the others."""
        if grouping is None:
            self._keyed.append((shard, keyed_count))
        else:
            self._keyed += counts_by_key_group(keys, grouping, keyed_count)
        unseen = self._meter.unseen
        before = unseen.get((self._task, shard))
        count = keyed_count + (before or 0)
        is_due = before is None or count >= _SAMPLE_EVERY
        unseen[self._task, shard] = 0 if is_due else count
        if is_due:
            samples = 1 if grouping is None else _SAMPLES_OF_MANY
            self._hottest += hottest(keys, count, keyed_count == len(keys), samples)

    def add_sent(self, router: Router) -> None:
        """Add what was sent since the router has turned to a split or label."""
        self._records_out += router.records_out
        self._bytes_out += router.bytes_out
        for target, (records, size) in router.to_sinks.items():
            before = self._to_sinks.get(target, (0, 0))
            self._to_sinks[target] = before[0] + records, before[1] + size

    def end(self, report: Report) -> None:
        """Put the counts into the report of the pass, unless no record came or went."""
        self.pause()
        if not (self.records_in or self._records_out):
            return
        meter = self._meter
        report.works.append(
            WorkCounts(
                self._task,
                self._subtask,
                self.records_in,
                self._records_out,
                self.bytes_in,
                self._bytes_out,
                meter.take_time(self._task, self._subtask),
                tuple(self._keyed),
                tuple(self._hottest),
                tuple((*target, *sent) for target, sent in self._to_sinks.items()),
                round(meter.memory_share(), 3),
                meter.machine,
            )
        )


def counts_by_key_group(
    keys: list[Any], grouping: Grouping, keyed_count: int
) -> list[tuple[int, int]]:
    """Return how many records each key group has got; an estimate from a sample if there are many records.
    `keyed_count` of them came by key; the others have the key None."""
    sample = keys if len(keys) <= _COUNTED else keys[next(_starts) :: len(keys) // _COUNTED + 1]
    if keyed_count < len(keys):
        sample = [key for key in sample if key is not None]
    if not sample:
        return []
    numbers, counts = numpy.unique(grouping.numbers(thaw_all(sample)), return_counts=True)
    scale = keyed_count / len(sample)
    return [
        (number, max(1, round(count * scale)))
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True)
    ]


def hottest(
    keys: list[Any], count: int, none_is_a_key: bool = True, samples: int = 1
) -> tuple[tuple[str, int], ...]:
    """Return the most frequent keys of a shard as text, each with an estimate, from a sample, of how
    often it came in `count` records. If there are more than a few keys, those that came only once in the
    sample are left out, because they say nothing."""
    sample = keys
    if len(keys) > _SAMPLE * samples:
        places = numpy.concatenate([(next(_places) + part) / samples for part in range(samples)])
        sample = [keys[i] for i in (places * len(keys)).astype(numpy.int64).tolist()]
    if sample and type(sample[0]) is Frozen:
        # The same object for the same bytes, because comparing two of them would mean to unpickle both.
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


def key_text(key: object) -> str:
    """Return a key as people get to see it: short, and without raising if its `repr` fails."""
    try:
        text = key if isinstance(key, str) else repr(key)
    except Exception:  # the key's class may be the user's
        text = f"a {type(key).__name__}"
    return text if len(text) <= _KEY_TEXT else text[: _KEY_TEXT - 3] + "..."
