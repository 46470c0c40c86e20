"""How many records a source may give to the next batch: its credits (E9).

Every batch has a fixed cost, so when sources have more than they may give, batches grow until they take
about as long as the target. Then the cost hardly counts, and output is never later than the target by
much. When sources are empty the size does not matter: a batch starts with what there is.

What a batch costs is taken to be fixed + records * cost of one. Batches of different sizes tell the two
apart; while all are of one size, a quarter of the target is taken for the fixed part. If that part alone is
longer than the target, smaller batches would only add to it: then records get a quarter of it on top.
"""

from __future__ import annotations

import math
from collections import deque

from millpond.plan.settings import JobSettings

FIRST = 50_000
FIRST_WITH_LATENCY = (
    1000  # nobody knows yet how slow functions are; a few batches, and it does not matter
)
_GROWTH = 40.0
_SHRINKAGE = 0.25
_MEMORY_LIMIT = 0.8  # of what a slot may use
_UNDER_PRESSURE = 0.75
_TELLING = 0.25  # of the limit: a batch with fewer records says little about it
_REMEMBERED = 20
_FADING = 0.8
_LEAST_SPREAD = 0.05  # of sizes (variance / mean squared), to tell fixed cost from cost per record
_START_UP_MS = 10_000.0


def sizer_of(settings: JobSettings) -> BatchSizer:
    """For the settings of a plan. A record waits for the batch before its own, at most, and for its own: so
    each may take half of the latency that is wanted."""
    latency_ms = settings.target_latency_ms
    if latency_ms is None:
        return BatchSizer(settings.max_batch_records, settings.target_batch_ms)
    return BatchSizer(settings.max_batch_records, latency_ms / 2, FIRST_WITH_LATENCY)


class BatchSizer:
    def __init__(self, max_records: int, target_ms: float, first: int = FIRST) -> None:
        self._max_records = max_records
        self._target_ms = target_ms
        self._fixed_ms: float | None = None  # None: not told apart from the cost of records yet
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
        """A batch with so many records took so long; `was_full`: more was waiting than it could take.
        `memory_share`: what the fullest slot uses of the memory it may use. `is_first`: processes had to
        start for it."""
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
        """With so many times the records, a batch would have taken as long as it should."""
        target_ms, fixed_ms = self._target_ms, self._fixed_ms
        if fixed_ms is None:
            fixed_ms = min(target_ms / 4, 0.75 * duration_ms)
        for_records_ms = max(duration_ms - fixed_ms, 0.1 * duration_ms, 0.01)
        factor = max(target_ms - fixed_ms, fixed_ms / 4) / for_records_ms
        if 0.5 < factor < 2.0:
            factor = (
                factor**0.5
            )  # near the target most of the difference is chance: go half of the way
        # So much is safe whatever the fixed cost is.
        return max(factor, target_ms / duration_ms) if 0 < duration_ms < target_ms else factor

    def _learn(self) -> None:
        """A line through the recent batches, newer ones counting more."""
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
