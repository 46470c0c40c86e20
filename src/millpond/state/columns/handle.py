"""A column state as a function sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy
from numpy.typing import ArrayLike, NDArray

from millpond.core.columns import Numbers
from millpond.datastream.aggregations import Aggregation
from millpond.datastream.columns import ColumnState, ColumnStateDescriptor
from millpond.datastream.state import StateKind
from millpond.errors import TypeMismatchError
from millpond.state.columns.table import COLUMNS, ColumnTable
from millpond.state.rolling import running

if TYPE_CHECKING:
    from millpond.state.shard_state import ShardState

Cells = NDArray[Any]


class ColumnStateHandle(ColumnState):
    """One column of the table of a column function."""

    def __init__(self, descriptor: ColumnStateDescriptor) -> None:
        self._descriptor = descriptor
        self._name = descriptor.name
        self._table = ColumnTable()

    def bind(self, state: ShardState) -> None:
        """Turn to the table of another shard. Raises IncompatibleCheckpointError if the column is stored
        with another type or default."""
        self._table = state.table(COLUMNS, StateKind.COLUMN)
        self._table.declare(self._name, self._descriptor.dtype, self._descriptor.default)

    def get(self, rows: Numbers) -> Cells:
        """Return the values of the rows."""
        return self._table.get(self._name, rows)

    def put(self, rows: Numbers, values: ArrayLike) -> None:
        """Set the values of the rows. Raises TypeMismatchError if one does not fit the declared type."""
        self._table.put(self._name, rows, self._admitted(values, len(rows)))

    def running_sum(self, rows: Numbers, amounts: ArrayLike) -> Cells:
        """Add each amount to its row, one after the other, and return what the row held after it."""
        return self._run(Aggregation.SUM, rows, amounts)

    def running_max(self, rows: Numbers, values: ArrayLike) -> Cells:
        """Let each value raise its row, one after the other, and return what the row held after it."""
        return self._run(Aggregation.MAX, rows, values)

    def running_min(self, rows: Numbers, values: ArrayLike) -> Cells:
        """Let each value lower its row, one after the other, and return what the row held after it."""
        return self._run(Aggregation.MIN, rows, values)

    def _run(self, aggregation: Aggregation, rows: Numbers, values: ArrayLike) -> Cells:
        if not len(rows):
            return numpy.empty(0, self._descriptor.dtype)
        added = self._admitted(values, len(rows))
        order = numpy.argsort(rows, kind="stable")
        sorted_rows = rows[order]
        starts = numpy.flatnonzero(numpy.diff(sorted_rows, prepend=-1))
        before = self.get(sorted_rows[starts])
        after = self._admitted(running(aggregation, added[order], starts, before), len(rows))
        ends = numpy.append(starts[1:], len(rows)) - 1
        self._table.put(self._name, sorted_rows[starts], after[ends])
        results = numpy.empty_like(after)
        results[order] = after
        return results

    def _admitted(self, values: ArrayLike, count: int) -> Cells:
        """Return the values in the type of the state, one per row. Raises TypeMismatchError if one does not
        fit."""
        given = numpy.asarray(values)
        dtype = self._descriptor.dtype
        if given.ndim and len(given) != count:
            raise ValueError(f"state '{self._name}': {len(given)} values for {count} rows")
        if given.dtype != dtype:
            fits = numpy.can_cast(given.dtype, dtype, "same_kind") or not given.size
            if fits and dtype.kind == "i" and given.size:
                limits = numpy.iinfo(dtype.name)
                fits = limits.min <= int(given.min()) and int(given.max()) <= limits.max
            if not fits:
                raise TypeMismatchError(
                    f"state '{self._name}': values of type {given.dtype} (such as {given.flat[0]}) "
                    f"do not fit the declared type {self._descriptor.type_info}"
                )
            given = given.astype(dtype)
        return numpy.broadcast_to(given, (count,))
