"""Records on their way through a task: columns of equal length, so that work is done per column.

A record's *place* is (clock, phase, sequence). The clock is the event time at which the record came to be.
The phase tells what caused it: 0 a processing-time timer before the batch's records, 1 a record, 2 an
event-time timer, 3 a processing-time timer after the batch's records. The sequence is its number in the
split. Whatever a record or a timer causes inherits its place. Bundles are sorted by place.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy

from millpond.common.time import MIN_TIMESTAMP
from millpond.core.codec import thaw_all
from millpond.core.columns import Numbers, concatenate, take_list
from millpond.core.record_columns import Values, as_list, cut, join, take

PHASE_BEFORE, PHASE_RECORD, PHASE_EVENT_TIMER, PHASE_AFTER = range(4)
Place = tuple[int, int, int]


class Bundle:
    """Records as columns of equal length.

    `values` is a list or columns (record_columns.py). `timestamps` is None if no record has one, otherwise a
    list or an array. `clocks` and `phases` are a single number if they are the same for all records. `keys`
    and `inputs` are set where a task takes records in: the keys of a keyed stream, and the number of the
    input each record came from (a single number if there is only one)."""

    __slots__ = ("clocks", "inputs", "keys", "phases", "sequences", "timestamps", "values")

    def __init__(
        self,
        values: Values,
        timestamps: list[int | None] | Numbers | None,
        clocks: int | Numbers,
        phases: int | Numbers,
        sequences: Numbers,
        keys: list[Any] | None = None,
        inputs: int | list[int] = 0,
    ) -> None:
        self.values = values
        self.timestamps = timestamps
        self.clocks = clocks
        self.phases = phases
        self.sequences = sequences
        self.keys = keys
        self.inputs = inputs

    def __len__(self) -> int:
        return len(self.values)

    def place(self, position: int) -> Place:
        """Return the place of the record at `position`."""
        clocks, phases = self.clocks, self.phases
        return (
            clocks if isinstance(clocks, int) else int(clocks[position]),
            phases if isinstance(phases, int) else int(phases[position]),
            int(self.sequences[position]),
        )

    def with_values(self, values: Values) -> Bundle:
        """Return the same records with other values, without keys and inputs."""
        return Bundle(values, self.timestamps, self.clocks, self.phases, self.sequences)

    def take(self, positions: list[int] | Numbers, values: Values) -> Bundle:
        """Return `values`, each in the place of the record at the same index of `positions`."""
        order = numpy.asarray(positions, numpy.int64)
        return Bundle(
            values,
            None if self.timestamps is None else take(self.timestamps, order),
            self.clocks if isinstance(self.clocks, int) else self.clocks[order],
            self.phases if isinstance(self.phases, int) else self.phases[order],
            self.sequences[order],
        )

    def reordered(self, order: Numbers) -> Bundle:
        """Return the records at the positions in `order`, in that order."""
        return Bundle(
            take(self.values, order),
            None if self.timestamps is None else take(self.timestamps, order),
            self.clocks if isinstance(self.clocks, int) else self.clocks[order],
            self.phases if isinstance(self.phases, int) else self.phases[order],
            self.sequences[order],
            None if self.keys is None else take_list(self.keys, order),
            self.inputs if isinstance(self.inputs, int) else take_list(self.inputs, order),
        )

    def piece(self, start: int, end: int) -> Bundle:
        """Return the records from `start` to `end - 1`."""
        return Bundle(
            cut(self.values, start, end),
            None if self.timestamps is None else self.timestamps[start:end],
            self.clocks if isinstance(self.clocks, int) else self.clocks[start:end],
            self.phases if isinstance(self.phases, int) else self.phases[start:end],
            self.sequences[start:end],
            None if self.keys is None else self.keys[start:end],
            self.inputs if isinstance(self.inputs, int) else self.inputs[start:end],
        )

    def within(self, low: int, high: int) -> Bundle:
        """Return the same records with all clocks between `low` and `high`, still sorted by place."""
        clocks = numpy.clip(self.clocks, low, high)
        if isinstance(self.clocks, int):
            return Bundle(
                self.values,
                self.timestamps,
                int(clocks),
                self.phases,
                self.sequences,
                self.keys,
                self.inputs,
            )
        phases = numpy.broadcast_to(numpy.asarray(self.phases), clocks.shape)
        sequences = self.sequences
        same = clocks[1:] == clocks[:-1]
        back = same & (
            (phases[1:] < phases[:-1])
            | ((phases[1:] == phases[:-1]) & (sequences[1:] < sequences[:-1]))
        )
        if back.any():
            places = zip(clocks.tolist(), phases.tolist(), sequences.tolist(), strict=True)
            sorted_places = numpy.array(list(itertools.accumulate(places, max)), numpy.int64)
            clocks, phases, sequences = sorted_places.T
        return Bundle(
            self.values, self.timestamps, clocks, phases, sequences, self.keys, self.inputs
        )

    @staticmethod
    def joined(bundles: list[Bundle]) -> Bundle:
        """Return the records of all bundles, one bundle after the other."""
        if len(bundles) == 1:
            return bundles[0]
        lengths = [len(bundle) for bundle in bundles]
        timestamps = keys = None
        if any(bundle.timestamps is not None for bundle in bundles):
            timestamps = join(
                [[None] * len(b) if b.timestamps is None else b.timestamps for b in bundles]
            )
        if any(bundle.keys is not None for bundle in bundles):
            keys = concatenate([b.keys or [None] * len(b) for b in bundles])
        inputs = _join_numbers([bundle.inputs for bundle in bundles], lengths)
        return Bundle(
            join([bundle.values for bundle in bundles]),
            timestamps,
            _join_numbers([bundle.clocks for bundle in bundles], lengths),
            _join_numbers([bundle.phases for bundle in bundles], lengths),
            numpy.concatenate([bundle.sequences for bundle in bundles]),
            keys,
            inputs if isinstance(inputs, int) else inputs.tolist(),
        )

    def open_values(self) -> list[Any]:
        """Return the values as a list that functions may be given: frozen values are thawed into copies."""
        return thaw_all(as_list(self.values))

    def each_timestamp(self) -> Iterable[int | None]:
        """Return the timestamp of each record. Endless (always None) if no record has one."""
        return itertools.repeat(None) if self.timestamps is None else as_list(self.timestamps)

    def each_clock(self) -> Iterable[int]:
        """Return the clock of each record's place. Endless if it is the same for all records."""
        return (
            itertools.repeat(self.clocks) if isinstance(self.clocks, int) else self.clocks.tolist()
        )

    def each_watermark(self) -> Iterable[int]:
        """Return the event-time clock that a function sees at each record. Endless if it is always the same.

        A timer for t fires when the clock is at t, but the place of its results is just before t."""
        clocks, phases = self.clocks, self.phases
        if isinstance(clocks, int) and isinstance(phases, int):
            return itertools.repeat(clocks + (phases == PHASE_EVENT_TIMER))
        after = numpy.equal(phases, PHASE_EVENT_TIMER).astype(numpy.int64)
        return (clocks + after).tolist()  # type: ignore[no-any-return]


class BundleBuilder:
    """Collects results one by one, each with its place. Places never go back."""

    __slots__ = ("_clocks", "_last", "_phases", "_sequences", "_timestamps", "_values")

    def __init__(self) -> None:
        self._last: Place = (MIN_TIMESTAMP, 0, 0)
        self._values: list[Any] = []
        self._timestamps: list[int | None] = []
        self._clocks: list[int] = []
        self._phases: list[int] = []
        self._sequences: list[int] = []

    def add(self, value: object, timestamp: int | None, place: Place) -> None:
        """Add a result. If its place is before that of the previous result, it gets the previous place."""
        if place < self._last:
            place = self._last
        else:
            self._last = place
        self._values.append(value)
        self._timestamps.append(timestamp)
        clock, phase, sequence = place
        self._clocks.append(clock)
        self._phases.append(phase)
        self._sequences.append(sequence)

    def build(self) -> Bundle | None:
        """Return what was collected, or None if there is nothing. The builder is empty afterwards."""
        values, timestamps = self._values, self._timestamps
        if not values:
            return None
        bundle = Bundle(
            values,
            None if timestamps.count(None) == len(timestamps) else timestamps,
            one_or_all(self._clocks),
            one_or_all(self._phases),
            numpy.array(self._sequences, numpy.int64),
        )
        self.__init__()  # type: ignore[misc]
        return bundle


def _join_numbers(parts: Sequence[int | Numbers | list[int]], lengths: list[int]) -> int | Numbers:
    first = parts[0]
    if isinstance(first, int) and all(isinstance(p, int) and p == first for p in parts):
        return first
    arrays = [
        numpy.full(length, part, numpy.int64) if isinstance(part, int) else part
        for part, length in zip(parts, lengths, strict=True)
    ]
    return numpy.concatenate(arrays)


def one_or_all(numbers: list[int]) -> int | Numbers:
    """Return the number that all of `numbers` are equal to, or an array if they differ."""
    first = numbers[0]
    if numbers.count(first) == len(numbers):
        return first
    return numpy.array(numbers, numpy.int64)
