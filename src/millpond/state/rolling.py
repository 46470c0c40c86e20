"""Rolling sum, min and max of all records of a shard at once.

The results are those of `reduce`, record by record, but computed per column: records are sorted by key
(keeping their order), aggregated along the column, and put back. They are exact or not computed at all:
`roll` returns None unless every record is an integer, or a tuple of one width whose aggregated field is an
integer, and no sum can leave 64 bits. The caller then goes record by record.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import count
from operator import itemgetter
from typing import Any

import numpy
from numpy.typing import NDArray

from millpond.core.columns import Numbers
from millpond.datastream.aggregations import Aggregation
from millpond.state.tables import ValueTable

_LIMIT = 1 << 62
_WORTH_IT = 16  # fewer records are faster one by one


def roll(
    aggregation: Aggregation, position: int, keys: list[Any], values: list[Any], table: ValueTable
) -> list[Any] | None:
    """Return the result after each record, and leave the last one of each key in the table. Return None, and
    change nothing, if it cannot be done exactly."""
    if len(values) < _WORTH_IT:
        return None
    field = _integers(values, position)
    if field is None:
        return None
    numbers_of_keys: defaultdict[Any, int] = defaultdict(count().__next__)
    codes = numpy.fromiter(map(numbers_of_keys.__getitem__, keys), numpy.int64, len(keys))
    distinct = list(numbers_of_keys)
    known = [table.data.get(key) for key in distinct]
    stored = [value for value in known if value is not None]
    before = _integers(stored, position) if stored else numpy.empty(0, numpy.int64)
    if before is None or (stored and type(stored[0]) is not type(values[0])):
        return None
    order = numpy.argsort(codes, kind="stable")
    starts = numpy.flatnonzero(numpy.diff(codes[order], prepend=-1))
    running = _running(aggregation, field[order], starts)
    if running is None:
        return None
    if stored:
        has_before = numpy.array([value is not None for value in known])
        old = numpy.zeros(len(distinct), numpy.int64)
        old[has_before] = before
        running = _joined(aggregation, running, old[codes[order]], has_before[codes[order]])
    results = numpy.empty_like(running)
    results[order] = running
    rolled = _with_field(values, known, codes, position, results, order[starts])
    last = dict(zip(keys, rolled, strict=True))  # of equal keys the last one counts
    for key in distinct:
        table.set(key, last[key])
    return rolled


def running(
    aggregation: Aggregation,
    numbers: NDArray[Any],
    starts: Numbers,
    before: NDArray[Any],
) -> NDArray[Any]:
    """Return the aggregate along each group of a column that is sorted by group, going on from what each
    group had before: exactly as if it was done one by one."""
    lengths = numpy.diff(starts, append=len(numbers))
    if numbers.dtype.kind == "i":
        wide = numbers.astype(numpy.int64)
        low, high = int(wide.min()), int(wide.max())
        if max(-low, high) < _LIMIT:
            within = _running(aggregation, wide, starts)
            old = numpy.repeat(before.astype(numpy.int64), lengths)
            if within is not None and max(-int(old.min()), int(old.max())) < _LIMIT:
                return _joined(aggregation, within, old, numpy.ones(len(old), bool))
    step = {
        Aggregation.SUM: numpy.add,
        Aggregation.MAX: numpy.maximum,
        Aggregation.MIN: numpy.minimum,
    }[aggregation]
    if numbers.dtype.kind == "i":
        # Python's integers do not overflow; the state refuses what is too large.
        numbers, before = numbers.astype(object), before.astype(object)
    results = numpy.empty(len(numbers), numpy.result_type(numbers, before))
    for start, length, old in zip(starts.tolist(), lengths.tolist(), before, strict=True):
        whole = numpy.concatenate([[old], numbers[start : start + length]])
        results[start : start + length] = step.accumulate(whole)[1:]
    return results


def _integers(values: list[Any], position: int) -> Numbers | None:
    """Return the aggregated field of all records if it is an integer in each, and far from 64 bits; else
    None."""
    kinds = set(map(type, values))
    column = values
    if kinds == {tuple}:
        if len(set(map(len, values))) != 1 or not -len(values[0]) <= position < len(values[0]):
            return None
        column = list(map(itemgetter(position), values))
        kinds = set(map(type, column))
    elif position != 0:
        return None
    if kinds != {int}:
        return None
    try:
        numbers = numpy.array(column, numpy.int64)
    except OverflowError:
        return None
    return numbers if max(abs(int(numbers.max())), abs(int(numbers.min()))) < _LIMIT else None


def _running(aggregation: Aggregation, numbers: Numbers, starts: Numbers) -> Numbers | None:
    """Return the aggregate along each group of a column that is sorted by group, or None if it might
    overflow."""
    lengths = numpy.diff(starts, append=len(numbers))
    if aggregation is Aggregation.SUM:
        if int(numpy.abs(numbers).max()) * len(numbers) >= _LIMIT:
            return None
        sums = numpy.cumsum(numbers)
        before = sums[starts] - numbers[starts]
        return sums - numpy.repeat(before, lengths)
    # Lift each group above the one before, so that its maximum starts afresh.
    low = int(numbers.min())
    span = int(numbers.max()) - low + 1
    if span * (len(starts) + 1) >= _LIMIT:
        return None
    steps = numpy.repeat(numpy.arange(len(starts), dtype=numpy.int64) * span, lengths)
    if aggregation is Aggregation.MAX:
        return numpy.maximum.accumulate(numbers - low + steps) - steps + low
    return -(numpy.maximum.accumulate(low + span - 1 - numbers + steps) - steps) + low + span - 1


def _joined(
    aggregation: Aggregation, running: Numbers, old: Numbers, has_old: NDArray[Any]
) -> Numbers:
    if aggregation is Aggregation.SUM:
        return running + old
    choose = numpy.maximum if aggregation is Aggregation.MAX else numpy.minimum
    return numpy.where(has_old, choose(running, old), running)


def _with_field(
    values: list[Any],
    known: list[Any],
    codes: Numbers,
    position: int,
    results: Numbers,
    first_records: Numbers,
) -> list[Any]:
    """Return records with the results in the aggregated field. The other fields are those of the first record
    of each key."""
    if type(values[0]) is not tuple:
        return results.tolist()  # type: ignore[no-any-return]
    firsts = [
        values[at] if old is None else old
        for old, at in zip(known, first_records.tolist(), strict=True)
    ]
    width = len(values[0])
    position %= width
    each_first = list(map(firsts.__getitem__, codes.tolist()))
    columns = [
        results.tolist() if field == position else map(itemgetter(field), each_first)
        for field in range(width)
    ]
    return list(zip(*columns, strict=True))
