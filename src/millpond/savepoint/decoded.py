"""A state of a savepoint as one Arrow table, whatever forms it is stored in."""

from __future__ import annotations

import pyarrow

from millpond.core.pickling import dumps
from millpond.datastream.formats.avro_schemas import Schema
from millpond.state.types.schemas import Schemas, codec_of, is_pickled

_CANNOT = (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, pyarrow.ArrowNotImplementedError)


def decoded_table(forms: list[tuple[pyarrow.Table, Schemas]]) -> pyarrow.Table:
    """Return all forms of a state as one table. Pickles become what Arrow makes of their values; values for
    which Arrow has no type stay pickles."""
    first, _ = forms[0]
    columns = {}
    for name in first.column_names:
        parts = [(table.column(name), schemas.get(name, "int")) for table, schemas in forms]
        columns[name] = _column(name, parts)
    return pyarrow.table(columns)


def is_plain(schemas: Schemas) -> bool:
    """Return whether a file with these schemas can be read without Millpond, because it has no pickles."""
    return not any(map(is_pickled, schemas.values()))


def _column(
    name: str, parts: list[tuple[pyarrow.ChunkedArray, Schema]]
) -> pyarrow.ChunkedArray | pyarrow.Array:
    if is_plain({str(number): schema for number, (_, schema) in enumerate(parts)}):
        tables = [pyarrow.table({name: column}) for column, _ in parts]
        try:
            return pyarrow.concat_tables(tables, promote_options="permissive").column(name)
        except _CANNOT:
            pass  # for example, if one is int and the other string
    values = [value for column, schema in parts for value in codec_of(schema).values(column)]
    try:
        return pyarrow.array(values)
    except (*_CANNOT, OverflowError):
        return pyarrow.array(list(map(dumps, values)), pyarrow.binary())
