"""List state: elements per key, in the order in which they were added."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain, islice
from typing import Any

from millpond.common.json_values import JsonValue
from millpond.core.columns import decode_list, encode_list
from millpond.datastream.state import ListState, ListStateDescriptor, State, StateKind
from millpond.state.grouping import Grouping
from millpond.state.handles import CurrentKey, ListStateHandle
from millpond.state.hash.tables import HashListTable
from millpond.state.kinds.kind import (
    KEY,
    VALUE,
    BackendFamily,
    BoundHandle,
    Columns,
    DecodeJson,
    Opened,
    StateKindSpec,
)
from millpond.state.kinds.read_only import ReadOnlyAppendingView, refuse_change
from millpond.state.kinds.rows import counted, open_columns, repeated, values_at_rest
from millpond.state.ordered.lists import StoredListTable
from millpond.state.ordered.region import TableRegion
from millpond.state.tables import MISSING, ChangeColumns, Changes, ListTable
from millpond.state.ttl.expiry import Expiry
from millpond.state.ttl.handles import TtlListState
from millpond.state.types.schemas import schema_of

POSITION = "position"


class ListKind(StateKindSpec[ListStateDescriptor, ListTable]):
    """The specification of list state. Changes: keys, whether elements are appended to each (else they
    replace what is there), how many elements each has, all elements."""

    kind = StateKind.LIST
    entry_column = POSITION

    def hash_table(self) -> ListTable:
        """Return an empty table in memory."""
        return HashListTable()

    def ordered_table(self, region: TableRegion) -> ListTable:
        """Return an empty table in a region of an ordered store."""
        return StoredListTable(region.store, region.prefix, region.next_number)

    def handle(
        self, descriptor: ListStateDescriptor, current: CurrentKey, family: BackendFamily
    ) -> BoundHandle:
        """Return a ListState."""
        return ListStateHandle(descriptor, current)

    def ttl_handle(
        self, descriptor: ListStateDescriptor, current: CurrentKey, expiry: Expiry
    ) -> BoundHandle:
        """Return a ListState whose elements expire one by one."""
        return TtlListState(descriptor, current, expiry)

    def split(self, changes: ChangeColumns, grouping: Grouping) -> dict[int, ChangeColumns]:
        """Return changes by key group."""
        keys, appended, lengths, elements = changes
        rest = iter(elements)
        lists = [list(islice(rest, length)) for length in lengths]
        return {
            group: (*columns, list(chain.from_iterable(own_lists)))
            for group, (*columns, own_lists) in grouping.split(
                keys, appended, lengths, lists
            ).items()
        }

    def to_columns(self, changes: Changes, timed: bool) -> Columns:
        """Return one row per element: `key`, `position`, `value`."""
        keys, _, lengths, elements = map(decode_list, changes)
        positions = list(chain.from_iterable(map(range, lengths)))
        return open_columns({KEY: repeated(keys, lengths), POSITION: positions}, elements, timed)

    def to_changes(self, columns: Columns, timed: bool) -> Changes:
        """Return the changes that put these rows into an empty table."""
        keys, lengths = counted(columns[KEY])
        parts = (keys, [False] * len(keys), lengths, values_at_rest(columns, timed))
        return tuple(map(encode_list, parts))

    def entries(self, descriptor: ListStateDescriptor, content: Any) -> Iterable[tuple[Any, Any]]:
        """Return (position, element) of the list that a program writes for a key."""
        return enumerate(content)

    def entry_of_row(self, row: Mapping[str, Any], before: int) -> object:
        """Return the position: elements are in the order of their rows."""
        return before

    def look_up_value(
        self, descriptor: ListStateDescriptor, content: Any, opened: Opened
    ) -> object:
        """Return the elements that have not expired."""
        elements = [opened(element) for element in content]
        return [element for element in elements if element is not MISSING] or MISSING

    def read_only_view(
        self, descriptor: ListStateDescriptor, data: JsonValue, decode: DecodeJson
    ) -> State:
        """Return a ListState that cannot be changed."""
        schema = {"type": "array", "items": schema_of(descriptor.type_info)}
        return _ReadOnlyList(decode(data, schema))

    def merge(
        self,
        table: ListTable,
        descriptor: ListStateDescriptor,
        key: object,
        into: object,
        others: Iterable[Any],
    ) -> None:
        """Append the elements of other windows to those of one of them."""
        for other in others:
            source = (key, other)
            if source in table.data:
                elements = list(table.data[source])
                table.replace(source, [])
                table.extend((key, into), elements)


def element_columns(elements: list[Any]) -> Columns:
    """Return the savepoint columns of a list that belongs to a subtask instead of a key."""
    count = len(elements)
    return {KEY: [None] * count, POSITION: list(range(count)), VALUE: elements}


class _ReadOnlyList(ReadOnlyAppendingView, ListState[Any]):
    def update(self, values: list[Any]) -> None:
        refuse_change()

    def add_all(self, values: list[Any]) -> None:
        refuse_change()
