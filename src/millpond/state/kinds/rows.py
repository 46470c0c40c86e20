"""Savepoint columns: what kinds whose values rest in tables have in common."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from millpond.core.codec import freeze, thaw_all
from millpond.state.kinds.kind import KEY, TIME, VALUE, Columns


def open_columns(columns: Columns, values: list[Any], timed: bool) -> Columns:
    """Return columns with their keys thawed, and with the values at rest as the columns `value` and, if they
    are `timed`, `time`."""
    opened = columns | {KEY: thaw_all(columns[KEY])}
    if not timed:
        return opened | {VALUE: thaw_all(values)}
    times = [time_ms for time_ms, _ in values]
    return opened | {VALUE: thaw_all([value for _, value in values]), TIME: times}


def values_at_rest(columns: Columns, timed: bool) -> list[Any]:
    """Return the values of savepoint columns as they rest in tables. The inverse of `open_columns`."""
    values = list(map(freeze, columns[VALUE]))
    return list(zip(columns[TIME], values, strict=True)) if timed else values


def repeated(keys: list[Any], counts: list[int]) -> list[Any]:
    """Return each key as often as its count says."""
    if counts.count(1) == len(counts):
        return keys
    return [key for key, count in zip(keys, counts, strict=True) for _ in range(count)]


def counted(keys: Sequence[Any]) -> tuple[list[Any], list[int]]:
    """Return each key once, and how many adjacent rows it has. The inverse of `repeated`."""
    groups = [(key, len(list(rows))) for key, rows in groupby(keys)]
    return [key for key, _ in groups], [count for _, count in groups]
