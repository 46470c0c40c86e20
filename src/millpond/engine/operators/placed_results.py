"""Results of many windows, each with its place; built column by column."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy

from millpond.core.bundle import PHASE_EVENT_TIMER, Bundle, Place
from millpond.core.codec import ATOMS, freeze
from millpond.datastream.output_tag import OutputTag
from millpond.engine.operators.base import is_tagged


class PlacedResults:
    """`add` and `add_at` take what a function returned for one window: when event time came to its end, or
    at the place of a record that came late."""

    def __init__(self, watermark: int) -> None:
        self._watermark = watermark  # before the first result
        self._outputs: dict[str | None, _Output] = {None: _Output()}
        self._main = self._outputs[None]

    def add(self, results: Iterable[Any], timestamp: int) -> None:
        # Frozen at once: the function may change one before it yields the next.
        main = self._main
        for result in results:
            if type(result) not in ATOMS:
                if is_tagged(result):
                    self._side(result[0]).add(result[1], timestamp)
                    continue
                result = freeze(result)
            main.values.append(result)
            main.timestamps.append(timestamp)

    def add_at(self, results: Iterable[Any], timestamp: int, place: Place) -> None:
        for result in results:
            if is_tagged(result):
                self.add_side_at(result[0], result[1], timestamp, place)
            else:
                self._main.add_at(result, timestamp, place)

    def add_side_at(self, tag: OutputTag, value: Any, timestamp: int, place: Place) -> None:
        self._side(tag).add_at(value, timestamp, place)

    def _side(self, tag: OutputTag) -> _Output:
        return self._outputs.setdefault(tag.tag_id, _Output())

    def bundles(self) -> Iterator[tuple[str | None, Bundle]]:
        """(output tag, results in the order of their places); None is the main output."""
        for tag, output in self._outputs.items():
            if output.values:
                yield tag, output.bundle(self._watermark)


class _Output:
    def __init__(self) -> None:
        self.values: list[Any] = []
        self.timestamps: list[int] = []
        self._places: dict[int, Place] = {}  # position -> place, if it is not that of a timer

    def add(self, value: Any, timestamp: int) -> None:
        self.values.append(freeze(value))
        self.timestamps.append(timestamp)

    def add_at(self, value: Any, timestamp: int, place: Place) -> None:
        self._places[len(self.values)] = place
        self.add(value, timestamp)

    def bundle(self, watermark: int) -> Bundle:
        values, timestamps = self.values, numpy.array(self.timestamps, numpy.int64)
        # As timers: event time passes through the end of a window, and its place is just before.
        clocks = numpy.maximum(timestamps - 1, watermark)
        sequences = numpy.zeros(len(values), numpy.int64)
        if not self._places:
            return Bundle(values, timestamps, clocks, PHASE_EVENT_TIMER, sequences)
        phases = numpy.full(len(values), PHASE_EVENT_TIMER)
        where = numpy.array(list(self._places), numpy.int64)
        clocks[where], phases[where], sequences[where] = zip(*self._places.values(), strict=True)
        bundle = Bundle(values, timestamps, clocks, phases, sequences)
        return bundle.reordered(numpy.lexsort([sequences, phases, clocks]))
