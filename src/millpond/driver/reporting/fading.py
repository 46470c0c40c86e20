"""Counts that fade: what was counted a minute ago counts half, so they show how things are now."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

import numpy

_HALF_LIFE_MS = 60_000.0
_KEYS_KEPT = 500
_GONE = 0.5  # records: what has faded to less is forgotten


def _share_left(since_ms: float, now_ms: float) -> float:
    return float(0.5 ** (max(0.0, now_ms - since_ms) / _HALF_LIFE_MS))


class FadingGroups:
    """One count for each key group."""

    def __init__(self, groups: int) -> None:
        self._counts = numpy.zeros(groups)
        self._at_ms = 0.0

    def add(self, counts: Iterable[tuple[int, int]], now_ms: float) -> None:
        self._counts *= _share_left(self._at_ms, now_ms)
        self._at_ms = now_ms
        for group, count in counts:
            self._counts[group] += count

    def counts(self, now_ms: float) -> list[float]:
        faded = self._counts * _share_left(self._at_ms, now_ms)
        return [round(count, 1) for count in faded.tolist()]


class FadingKeys:
    """Counts of keys, by their text. Only so many are kept, and the rarest are forgotten first."""

    def __init__(self) -> None:
        self._counts: dict[str, float] = {}
        self._at_ms = 0.0

    def add(self, counts: Iterable[tuple[str, int]], now_ms: float) -> None:
        left = _share_left(self._at_ms, now_ms)
        self._at_ms = now_ms
        faded = {text: count * left for text, count in self._counts.items()}
        for text, count in counts:
            faded[text] = faded.get(text, 0.0) + count
        if len(faded) > 2 * _KEYS_KEPT:  # not for each one that is too many
            kept = heapq.nlargest(_KEYS_KEPT, faded.items(), key=lambda item: item[1])
            faded = dict(kept)
        self._counts = faded

    def hottest(self, limit: int, now_ms: float) -> list[tuple[str, float]]:
        left = _share_left(self._at_ms, now_ms)
        found = heapq.nlargest(limit, self._counts.items(), key=lambda item: item[1])
        return [(text, round(count * left, 1)) for text, count in found if count * left > _GONE]
