"""New states for a savepoint that is made or changed without a job: from dictionaries, lists and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow

from millpond.core.key_groups import key_group_of
from millpond.datastream.state import ListStateDescriptor, MapStateDescriptor, StateDescriptor
from millpond.errors import ProgramError, SavepointError, TypeMismatchError
from millpond.savepoint.manifest import OperatorEntry
from millpond.savepoint.state_tables import DOMAINS, TIMERS, TIMERS_KIND
from millpond.state.broadcast_state import PREFIX as BROADCAST
from millpond.state.kinds.kind import KEY, TIME, VALUE, Columns
from millpond.state.kinds.list import element_columns
from millpond.state.kinds.registry import AnySpec, kind_text, spec_of
from millpond.state.operator_lists import SPLIT, UNION, deal_out
from millpond.state.types.declared import declared_schemas
from millpond.state.types.schemas import PICKLE, Schemas, schema_of_values

Times = dict[tuple[object, object], int]
"""(key, entry) -> when the entry was written, in milliseconds."""


@dataclass(frozen=True)
class NewState:
    """A state with content that is not in the savepoint from which this one is made."""

    name: str
    kind: str
    """As `registry.kind_text` writes it."""
    schemas: Schemas
    """The schema of each column."""
    types: Schemas
    """What the descriptor declares."""
    groups: dict[int, Columns]
    """Columns by key group, or by subtask of an operator without keys. Empty groups are left out."""


class _Row(NamedTuple):
    """One row of a state. `entry` tells the rows of a key apart, as the state's kind says."""

    key: object
    entry: object
    value: object
    time_ms: int | None = None


def keyed_state(
    descriptor: StateDescriptor, content: object, max_parallelism: int, times: Times
) -> NewState:
    """Return a keyed state with this content, in the forms that `Savepoint.with_state` takes.

    `times` are those of the content that it replaces, if the entries have a time to live. Raises ProgramError
    if states of this kind cannot be written.
    """
    spec = spec_of(descriptor.kind)
    if not spec.can_be_written:
        raise ProgramError(f"{spec.title} '{descriptor.name}' cannot be written.")
    rows = list(_rows(spec, descriptor, content))
    given_ms = [row.time_ms for row in rows if row.time_ms is not None]
    timed = descriptor.ttl_config is not None and bool(times or given_ms)
    newest_ms = max([*times.values(), *given_ms], default=0)
    check = _checker(descriptor)
    groups: dict[int, Columns] = {}
    for row in rows:
        columns = groups.setdefault(key_group_of(row.key, max_parallelism), {})
        _append(columns, spec, row.key, row.entry, check(row.value, row.key))
        if timed:
            known_ms = times.get((row.key, row.entry), newest_ms)
            time_ms = known_ms if row.time_ms is None else row.time_ms
            columns.setdefault(TIME, []).append(time_ms)
    kind = kind_text(descriptor.kind, timed)
    return _new_state(descriptor.name, kind, declared_schemas(descriptor), groups)


def times_of(descriptor: StateDescriptor, groups: Iterable[tuple[int, Columns]]) -> Times:
    """Return when the entries of a stored state were written; nothing if they have no time to live."""
    times: Times = {}
    name = spec_of(descriptor.kind).entry_column
    for _, columns in groups:
        if TIME in columns and (name is None or name in columns):
            entries = [None] * len(columns[KEY]) if name is None else columns[name]
            times |= zip(zip(columns[KEY], entries, strict=True), columns[TIME], strict=True)
    return times


def broadcast_state(
    descriptor: MapStateDescriptor, content: Mapping[Any, Any], operator: OperatorEntry
) -> NewState:
    """Return a broadcast state. Every key group, or subtask, has the same content."""
    spec = spec_of(descriptor.kind)
    check = _checker(descriptor)
    check_key = descriptor.key_type_info.check() or _same
    entries = {check_key(entry): check(value, entry) for entry, value in content.items()}
    columns: Columns = {}
    for entry, value in spec.entries(descriptor, entries):
        _append(columns, spec, None, entry, value)
    count = operator.max_parallelism if operator.keyed else operator.parallelism
    groups = dict.fromkeys(range(count), columns) if entries else {}
    kind = kind_text(descriptor.kind, timed=False)
    return _new_state(BROADCAST + descriptor.name, kind, declared_schemas(descriptor), groups)


def list_state(
    descriptor: ListStateDescriptor, elements: Iterable[Any], parallelism: int, union: bool
) -> NewState:
    """Return a list of a function without keys, dealt out to the subtasks; the first subtask gets all of a
    union list."""
    if descriptor.ttl_config is not None:
        raise ProgramError(
            f"The list '{descriptor.name}' has a time to live, but only keyed state can have one."
        )
    check = _checker(descriptor)
    checked = [check(element, None) for element in elements]
    parts = [checked] if union else deal_out([checked], parallelism)
    groups = {subtask: element_columns(part) for subtask, part in enumerate(parts) if part}
    name = (UNION if union else SPLIT) + descriptor.name
    kind = kind_text(descriptor.kind, timed=False)
    return _new_state(name, kind, declared_schemas(descriptor), groups)


def timers(rows: Iterable[Mapping[str, Any]], max_parallelism: int) -> NewState:
    """Return timers from rows with domain, time (in milliseconds), key and, optionally, namespace."""
    groups: dict[int, Columns] = {}
    for row in rows:
        if row["domain"] not in DOMAINS:
            raise SavepointError(
                f"The domain of a timer must be 'event' or 'processing', not {row['domain']!r}."
            )
        columns = groups.setdefault(key_group_of(row["key"], max_parallelism), {})
        for name in ("domain", "time", "key"):
            columns.setdefault(name, []).append(row[name])
        columns.setdefault("namespace", []).append(row.get("namespace"))
    types: Schemas = {"domain": "string", "time": "long"}
    state = _new_state(TIMERS, TIMERS_KIND, types, groups)
    return NewState(state.name, state.kind, state.schemas, {}, state.groups)


def _new_state(name: str, kind: str, types: Schemas, groups: dict[int, Columns]) -> NewState:
    schemas: Schemas = {}
    for column in next(iter(groups.values()), {}):
        schema = types.get(column, PICKLE)
        if schema == PICKLE:
            schema = schema_of_values([v for columns in groups.values() for v in columns[column]])
        schemas[column] = schema
    return NewState(name, kind, schemas, types, groups)


def _append(columns: Columns, spec: AnySpec, key: object, entry: object, value: object) -> None:
    columns.setdefault(KEY, []).append(key)
    if spec.entry_column is not None:
        columns.setdefault(spec.entry_column, []).append(entry)
    columns.setdefault(VALUE, []).append(value)


def _checker(descriptor: StateDescriptor) -> Callable[[object, object], object]:
    """Return the function that checks a value against its declared type. It takes value and key, which is for
    its message."""
    check = descriptor.type_info.check()

    def checked(value: object, key: object) -> object:
        if check is None:
            return value
        try:
            return check(value)
        except TypeMismatchError as mismatch:
            raise TypeMismatchError(f"State '{descriptor.name}', key {key!r}: {mismatch}") from None

    return checked


def _same(value: object) -> object:
    return value


def _rows(spec: AnySpec, descriptor: StateDescriptor, content: object) -> Iterator[_Row]:
    """Yield the rows of a state; those of a key are adjacent."""
    if not isinstance(content, Mapping):
        yield from _rows_of_frame(spec, content)
        return
    for key, content_of_key in content.items():
        for entry, value in spec.entries(descriptor, content_of_key):
            yield _Row(key, entry, value)


def _rows_of_frame(spec: AnySpec, frame: object) -> Iterator[_Row]:
    """Yield the rows of a pandas or Spark DataFrame, or of an Arrow table."""
    if hasattr(frame, "toArrow"):
        frame = frame.toArrow()
    if hasattr(frame, "to_dict"):
        frame_rows = frame.to_dict("records")
    elif isinstance(frame, pyarrow.Table):
        frame_rows = frame.to_pylist()
    else:
        raise TypeError(
            f"with_state takes a dict, a DataFrame or an Arrow table, not {type(frame).__name__}"
        )
    by_key: dict[object, dict[object, _Row]] = {}
    for frame_row in frame_rows:
        key = frame_row[KEY]
        rows = by_key.setdefault(key, {})
        entry = spec.entry_of_row(frame_row, len(rows))
        rows[entry] = _Row(key, entry, frame_row[VALUE], frame_row.get(TIME))
    for rows in by_key.values():
        yield from rows.values()
