"""Finds and hashes keys that are fields of columns, for a whole column at once."""

from __future__ import annotations

import zlib
from typing import Any

import numpy
import pyarrow
from numpy.typing import NDArray

from millpond.core.codec import thaw_all
from millpond.core.columns import Numbers
from millpond.core.key_groups import hashes_of_integers, key_groups_of_hashes
from millpond.core.record_columns import Values, as_array, is_columns
from millpond.datastream.columns import FieldKeySelector
from millpond.errors import ProgramError


def keys_in(columns: Values, selector: FieldKeySelector) -> list[Any]:
    """Return the key of each record: the value of the field, or a tuple if the key has several fields."""
    if not is_columns(columns):
        return list(map(selector.get_key, thaw_all(columns)))
    lists = [_column(columns, name).to_pylist() for name in selector.names]
    return lists[0] if len(lists) == 1 else list(zip(*lists, strict=True))


def key_groups_in(
    columns: pyarrow.RecordBatch, selector: FieldKeySelector, max_parallelism: int
) -> Numbers | None:
    """Return the key group of each record, or None if a field is neither a string nor a signed integer, or
    has missing values."""
    hashes = [_hashes(_column(columns, name)) for name in selector.names]
    combined = hashes[0]
    if len(hashes) > 1:  # in the same way as `stable_hash` combines the items of a tuple
        combined = numpy.ones(len(columns), numpy.uint32)
        for field_hashes in hashes:
            if field_hashes is None:
                return None
            combined = combined * numpy.uint32(31) + field_hashes
    return None if combined is None else key_groups_of_hashes(combined, max_parallelism)


def _column(columns: pyarrow.RecordBatch, name: str | int) -> pyarrow.Array:
    known = columns.schema.names
    if name not in known if isinstance(name, str) else not 0 <= name < len(known):
        raise ProgramError(f"key_by asks for field {name!r}; the records have {known}.")
    return columns.column(name)


def _hashes(column: pyarrow.Array) -> NDArray[numpy.uint32] | None:
    if column.null_count:
        return None
    if pyarrow.types.is_string(column.type):
        texts = column.cast(pyarrow.binary()).to_pylist()
        return numpy.fromiter(map(zlib.crc32, texts), numpy.uint32, len(texts))
    if pyarrow.types.is_signed_integer(column.type):
        return hashes_of_integers(as_array(column).astype(numpy.int64))
    return None
