"""Results of many windows, each with its place; built column by column."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy

from millpond.datastream.output_tag import OutputTag
from millpond.runtime.task.bundle import Bundle
from millpond.runtime.task.codec import freeze
from millpond.runtime.task.columns import Numbers, take_list
from millpond.runtime.task.operators import is_tagged


class PlacedResults:
    """`add` takes results; `stamp` then says where all of them belong that came since the last stamp."""

    def __init__(self) -> None:
        self._values: list[Any] = []
        self._ends: list[int] = []  # of the values of each stamp
        self._timestamps: list[int] = []
        self._clocks: list[int] = []
        self._phases: list[int] = []
        self._sequences: list[int] = []
        self._sides: dict[str, tuple[list[Any], list[int]]] = {}  # values, the stamp of each

    def add(self, results: Iterable[Any]) -> None:
        # Frozen at once: the function may change one before it yields the next.
        for result in results:
            if is_tagged(result):
                self.add_side(*result)
            else:
                self._values.append(freeze(result))

    def add_side(self, tag: OutputTag, value: Any) -> None:
        values, stamps = self._sides.setdefault(tag.tag_id, ([], []))
        values.append(freeze(value))
        stamps.append(len(self._ends))

    def stamp(self, timestamp: int, clock: int, phase: int, sequence: int) -> None:
        self._ends.append(len(self._values))
        self._timestamps.append(timestamp)
        self._clocks.append(clock)
        self._phases.append(phase)
        self._sequences.append(sequence)

    def bundles(self) -> Iterator[tuple[str | None, Bundle]]:
        """(output tag, results in the order of their places); None is the main output."""
        if not self._ends:
            return
        columns = (self._timestamps, self._clocks, self._phases, self._sequences)
        stamps = numpy.array(columns, numpy.int64)
        for tag, (values, numbers) in self._sides.items():
            yield tag, _bundle(values, stamps[:, numbers])
        if self._values:
            ends = numpy.array([0, *self._ends], numpy.int64)
            yield None, _bundle(self._values, numpy.repeat(stamps, ends[1:] - ends[:-1], axis=1))


def _bundle(values: list[Any], stamps: Numbers) -> Bundle:
    order = numpy.lexsort(stamps[:0:-1])
    if (order[1:] < order[:-1]).any():
        stamps, values = stamps[:, order], take_list(values, order)
    timestamps, clocks, phases, sequences = stamps
    return Bundle(values, timestamps, clocks, phases, sequences)
