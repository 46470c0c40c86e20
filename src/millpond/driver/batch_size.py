"""How many records a source may give to the next batch (its credits, E9), and how long it should take.

Every batch has a fixed cost, so larger batches get through more; but output is never earlier than the end of
its batch. While a job keeps up, a batch starts with what there is, and its size does not matter. When sources
have more records than they may give, batches grow until they take about as long as the target.

The target itself is short (`KEEPING_UP_MS`) unless input is waiting. Then a batch may take as long as it
would take to work off what is waiting, but at most `millpond.batch.target-ms`: output is late anyway, and
many records at once cost less than the model below says (what is set and removed in the same batch is not
even written). That is so for records that cost little. For others, batches stop growing much earlier
(`LONGEST_IF_SLOW_MS`), because nearly all of the time is for records then. With `millpond.target-latency`,
the target is fixed.

If a batch would leave only little of what is waiting, it takes the rest as well: that costs less than a batch
of its own.

The model is: duration = fixed cost + records * cost per record. Batches of different sizes tell the two
apart. While all batches have the same size, the fixed cost is assumed to be a quarter of the target. If the
fixed cost alone exceeds the target, smaller batches would not help; records then get a quarter of it on top.

How slow functions are is not known at first, so the first batch is small.
"""

from __future__ import annotations

import math
from collections import deque

from millpond.plan.settings import JobSettings

FIRST = 64
FIRST_WITHOUT_CUTS = 50_000
KEEPING_UP_MS = 200.0
LONGEST_IF_SLOW_MS = 1500.0
_TARGET_GROWTH = 4.0
_CHEAP_RECORD_MS = 0.05
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
_LITTLE = 0.25  # of a batch
_ERROR_OF_ESTIMATE = 1.02  # sources may only guess how many records are waiting


def sizer_of(settings: JobSettings, cuts_by_time: bool = True) -> BatchSizer:
    """Return the sizer for the settings of a plan. A record waits at most for the batch before its own and
    for its own batch, so each may take half of the target latency. Without cuts by time, as in the direct
    executor, nobody waits for output."""
    maximum, latency_ms = settings.max_batch_records, settings.target_latency_ms
    if latency_ms is not None:
        return BatchSizer(maximum, latency_ms / 2)
    if not cuts_by_time:
        return BatchSizer(maximum, settings.target_batch_ms, FIRST_WITHOUT_CUTS)
    return BatchSizer(maximum, settings.target_batch_ms, keeping_up_ms=KEEPING_UP_MS)


class BatchSizer:
    """Adjusts `limit`, the most records that a source may give to the next batch, after every batch.

    The target grows from `keeping_up_ms` to `target_ms` with what is waiting; without `keeping_up_ms`, it is
    always `target_ms`."""

    def __init__(
        self,
        max_records: int,
        target_ms: float,
        first: int = FIRST,
        keeping_up_ms: float | None = None,
    ) -> None:
        self._max_records = max_records
        self._most_ms = target_ms
        self._least_ms = target_ms if keeping_up_ms is None else min(keeping_up_ms, target_ms)
        self.target_ms = self._least_ms
        """How long the next batch should take."""
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
        backlog: int | None = None,
    ) -> None:
        """Learn from a batch of `records` records and adjust `limit`.

        `was_full`: more records were waiting than the batch could take. `memory_share`: how much of its
        memory limit the fullest slot uses. `is_first`: processes had to start for this batch. `backlog`: how
        many records are waiting; None if that is not known."""
        limit = float(self.limit)
        if is_first:
            duration_ms -= _START_UP_MS
        if not is_first or duration_ms > self.target_ms:
            self._recent.append((records, duration_ms))
            self._learn()
            self._adjust_target(duration_ms, records, was_full, backlog)
            if records and (was_full or records >= _TELLING * self.limit):
                limit *= self._factor(duration_ms)
                limit = self._with_rest(limit, backlog)
        if memory_share > _MEMORY_LIMIT:
            limit = min(limit, self.limit * _UNDER_PRESSURE)
        elif not was_full:
            limit = min(limit, self.limit)
        limit = max(self.limit * _SHRINKAGE, min(limit, self.limit * _GROWTH))
        rounded = math.ceil(limit) if limit > self.limit else int(limit)  # 1 must be able to grow
        self.limit = max(1, min(rounded, self._max_records))

    def _adjust_target(
        self, duration_ms: float, records: int, was_full: bool, backlog: int | None
    ) -> None:
        """Let the target follow how much is waiting."""
        wanted_ms = self._least_ms
        if was_full and records:
            fixed_ms = duration_ms / 4 if self._fixed_ms is None else self._fixed_ms
            record_ms = max(duration_ms - fixed_ms, 0.1 * duration_ms) / records
            wanted_ms = self._most_ms
            if record_ms > _CHEAP_RECORD_MS:
                wanted_ms = LONGEST_IF_SLOW_MS
            if backlog is not None:
                wanted_ms = min(wanted_ms, backlog * record_ms)
        wanted_ms = min(wanted_ms, _TARGET_GROWTH * self.target_ms, self._most_ms)
        self.target_ms = max(wanted_ms, self._least_ms)

    def _factor(self, duration_ms: float) -> float:
        """Return by how much the number of records must be multiplied for a batch to take as long as it
        should."""
        target_ms, fixed_ms = self.target_ms, self._fixed_ms
        if fixed_ms is None:
            fixed_ms = min(target_ms / 4, 0.75 * duration_ms)
        for_records_ms = max(duration_ms - fixed_ms, 0.1 * duration_ms, 0.01)
        factor = max(target_ms - fixed_ms, fixed_ms / 4) / for_records_ms
        if 0.5 < factor < 2.0:
            # Near the target, most of the difference is chance: go half of the way.
            factor = factor**0.5
        # This much is safe, whatever the fixed cost is.
        return max(factor, target_ms / duration_ms) if 0 < duration_ms < target_ms else factor

    @staticmethod
    def _with_rest(limit: float, backlog: int | None) -> float:
        """Return the limit, or what is waiting if that is only a little more."""
        waiting = (backlog or 0) * _ERROR_OF_ESTIMATE
        return waiting if limit < waiting <= (1 + _LITTLE) * limit else limit

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
