"""How many records a source may give to the next batch: its credits (E9).

Every batch has a fixed cost. When sources have more records than they may give, batches therefore grow until
they take about as long as the target: then the fixed cost hardly matters, and output is never much later than
the target. When sources are empty, the size does not matter: a batch starts with what there is.

The model is: duration = fixed cost + records * cost per record. Batches of different sizes tell the two
apart. While all batches have the same size, the fixed cost is assumed to be a quarter of the target. If the
fixed cost alone exceeds the target, smaller batches would not help; records then get a quarter of it on top.
"""

from __future__ import annotations

import math
from collections import deque

from millpond.plan.settings import JobSettings

FIRST = 50_000
# How slow functions are is not known yet; after a few batches, this first guess no longer matters.
FIRST_WITH_LATENCY = 1000
_GROWTH = 40.0
_SHRINKAGE = 0.25
_MEMORY_LIMIT = 0.8  # of what a slot may use
_UNDER_PRESSURE = 0.75
_TELLING = 0.25  # of the limit: a batch with fewer records says little about the limit
_REMEMBERED = 20
_FADING = 0.8
# The spread of sizes (variance / mean squared) that is needed to tell fixed cost from cost per record.
_LEAST_SPREAD = 0.05
_START_UP_MS = 10_000.0


def sizer_of(settings: JobSettings) -> BatchSizer:
    """Return the sizer for the settings of a plan. A record waits at most for the batch before its own and
    for its own batch, so each may take half of the target latency."""
    latency_ms = settings.target_latency_ms
    if latency_ms is None:
        return BatchSizer(settings.max_batch_records, settings.target_batch_ms)
    return BatchSizer(settings.max_batch_records, latency_ms / 2, FIRST_WITH_LATENCY)


class BatchSizer:
    """Adjusts `limit`, the most records that a source may give to the next batch, after every batch."""

    def __init__(self, max_records: int, target_ms: float, first: int = FIRST) -> None:
        self._max_records = max_records
        self._target_ms = target_ms
        self._fixed_ms: float | None = None  # None: not known yet
        self._recent: deque[tuple[int, float]] = deque(maxlen=_REMEMBERED)  # (records, ms)
        self.limit = max(1, min(first, max_records))

    def took(
        self,
        duration_ms: float,
        records: int,
        was_full: bool,
        memory_share: float = 0.0,
        is_first: bool = False,
    ) -> None:
        """Learn from a batch of `records` records and adjust `limit`.

        `was_full`: more records were waiting than the batch could take. `memory_share`: how much of its
        memory limit the fullest slot uses. `is_first`: processes had to start for this batch."""
        limit = float(self.limit)
        if is_first:
            duration_ms -= _START_UP_MS
        if not is_first or duration_ms > self._target_ms:
            self._recent.append((records, duration_ms))
            self._learn()
            if was_full or records >= _TELLING * self.limit:
                limit *= self._factor(duration_ms)
        if memory_share > _MEMORY_LIMIT:
            limit = min(limit, self.limit * _UNDER_PRESSURE)
        elif not was_full:
            limit = min(limit, self.limit)
        limit = max(self.limit * _SHRINKAGE, min(limit, self.limit * _GROWTH))
        rounded = math.ceil(limit) if limit > self.limit else int(limit)  # 1 must be able to grow
        self.limit = max(1, min(rounded, self._max_records))

    def _factor(self, duration_ms: float) -> float:
        """Return by how much the number of records must be multiplied for a batch to take as long as it
        should."""
        target_ms, fixed_ms = self._target_ms, self._fixed_ms
        if fixed_ms is None:
            fixed_ms = min(target_ms / 4, 0.75 * duration_ms)
        for_records_ms = max(duration_ms - fixed_ms, 0.1 * duration_ms, 0.01)
        factor = max(target_ms - fixed_ms, fixed_ms / 4) / for_records_ms
        if 0.5 < factor < 2.0:
            # Near the target, most of the difference is chance: go half of the way.
            factor = factor**0.5
        # This much is safe, whatever the fixed cost is.
        return max(factor, target_ms / duration_ms) if 0 < duration_ms < target_ms else factor

    def _learn(self) -> None:
        """Fit a line through the recent batches, in which newer ones count more."""
        weights = [_FADING**age for age in range(len(self._recent))]
        weighted = [(w, n, ms) for w, (n, ms) in zip(weights, reversed(self._recent), strict=True)]
        total = sum(weights)
        mean_n = sum(w * n for w, n, _ in weighted) / total
        mean_ms = sum(w * ms for w, _, ms in weighted) / total
        var_n = sum(w * (n - mean_n) ** 2 for w, n, _ in weighted) / total
        if var_n > _LEAST_SPREAD * mean_n**2:
            both = sum(w * (n - mean_n) * (ms - mean_ms) for w, n, ms in weighted) / total
            self._fixed_ms = mean_ms - max(0.0, both / var_n) * mean_n
        if self._fixed_ms is not None:
            self._fixed_ms = max(0.0, min(self._fixed_ms, 0.9 * mean_ms))
