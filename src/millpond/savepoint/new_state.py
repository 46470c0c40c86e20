"""States of a savepoint that is made or changed without a job: from dictionaries, lists and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow

from millpond.core.key_groups import key_group_of
from millpond.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    StateKind,
)
from millpond.errors import ProgramError, SavepointError, TypeMismatchError
from millpond.savepoint.manifest import OperatorEntry
from millpond.savepoint.state_tables import DOMAINS, TIMERS, TIMERS_KIND, Columns, Schemas
from millpond.state.broadcast_state import PREFIX as BROADCAST
from millpond.state.key_group_state import TTL_MARK, declared_schemas
from millpond.state.operator_lists import SPLIT, UNION, deal_out
from millpond.state.types.schemas import PICKLE, schema_of_values

Times = dict[tuple[Any, Any], int]  # (key, entry or position) -> when it was written


@dataclass(frozen=True)
class NewState:
    """A state that is not in the savepoint this one is made from. `groups`: by key group, or subtask."""

    name: str
    kind: str
    schemas: Schemas
    types: Schemas
    groups: dict[int, Columns]


class _Entry(NamedTuple):
    """`place`: the entry of a map, the position in a list."""

    key: Any
    place: Any
    value: Any
    time_ms: int | None = None


def keyed_state(
    descriptor: StateDescriptor, content: Any, max_parallelism: int, times: Times
) -> NewState:
    """`times`: of what is there already, if its entries have a time to live."""
    if descriptor.kind is StateKind.COLUMN:
        raise ProgramError(f"Column state '{descriptor.name}' cannot be written.")
    entries = list(_entries(descriptor, content))
    has_times = descriptor.ttl_config is not None and (
        bool(times) or any(entry.time_ms is not None for entry in entries)
    )
    newest_ms = max(
        [*times.values(), *(own.time_ms for own in entries if own.time_ms is not None)], default=0
    )
    place_name = _place_name(descriptor)
    check = _checker(descriptor)
    groups: dict[int, Columns] = {}
    for entry in entries:
        columns = groups.setdefault(key_group_of(entry.key, max_parallelism), {})
        columns.setdefault("key", []).append(entry.key)
        if place_name is not None:
            columns.setdefault(place_name, []).append(entry.place)
        columns.setdefault("value", []).append(check(entry.value, entry.key))
        if has_times:
            known_ms = times.get((entry.key, entry.place), newest_ms)
            time_ms = known_ms if entry.time_ms is None else entry.time_ms
            columns.setdefault("time", []).append(time_ms)
    kind = descriptor.kind.value + (TTL_MARK if has_times else "")
    return _new_state(descriptor.name, kind, declared_schemas(descriptor), groups)


def times_of(descriptor: StateDescriptor, groups: Iterable[tuple[int, Columns]]) -> Times:
    """Of a state that is there: when its entries were written, if that matters."""
    found: Times = {}
    name = _place_name(descriptor)
    for _, columns in groups:
        if "time" in columns and (name is None or name in columns):
            places = [None] * len(columns["key"]) if name is None else columns[name]
            found |= zip(zip(columns["key"], places, strict=True), columns["time"], strict=True)
    return found


def broadcast_state(
    descriptor: MapStateDescriptor, content: Mapping[Any, Any], operator: OperatorEntry
) -> NewState:
    """The same for every key group, or subtask."""
    check = _checker(descriptor)
    check_key = descriptor.key_type_info.check() or _same
    entries = {check_key(entry): check(value, entry) for entry, value in content.items()}
    columns = {
        "key": [None] * len(entries),
        "entry": list(entries),
        "value": list(entries.values()),
    }
    count = operator.max_parallelism if operator.keyed else operator.parallelism
    groups = dict.fromkeys(range(count), columns) if entries else {}
    return _new_state(BROADCAST + descriptor.name, "map", declared_schemas(descriptor), groups)


def list_state(
    descriptor: ListStateDescriptor, elements: Iterable[Any], parallelism: int, union: bool
) -> NewState:
    """Dealt out to the subtasks; a union list is that of the first one."""
    if descriptor.ttl_config is not None:
        raise ProgramError(
            f"The list '{descriptor.name}' has a time to live, which only keyed state can have."
        )
    check = _checker(descriptor)
    checked = [check(element, None) for element in elements]
    lists = [checked] if union else deal_out([checked], parallelism)
    groups: dict[int, Columns] = {
        subtask: {"key": [None] * len(own), "position": list(range(len(own))), "value": own}
        for subtask, own in enumerate(lists)
        if own
    }
    name = (UNION if union else SPLIT) + descriptor.name
    return _new_state(name, "list", declared_schemas(descriptor), groups)


def timers(rows: Iterable[Mapping[str, Any]], max_parallelism: int) -> NewState:
    groups: dict[int, Columns] = {}
    for row in rows:
        if row["domain"] not in DOMAINS:
            raise SavepointError(
                f"A timer's domain is 'event' or 'processing', not {row['domain']!r}."
            )
        columns = groups.setdefault(key_group_of(row["key"], max_parallelism), {})
        for name in ("domain", "time", "key"):
            columns.setdefault(name, []).append(row[name])
        columns.setdefault("namespace", []).append(row.get("namespace"))
    types = {"domain": "string", "time": "long"}
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


def _place_name(descriptor: StateDescriptor) -> str | None:
    if isinstance(descriptor, ListStateDescriptor):
        return "position"
    return "entry" if isinstance(descriptor, MapStateDescriptor) else None


def _checker(descriptor: StateDescriptor) -> Callable[[Any, Any], Any]:
    check = descriptor.type_info.check()

    def checked(value: Any, key: Any) -> Any:
        if check is None:
            return value
        try:
            return check(value)
        except TypeMismatchError as mismatch:
            raise TypeMismatchError(f"State '{descriptor.name}', key {key!r}: {mismatch}") from None

    return checked


def _same(value: Any) -> Any:
    return value


def _entries(descriptor: StateDescriptor, content: Any) -> Iterator[_Entry]:
    """The entries of a key together."""
    if not isinstance(content, Mapping):
        yield from _from_frame(descriptor, content)
        return
    for key, value in content.items():
        if isinstance(descriptor, ListStateDescriptor):
            yield from (_Entry(key, position, element) for position, element in enumerate(value))
        elif isinstance(descriptor, MapStateDescriptor):
            yield from (_Entry(key, entry, own) for entry, own in value.items())
        else:
            yield _Entry(key, None, value)


def _from_frame(descriptor: StateDescriptor, frame: Any) -> Iterator[_Entry]:
    """Of a pandas or Spark DataFrame, or an Arrow table."""
    if hasattr(frame, "toArrow"):
        frame = frame.toArrow()
    if hasattr(frame, "to_dict"):
        rows = frame.to_dict("records")
    elif isinstance(frame, pyarrow.Table):
        rows = frame.to_pylist()
    else:
        raise TypeError(
            f"with_state takes a dict, a DataFrame or an Arrow table, not {type(frame).__name__}"
        )
    found: dict[Any, dict[Any, _Entry]] = {}
    for row in rows:
        key, own = row["key"], found.setdefault(row["key"], {})
        place: Any = None
        if isinstance(descriptor, ListStateDescriptor):
            place = len(own)
        elif isinstance(descriptor, MapStateDescriptor):
            place = row["entry"]
        own[place] = _Entry(key, place, row["value"], row.get("time"))
    for entries in found.values():
        yield from entries.values()
