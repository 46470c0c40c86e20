"""Collects the results of many windows, each with its place, as columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy

from millpond.core.bundle import PHASE_EVENT_TIMER, Bundle, Place
from millpond.core.codec import ATOMS, freeze
from millpond.datastream.output_tag import OutputTag
from millpond.engine.operators.base import is_tagged


class PlacedResults:
    """The results of windows. `add` and `add_at` take what a function returned for one window: `add` when
    event time has reached its end, `add_at` when a late record has made it fire again."""

    def __init__(self, watermark: int) -> None:
        self._watermark = watermark  # before the first result
        self._outputs: dict[str | None, _Output] = {None: _Output()}
        self._main = self._outputs[None]

    def add(self, results: Iterable[Any], timestamp: int) -> None:
        """Add results of a window that ends at `timestamp`, with the place of a timer for that time."""
        # Frozen at once, because the function may change one result before it yields the next.
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
        """Add results of a window that ends at `timestamp`, with the place of the record that caused them."""
        for result in results:
            if is_tagged(result):
                self.add_side_at(result[0], result[1], timestamp, place)
            else:
                self._main.add_at(result, timestamp, place)

    def add_side_at(self, tag: OutputTag, value: object, timestamp: int, place: Place) -> None:
        """Add a result for a side output, with the place of the record that caused it."""
        self._side(tag).add_at(value, timestamp, place)

    def _side(self, tag: OutputTag) -> _Output:
        return self._outputs.setdefault(tag.tag_id, _Output())

    def bundles(self) -> Iterator[tuple[str | None, Bundle]]:
        """Yield (output tag, results in the order of their places). The tag of the main output is None."""
        for tag, output in self._outputs.items():
            if output.values:
                yield tag, output.bundle(self._watermark)


class _Output:
    def __init__(self) -> None:
        self.values: list[Any] = []
        self.timestamps: list[int] = []
        self._places: dict[int, Place] = {}  # position -> place, unless it is that of a timer

    def add(self, value: object, timestamp: int) -> None:
        self.values.append(freeze(value))
        self.timestamps.append(timestamp)

    def add_at(self, value: object, timestamp: int, place: Place) -> None:
        self._places[len(self.values)] = place
        self.add(value, timestamp)

    def bundle(self, watermark: int) -> Bundle:
        values, timestamps = self.values, numpy.array(self.timestamps, numpy.int64)
        # As with timers, event time is at the end of the window, but the place is just before it.
        clocks = numpy.maximum(timestamps - 1, watermark)
        sequences = numpy.zeros(len(values), numpy.int64)
        if not self._places:
            return Bundle(values, timestamps, clocks, PHASE_EVENT_TIMER, sequences)
        phases = numpy.full(len(values), PHASE_EVENT_TIMER)
        where = numpy.array(list(self._places), numpy.int64)
        clocks[where], phases[where], sequences[where] = zip(*self._places.values(), strict=True)
        bundle = Bundle(values, timestamps, clocks, phases, sequences)
        return bundle.reordered(numpy.lexsort([sequences, phases, clocks]))
