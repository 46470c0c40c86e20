"""Column state: one number per key, in an array that functions on columns read and write as a whole.

All column states of a function share one table (`columns/table.py`), which also holds its timers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from millpond.common.json_values import JsonValue
from millpond.datastream.columns import ColumnStateDescriptor
from millpond.datastream.state import State, StateKind
from millpond.errors import UnsupportedFeatureError
from millpond.state.columns.handle import ColumnStateHandle
from millpond.state.columns.table import ColumnTable
from millpond.state.grouping import Grouping
from millpond.state.handles import CurrentKey
from millpond.state.kinds.kind import (
    BackendFamily,
    BoundHandle,
    Columns,
    DecodeJson,
    Opened,
    StateKindSpec,
)
from millpond.state.tables import ChangeColumns, Changes

CONTENT = "content"


class ColumnKind(StateKindSpec[ColumnStateDescriptor, ColumnTable]):
    """The specification of column state. It has neither a time to live nor look-ups, and a savepoint holds it
    as one opaque value per key group."""

    kind = StateKind.COLUMN
    in_memory_only = True
    for_column_functions = True
    can_be_queryable = False
    can_be_written = False

    def hash_table(self) -> ColumnTable:
        """Return an empty table."""
        return ColumnTable()

    def handle(
        self, descriptor: ColumnStateDescriptor, current: CurrentKey, family: BackendFamily
    ) -> BoundHandle:
        """Return a ColumnState. It is told which rows to use, so it needs no current key."""
        return ColumnStateHandle(descriptor)

    def split(self, changes: ChangeColumns, grouping: Grouping) -> dict[int, ChangeColumns]:
        """Refuse to: functions on columns work on one key group at a time."""
        raise NotImplementedError

    def to_columns(self, changes: Changes, timed: bool) -> Columns:
        """Return one row: `content`, the changes as they are."""
        return {CONTENT: [changes]}

    def to_changes(self, columns: Columns, timed: bool) -> Changes:
        """Return the changes that `to_columns` was given."""
        (changes,) = columns[CONTENT]
        return changes  # type: ignore[no-any-return]

    def entries(
        self, descriptor: ColumnStateDescriptor, content: object
    ) -> Iterable[tuple[Any, Any]]:
        """Refuse to write column state into a new savepoint."""
        raise UnsupportedFeatureError(f"Column state '{descriptor.name}' cannot be written.")

    def look_up_value(
        self, descriptor: ColumnStateDescriptor, content: object, opened: Opened
    ) -> object:
        """Refuse the look-up."""
        _refuse_look_up(descriptor)

    def read_only_view(
        self, descriptor: ColumnStateDescriptor, data: JsonValue, decode: DecodeJson
    ) -> State:
        """Refuse the look-up."""
        _refuse_look_up(descriptor)


def _refuse_look_up(descriptor: ColumnStateDescriptor) -> NoReturn:
    raise UnsupportedFeatureError(f"Column state '{descriptor.name}' cannot be queryable.")
