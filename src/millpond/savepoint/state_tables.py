"""Turns the state of a key group into Arrow tables, and back.

There is one table per state. Its columns are those of the state's kind (`state/kinds/`,
docs/savepoint-format.md), with one more, `time`, if the state has a time to live. Timers are one more table:
domain, time, key, namespace."""

from __future__ import annotations

from typing import Any

import pyarrow

from millpond.core.codec import thaw_all
from millpond.core.columns import decode_list, encode_list
from millpond.datastream.formats.avro_schemas import Schema
from millpond.state.kinds.kind import Columns
from millpond.state.kinds.registry import stored_kind
from millpond.state.tables import Changes
from millpond.state.types.schemas import PICKLE, Schemas, codec_of, schema_of_values

TIMERS = "(timers)"  # the name of their table
TIMERS_KIND = "timers"
DOMAINS = ("event", "processing")
_TIMER_COLUMNS = ("domain", "time", "key", "namespace")
Content = dict[str, Any]  # what ShardState.snapshot returns


def columns_of(content: Content) -> dict[str, Columns]:
    """Return the columns of every state, by its name, as Python values. Timers are one more state.

    Raises CorruptDataError if a state is of an unknown kind.
    """
    columns = {
        name: _state_columns(name, kind, changes)
        for name, (kind, changes) in content["states"].items()
    }
    timers = [(domain, *timer) for domain in DOMAINS for timer in decode_list(content[domain][1])]
    if timers:
        values = map(list, zip(*timers, strict=True))
        columns[TIMERS] = dict(zip(_TIMER_COLUMNS, values, strict=True))
        columns[TIMERS]["key"] = thaw_all(columns[TIMERS]["key"])
    return columns


def _state_columns(name: str, kind: str, changes: Changes) -> Columns:
    spec, timed = stored_kind(kind, f"state '{name}'")
    return spec.to_columns(changes, timed)


def schemas_of(declared: Schemas, columns: Columns) -> Schemas:
    """Return the schema of each column: the declared one if there is one, otherwise one that the values have
    in common; that of pickles if there is neither, or if not all values fit it."""
    schemas: Schemas = {}
    for column, values in columns.items():
        schema = declared.get(column, PICKLE)
        schema = schema_of_values(values) if schema == PICKLE else schema
        schemas[column] = schema if _come_back(values, schema) else PICKLE
    return schemas


def _come_back(values: list[Any], schema: Schema) -> bool:
    """Return whether values stay the same when they go through a column of this schema. An instance of a
    subclass of the declared class, for example, would not."""
    try:
        codec = codec_of(schema)
        back = codec.values(codec.column(values))
    except Exception:  # whatever Arrow, or a user's class, raises
        return False
    return all(
        type(new) is type(old) and (new == old or new != new)
        for new, old in zip(back, values, strict=True)
    )


def joined_schemas(first: Schemas, second: Schemas) -> Schemas:
    """Return the schemas of columns that can hold the values of both: that of pickles where they differ."""
    return {
        name: schema if second.get(name) == schema else PICKLE for name, schema in first.items()
    }


def to_table(key_group: int, columns: Columns, schemas: Schemas) -> pyarrow.Table:
    """Return columns as an Arrow table, with the number of their key group (or subtask) as the first
    column."""
    rows = len(next(iter(columns.values())))
    arrays = {"key_group": pyarrow.array([key_group] * rows, pyarrow.int32())}
    for name, values in columns.items():
        arrays[name] = codec_of(schemas[name]).column(values)
    return pyarrow.table(arrays)


# --- back --------------------------------------------------------------------------------------------


def to_columns(table: pyarrow.Table, schemas: Schemas) -> Columns:
    """Return the columns of an Arrow table as Python values, without the key group: the inverse of
    `to_table`."""
    return {name: codec_of(schema).values(table.column(name)) for name, schema in schemas.items()}


def to_content(states: dict[str, tuple[str, Columns]], types: dict[str, Schemas]) -> Content:
    """Return what ShardState.apply takes: the inverse of `columns_of`.

    `states` has the kind and columns of each state by its name, `types` the types with which it was declared.
    Raises CorruptDataError if a state is of an unknown kind.
    """
    declared = {name: schemas for name, schemas in types.items() if schemas}
    content: Content = {"states": {}, "types": declared, "event": None, "processing": None}
    timers: Columns = {column: [] for column in _TIMER_COLUMNS}
    for name, (kind, columns) in states.items():
        if kind == TIMERS_KIND:
            timers = columns
        else:
            spec, timed = stored_kind(kind, f"state '{name}'")
            content["states"][name] = (kind, spec.to_changes(columns, timed))
    rows = list(zip(*(timers[column] for column in _TIMER_COLUMNS), strict=True))
    for domain in DOMAINS:
        of_domain = [timer for timer_domain, *timer in rows if timer_domain == domain]
        content[domain] = (encode_list([]), encode_list(list(map(tuple, of_domain))))
    return content
