"""How many records a source may give to the next batch.

Every batch has a fixed cost, so when sources have more than they may give, batches grow until they take
about as long as the target. Then the cost hardly counts, and output is never later than the target by
much. When sources are empty the size does not matter: a batch starts with what there is.
"""

from __future__ import annotations

_FIRST = 50_000
_GROWTH = 40.0
_SHRINKAGE = 0.25


class BatchSizer:
    def __init__(self, max_records: int, target_ms: int) -> None:
        self._max_records = max_records
        self._target_ms = target_ms
        self._fixed_ms = target_ms / 4  # what a batch takes whatever its size: not more than that
        self.limit = min(_FIRST, max_records)

    def took(self, duration_ms: float, was_full: bool) -> None:
        """A batch took so long; `was_full`: more was waiting than it could take."""
        self._fixed_ms = min(self._fixed_ms, duration_ms * 0.75)
        for_records_ms = max(duration_ms - self._fixed_ms, 1.0)
        factor = (self._target_ms - self._fixed_ms) / for_records_ms
        if factor < 1.0:
            self.limit = int(self.limit * max(factor, _SHRINKAGE))
        elif was_full:
            self.limit = int(self.limit * min(factor, _GROWTH))
        self.limit = max(1, min(self.limit, self._max_records))
