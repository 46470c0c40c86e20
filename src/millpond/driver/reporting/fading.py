"""Counts that fade: what was counted a minute ago counts half, so that they show how things are now."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

import numpy

_HALF_LIFE_MS = 60_000.0
_KEYS_KEPT = 500
_GONE = 0.5  # records: a count that has faded to less is not shown


def _share_left(since_ms: float, now_ms: float) -> float:
    return float(0.5 ** (max(0.0, now_ms - since_ms) / _HALF_LIFE_MS))


class FadingGroups:
    """One fading count for each key group of a task."""

    def __init__(self, groups: int) -> None:
        self._counts = numpy.zeros(groups)
        self._at_ms = 0.0

    def add(self, counts: Iterable[tuple[int, int]], now_ms: float) -> None:
        """Add (key group, records) that were counted just now."""
        self._counts *= _share_left(self._at_ms, now_ms)
        self._at_ms = now_ms
        for group, count in counts:
            self._counts[group] += count

    def counts(self, now_ms: float) -> list[float]:
        """Return the count of every key group as it has faded by now."""
        faded = self._counts * _share_left(self._at_ms, now_ms)
        return [round(count, 1) for count in faded.tolist()]


class FadingKeys:
    """Fading counts of keys, by the text of the key. Their number is limited; the rarest are forgotten
    first."""

    def __init__(self) -> None:
        self._counts: dict[str, float] = {}
        self._at_ms = 0.0

    def add(self, counts: Iterable[tuple[str, int]], now_ms: float) -> None:
        """Add (text of a key, records) that were counted just now."""
        left = _share_left(self._at_ms, now_ms)
        self._at_ms = now_ms
        faded = {text: count * left for text, count in self._counts.items()}
        for text, count in counts:
            faded[text] = faded.get(text, 0.0) + count
        if len(faded) > 2 * _KEYS_KEPT:  # twice as many, so that it does not happen every time
            kept = heapq.nlargest(_KEYS_KEPT, faded.items(), key=lambda item: item[1])
            faded = dict(kept)
        self._counts = faded

    def hottest(self, limit: int, now_ms: float) -> list[tuple[str, float]]:
        """Return (text, count) of the keys with the highest counts, at most `limit`, the highest first."""
        left = _share_left(self._at_ms, now_ms)
        found = heapq.nlargest(limit, self._counts.items(), key=lambda item: item[1])
        return [(text, round(count * left, 1)) for text, count in found if count * left > _GONE]
