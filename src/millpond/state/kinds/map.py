"""Map state: entries per key, each read, written and logged alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from millpond.common.json_values import JsonValue
from millpond.common.typeinfo import TypeInformation
from millpond.core.codec import thaw, thaw_all
from millpond.core.columns import decode_list, encode_list
from millpond.datastream.formats.avro_schemas import map_schema
from millpond.datastream.state import MapState, MapStateDescriptor, State, StateKind
from millpond.state.grouping import Grouping, Parts, side_by_side
from millpond.state.handles import (
    CurrentKey,
    HashMapStateHandle,
    MapStateHandle,
    WatchedMapStateHandle,
)
from millpond.state.hash.maps import HashMapTable
from millpond.state.kinds.kind import (
    ENTRY,
    KEY,
    VALUE,
    BackendFamily,
    BoundHandle,
    Columns,
    DecodeJson,
    Opened,
    StateKindSpec,
)
from millpond.state.kinds.read_only import ReadOnlyView, refuse_change
from millpond.state.kinds.rows import counted, open_columns, repeated, values_at_rest
from millpond.state.ordered.map_handle import StoredMapStateHandle
from millpond.state.ordered.maps import StoredMapTable
from millpond.state.ordered.region import TableRegion
from millpond.state.tables import MISSING, ChangeColumns, Changes, MapTable
from millpond.state.ttl.expiry import Expiry
from millpond.state.ttl.handles import TtlMapState
from millpond.state.types.evolution import Convert, at_rest_converter
from millpond.state.types.schemas import Schemas, schema_of


class MapKind(StateKindSpec[MapStateDescriptor, MapTable]):
    """The specification of map state. Changes: keys, how many entries each has, the entries, their values;
    (key, entry) of those that are gone; of those that moved to the end."""

    kind = StateKind.MAP
    entry_column = ENTRY

    def declared_types(self, descriptor: MapStateDescriptor) -> dict[str, TypeInformation]:
        """Return the types of values and of entries."""
        return {VALUE: descriptor.type_info, ENTRY: descriptor.key_type_info}

    def converters(
        self, written: Schemas, descriptor: MapStateDescriptor
    ) -> tuple[Convert, Convert | None]:
        """Return the functions for values and, if their type has changed, for entries."""
        value, _ = super().converters(written, descriptor)
        if written[ENTRY] == schema_of(descriptor.key_type_info):
            return value, None
        convert = at_rest_converter(written[ENTRY], descriptor.key_type_info)
        return value, lambda entry: thaw(convert(entry))  # entries are looked up, so never frozen

    def hash_table(self) -> MapTable:
        """Return an empty table in memory."""
        return HashMapTable()

    def ordered_table(self, region: TableRegion) -> MapTable:
        """Return an empty table in a region of an ordered store."""
        return StoredMapTable(region.store, region.prefix, region.key_bytes)

    def handle(
        self, descriptor: MapStateDescriptor, current: CurrentKey, family: BackendFamily
    ) -> BoundHandle:
        """Return a MapState that knows the tables of the backend, if they are ours."""
        if family is BackendFamily.HASH:
            watched = descriptor.is_queryable()
            return (WatchedMapStateHandle if watched else HashMapStateHandle)(descriptor, current)
        if family is BackendFamily.ORDERED:
            return StoredMapStateHandle(descriptor, current)
        return MapStateHandle(descriptor, current)

    def ttl_handle(
        self, descriptor: MapStateDescriptor, current: CurrentKey, expiry: Expiry
    ) -> BoundHandle:
        """Return a MapState whose entries expire one by one."""
        return TtlMapState(descriptor, current, expiry)

    def split(self, changes: ChangeColumns, grouping: Grouping) -> dict[int, ChangeColumns]:
        """Return changes by key group."""
        keys, counts, entries, values, gone, moved = changes
        each = repeated(keys, counts)
        owner_at = 1 if grouping.by_entry else 0
        owners = entries if grouping.by_entry else each
        parts: Parts = {
            group: (own, [1] * len(own), own_entries, own_values)
            for group, (own, own_entries, own_values) in grouping.split(
                owners, each, entries, values, with_keys=False
            ).items()
        }
        lost = grouping.split([pair[owner_at] for pair in gone], gone, with_keys=False)
        later = grouping.split([pair[owner_at] for pair in moved], moved, with_keys=False)
        return side_by_side((4, parts), (1, lost), (1, later))

    def to_columns(self, changes: Changes, timed: bool) -> Columns:
        """Return one row per entry: `key`, `entry`, `value`."""
        keys, counts, entries, values, _, _ = map(decode_list, changes)
        columns = {KEY: repeated(keys, counts), ENTRY: thaw_all(entries)}
        return open_columns(columns, values, timed)

    def to_changes(self, columns: Columns, timed: bool) -> Changes:
        """Return the changes that put these rows into an empty table."""
        keys, counts = counted(columns[KEY])
        values = values_at_rest(columns, timed)
        return tuple(map(encode_list, (keys, counts, columns[ENTRY], values, [], [])))

    def entries(self, descriptor: MapStateDescriptor, content: Any) -> Iterable[tuple[Any, Any]]:
        """Return the items of the dictionary that a program writes for a key."""
        items: Iterable[tuple[Any, Any]] = content.items()
        return items

    def entry_type(self, descriptor: MapStateDescriptor) -> TypeInformation | None:
        """Return the type of the map's own keys."""
        return descriptor.key_type_info

    def look_up_value(self, descriptor: MapStateDescriptor, content: Any, opened: Opened) -> object:
        """Return the entries that have not expired, as a dictionary."""
        entries = {entry: opened(value) for entry, value in content.items()}
        return {e: value for e, value in entries.items() if value is not MISSING} or MISSING

    def read_only_view(
        self, descriptor: MapStateDescriptor, data: JsonValue, decode: DecodeJson
    ) -> State:
        """Return a MapState that cannot be changed."""
        value_schema, entry_schema = map(
            schema_of, (descriptor.type_info, descriptor.key_type_info)
        )
        return _ReadOnlyMap(decode(data, map_schema(entry_schema, value_schema)))


class _ReadOnlyMap(ReadOnlyView, MapState[Any, Any]):
    def get(self, key: object) -> Any:
        return self._content.get(key)

    def contains(self, key: object) -> bool:
        return key in self._content

    def items(self) -> Iterable[tuple[Any, Any]]:
        return list(self._content.items())

    def keys(self) -> Iterable[Any]:
        return list(self._content)

    def values(self) -> Iterable[Any]:
        return list(self._content.values())

    def is_empty(self) -> bool:
        return not self._content

    def put(self, key: object, value: object) -> None:
        refuse_change()

    def put_all(self, dict_value: dict[Any, Any]) -> None:
        refuse_change()

    def remove(self, key: object) -> None:
        refuse_change()
