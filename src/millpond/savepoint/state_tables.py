"""State of a key group as Arrow tables, and back.

One table per state. Columns by kind (see docs/savepoint-format.md):

    value, reducing, aggregating   key, value
    list                           key, position, value
    map                            key, entry, value
    timers                         domain, time, key, namespace
    column                         content (a pickle: readable by Millpond only)

A state with a time to live has one more column, `time`.
"""

from __future__ import annotations

from itertools import chain, groupby
from typing import Any

import pyarrow

from millpond.core.codec import freeze, thaw_all
from millpond.core.columns import decode_list, encode_list
from millpond.datastream.state import StateKind
from millpond.errors import CorruptDataError
from millpond.state.key_group_state import TTL_MARK
from millpond.state.types.schemas import PICKLE, Schema, codec_of, schema_of_values

TIMERS = "(timers)"  # the name of their table
TIMERS_KIND = "timers"
DOMAINS = ("event", "processing")
_ONE_VALUE = {StateKind.VALUE.value, StateKind.REDUCING.value, StateKind.AGGREGATING.value}
Content = dict[str, Any]  # what KeyGroupState.snapshot gives
Columns = dict[str, list[Any]]
Schemas = dict[str, Schema]


def columns_of(content: Content) -> dict[str, Columns]:
    """State name -> its columns, as Python values. Timers are one more state."""
    found = {
        name: _state_columns(kind, encoded) for name, (kind, encoded) in content["states"].items()
    }
    timers = [(domain, *timer) for domain in DOMAINS for timer in decode_list(content[domain][1])]
    if timers:
        names = ("domain", "time", "key", "namespace")
        found[TIMERS] = dict(zip(names, map(list, zip(*timers, strict=True)), strict=True))
        found[TIMERS]["key"] = thaw_all(found[TIMERS]["key"])
    return found


def _state_columns(kind_text: str, encoded: tuple[Any, ...]) -> Columns:
    kind = kind_text.removesuffix(TTL_MARK)
    columns: Columns
    if kind == StateKind.COLUMN.value:
        return {"content": [encoded]}
    if kind in _ONE_VALUE:
        keys, values, _ = map(decode_list, encoded)
        columns = {"key": keys, "value": values}
    elif kind == StateKind.LIST.value:
        keys, _, lengths, values = map(decode_list, encoded)
        columns = {
            "key": _repeated(keys, lengths),
            "position": list(chain.from_iterable(map(range, lengths))),
            "value": values,
        }
    elif kind == StateKind.MAP.value:
        keys, counts, entries, values, _, _ = map(decode_list, encoded)
        columns = {"key": _repeated(keys, counts), "entry": thaw_all(entries), "value": values}
    else:
        raise CorruptDataError(f"Unknown kind of state '{kind_text}'.")
    if kind_text.endswith(TTL_MARK):
        columns["time"] = [time_ms for time_ms, _ in columns["value"]]
        columns["value"] = [value for _, value in columns["value"]]
    columns["key"] = thaw_all(columns["key"])
    columns["value"] = thaw_all(columns["value"])
    return columns


def _repeated(keys: list[Any], counts: list[int]) -> list[Any]:
    return [key for key, count in zip(keys, counts, strict=True) for _ in range(count)]


def schemas_of(declared: Schemas, columns: Columns) -> Schemas:
    """The schema of each column: as declared, else as the values are."""
    schemas: Schemas = {}
    for column, values in columns.items():
        schema = declared.get(column, PICKLE)
        schema = schema_of_values(values) if schema == PICKLE else schema
        schemas[column] = schema if _come_back(values, schema) else PICKLE
    return schemas


def _come_back(values: list[Any], schema: Schema) -> bool:
    """True if values are the same after they were in a column of this schema: a subclass of a declared class,
    say, would not be."""
    try:
        codec = codec_of(schema)
        back = codec.values(codec.column(values))
    except Exception:  # whatever Arrow, or a class of the user's, raises
        return False
    return all(
        type(new) is type(old) and (new == old or new != new)
        for new, old in zip(back, values, strict=True)
    )


def joined_schemas(first: Schemas, second: Schemas) -> Schemas:
    """Of columns that hold the values of both: pickles where they differ."""
    return {
        name: schema if second.get(name) == schema else PICKLE for name, schema in first.items()
    }


def to_table(key_group: int, columns: Columns, schemas: Schemas) -> pyarrow.Table:
    rows = len(next(iter(columns.values())))
    arrays = {"key_group": pyarrow.array([key_group] * rows, pyarrow.int32())}
    for name, values in columns.items():
        arrays[name] = codec_of(schemas[name]).column(values)
    return pyarrow.table(arrays)


# --- back --------------------------------------------------------------------------------------------


def to_columns(table: pyarrow.Table, schemas: Schemas) -> Columns:
    return {name: codec_of(schema).values(table.column(name)) for name, schema in schemas.items()}


def to_content(states: dict[str, tuple[str, Columns]], types: dict[str, Schemas]) -> Content:
    """Of state name -> (kind, columns), and the types they were declared with: what KeyGroupState.apply
    takes."""
    declared = {name: own for name, own in types.items() if own}
    content: Content = {"states": {}, "types": declared, "event": None, "processing": None}
    timers: Columns = {"domain": [], "time": [], "key": [], "namespace": []}
    for name, (kind, columns) in states.items():
        if kind == TIMERS_KIND:
            timers = columns
        else:
            content["states"][name] = (kind, _encoded(kind, columns))
    rows = list(zip(*(timers[n] for n in ("domain", "time", "key", "namespace")), strict=True))
    for domain in DOMAINS:
        own = [(time, key, space) for of, time, key, space in rows if of == domain]
        content[domain] = (encode_list([]), encode_list(own))
    return content


def _encoded(kind_text: str, columns: Columns) -> tuple[Any, ...]:
    kind = kind_text.removesuffix(TTL_MARK)
    if kind == StateKind.COLUMN.value:
        return columns["content"][0]  # type: ignore[no-any-return]
    keys = columns["key"]
    values = list(map(freeze, columns["value"]))
    if kind_text.endswith(TTL_MARK):
        values = list(zip(columns["time"], values, strict=True))
    if kind in _ONE_VALUE:
        return encode_list(keys), encode_list(values), encode_list([])
    runs = [(key, len(list(run))) for key, run in groupby(keys)]
    owners, counts = [key for key, _ in runs], [count for _, count in runs]
    if kind == StateKind.LIST.value:
        parts = (owners, [False] * len(owners), counts, values)
    else:
        parts = (owners, counts, columns["entry"], values, [], [])  # type: ignore[assignment]
    return tuple(map(encode_list, parts))
