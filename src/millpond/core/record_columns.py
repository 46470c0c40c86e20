"""The values of a bundle: a list, or columns (an Arrow record batch) if nobody needs them one by one.

A source that reads columns hands them on as columns. They stay columns through exchanges, and become records
(`Row`) at the first function that takes single records.
"""

from __future__ import annotations

from typing import Any

import numpy
import pyarrow

from millpond.common.types import Row, named_row
from millpond.core.columns import Numbers, concatenate, take_list

Values = Any  # list[Any] | pyarrow.RecordBatch; timestamps: list[int | None] | Numbers


def is_columns(values: Values) -> bool:
    """Return True if values are columns, False if they are a list or an array."""
    return isinstance(values, pyarrow.RecordBatch)


def take(values: Values, order: Numbers) -> Values:
    """Return the values at the positions in `order`, in that order and in the same form as `values`."""
    if isinstance(values, list):
        return take_list(values, order)
    return values[order] if isinstance(values, numpy.ndarray) else values.take(pyarrow.array(order))


def cut(values: Values, start: int, end: int) -> Values:
    """Return the values from `start` to `end - 1`."""
    return values.slice(start, end - start) if is_columns(values) else values[start:end]


def join(parts: list[Values]) -> Values:
    """Return all values, one part after the other.

    The result is columns if all parts are columns with the same schema, an array if all parts are arrays, and
    otherwise a list."""
    if len(parts) == 1:
        return parts[0]
    if all(map(is_columns, parts)) and all(part.schema == parts[0].schema for part in parts):
        return pyarrow.Table.from_batches(parts).combine_chunks().to_batches()[0]
    if all(isinstance(part, numpy.ndarray) for part in parts):
        return numpy.concatenate(parts)
    return concatenate([as_list(part) for part in parts])


def as_list(values: Values) -> list[Any]:
    """Return the values as a list; columns become a `Row` per record."""
    if isinstance(values, list):
        return values
    if isinstance(values, numpy.ndarray):
        return list(values.tolist())
    names = list(values.schema.names)
    columns = [column.to_pylist() for column in values.columns]
    return [named_row(names, list(fields)) for fields in zip(*columns, strict=True)]


def as_columns(values: Values, names: list[str] | None = None) -> pyarrow.RecordBatch:
    """Return values as columns. A list must not be empty.

    Records that are a Row, a tuple or a list get a column per field: named after the fields of the first Row,
    else by `names`, else f0, f1, ... Any other values become a single column."""
    if is_columns(values):
        return values
    first = values[0]
    if isinstance(first, Row) and first._fields is not None:
        names = first._fields
    if not isinstance(first, (Row, tuple, list)):
        return pyarrow.record_batch([pyarrow.array(values)], names or ["f0"])
    width = len(first)
    columns = [pyarrow.array([value[field] for value in values]) for field in range(width)]
    return pyarrow.record_batch(columns, names or [f"f{field}" for field in range(width)])


def numbers_in(columns: pyarrow.RecordBatch, name: str | int) -> numpy.typing.NDArray[Any]:
    """Return a column as a NumPy array. Raises ValueError if a value is missing."""
    column = columns.column(name)
    if column.null_count:
        raise ValueError(f"column '{name}' has missing values: {column.null_count}")
    return as_array(column)


def as_array(column: pyarrow.Array) -> numpy.typing.NDArray[Any]:
    """Return a column that has no missing values as a NumPy array.

    Arrow's own conversion would import pandas, which takes half a second."""
    kind = column.type
    if pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind):
        return numpy.from_dlpack(column)
    return numpy.array(column.to_pylist(), bool if pyarrow.types.is_boolean(kind) else object)
