"""What kinds with one value per key have in common: value, reducing and aggregating state."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from millpond.core.codec import freeze, thaw
from millpond.core.columns import decode_list, encode_list
from millpond.state.combining import Combining
from millpond.state.grouping import Grouping, side_by_side
from millpond.state.hash.tables import HashValueTable
from millpond.state.kinds.kind import KEY, Columns, D, Opened, StateKindSpec
from millpond.state.kinds.rows import open_columns, values_at_rest
from millpond.state.ordered.region import TableRegion
from millpond.state.ordered.tables import StoredValueTable
from millpond.state.tables import MISSING, ChangeColumns, Changes, ValueTable


class SingleValueKind(StateKindSpec[D, ValueTable]):
    """A kind whose tables hold one value per key. Changes: keys, their values, keys that are gone."""

    def hash_table(self) -> ValueTable:
        """Return an empty table in memory."""
        return HashValueTable()

    def ordered_table(self, region: TableRegion) -> ValueTable:
        """Return an empty table in a region of an ordered store."""
        return StoredValueTable(region.store, region.prefix, region.key_bytes)

    def split(self, changes: ChangeColumns, grouping: Grouping) -> dict[int, ChangeColumns]:
        """Return changes by key group."""
        keys, values, gone = changes
        return side_by_side((2, grouping.split(keys, values)), (1, grouping.split(gone)))

    def to_columns(self, changes: Changes, timed: bool) -> Columns:
        """Return one row per key: `key`, `value`."""
        keys, values, _ = map(decode_list, changes)
        return open_columns({KEY: keys}, values, timed)

    def to_changes(self, columns: Columns, timed: bool) -> Changes:
        """Return the changes that put these rows into an empty table."""
        values = values_at_rest(columns, timed)
        return encode_list(columns[KEY]), encode_list(values), encode_list([])

    def entries(self, descriptor: D, content: object) -> Iterable[tuple[Any, Any]]:
        """Return the one value that a program writes for a key."""
        return [(None, content)]

    def look_up_value(self, descriptor: D, content: object, opened: Opened) -> object:
        """Return the value."""
        return opened(content)


def merge_values(
    table: ValueTable,
    combining: Combining,
    timed: bool,
    key: object,
    into: object,
    others: Iterable[Any],
) -> None:
    """Combine the values of other windows of a key with that of the window `into`. A `timed` value gets the
    latest of the times it is made of."""
    target = (key, into)
    for other in others:
        source = (key, other)
        if source not in table.data:
            continue
        value, here = table.data[source], table.data.get(target, MISSING)
        table.remove(source)
        if here is not MISSING:
            value = _merged(combining, here, value, timed)
        table.set(target, value)


def _merged(combining: Combining, first: Any, second: Any, timed: bool) -> object:
    if not timed:
        return freeze(combining.merged(thaw(first), thaw(second)))
    merged = freeze(combining.merged(thaw(first[1]), thaw(second[1])))
    return max(first[0], second[0]), merged
