"""The contract of a state kind: everything the rest of Millpond asks about it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from millpond.common.json_values import JsonValue
from millpond.common.typeinfo import TypeInformation
from millpond.datastream.formats.avro_schemas import Schema
from millpond.datastream.state import State, StateDescriptor, StateKind
from millpond.errors import ProgramError, UnsupportedFeatureError
from millpond.state.grouping import Grouping
from millpond.state.tables import ChangeColumns, Changes, StateTable
from millpond.state.types.evolution import Convert, at_rest_converter
from millpond.state.types.schemas import Schemas

if TYPE_CHECKING:
    from millpond.state.handles import CurrentKey
    from millpond.state.ordered.region import TableRegion
    from millpond.state.shard_state import ShardState
    from millpond.state.ttl.expiry import Expiry

D = TypeVar("D", bound=StateDescriptor)
T = TypeVar("T", bound=StateTable)

Columns = dict[str, list[Any]]
"""Column name -> one value per row, as Python objects."""
Opened = Callable[[Any], Any]
"""Turns a value at rest into the value that functions see; returns MISSING if it has expired."""
DecodeJson = Callable[[JsonValue, Schema | None], Any]
"""Turns JSON into a value of a schema; None as schema: of an undeclared type."""

KEY = "key"
VALUE = "value"
ENTRY = "entry"
TIME = "time"


class BackendFamily(Enum):
    """Which tables a backend has. Handles that are called for every record know the tables they work on."""

    HASH = "hash"
    """Python dictionaries in memory."""
    ORDERED = "ordered"
    """An ordered store of bytes."""
    OTHER = "other"
    """Tables of a user's own backend: only their contract (`tables.py`) is known."""


class BoundHandle(Protocol):
    """A state as a function sees it. It follows the current key, and the shard it is bound to."""

    def bind(self, state: ShardState) -> None:
        """Turn to the tables of another shard."""


class StateKindSpec(ABC, Generic[D, T]):
    """One kind of keyed state. Specs have no state of their own; there is one object per kind.

    `D` is the descriptor of the kind, `T` the contract of its tables. Specs are asked when a task opens, when
    a shard first needs a table, and per savepoint or look-up, never per record.
    """

    kind: ClassVar[StateKind]
    """The kind that this specifies. Its value names the kind in change logs and savepoints."""
    in_memory_only: ClassVar[bool] = False
    """True if tables are in memory whatever the backend, so that `ordered_table` is never called."""
    for_column_functions: ClassVar[bool] = False
    """True if functions on columns have states of this kind, and no others; other functions have none."""
    can_be_queryable: ClassVar[bool] = True
    """False if a state of this kind cannot be looked up by other processes."""

    # --- declared types ------------------------------------------------------------------------------

    def declared_types(self, descriptor: D) -> dict[str, TypeInformation]:
        """Return the types that a descriptor declares, by savepoint column. The key's type is not one of
        them: it belongs to the operator."""
        return {VALUE: descriptor.type_info}

    def converters(self, written: Schemas, descriptor: D) -> tuple[Convert, Convert | None]:
        """Return the functions that turn values at rest, and the entries of a map, from the schemas they were
        written with into what is declared now. None: entries stay as they are.

        Raises CannotBecome, or another of `declared.CANNOT_CONVERT`, if there is no way.
        """
        return at_rest_converter(written[VALUE], descriptor.type_info), None

    # --- tables --------------------------------------------------------------------------------------

    @abstractmethod
    def hash_table(self) -> T:
        """Return an empty table in memory."""

    def ordered_table(self, region: TableRegion) -> T:
        """Return an empty table in a region of an ordered store."""
        raise UnsupportedFeatureError(
            f"{self.title} has no table in an ordered store: it must set in_memory_only."
        )

    # --- key groups ----------------------------------------------------------------------------------

    @abstractmethod
    def split(self, changes: ChangeColumns, grouping: Grouping) -> dict[int, ChangeColumns]:
        """Return changes by the key groups that their keys belong to; their order stays."""

    # --- handles -------------------------------------------------------------------------------------

    @abstractmethod
    def handle(self, descriptor: D, current: CurrentKey, family: BackendFamily) -> BoundHandle:
        """Return what a function gets for a descriptor without a time to live.

        `family` names the tables that the handle will be bound to. A handle that changes tables without their
        methods must let look-ups know if the descriptor is queryable.
        """

    def ttl_handle(self, descriptor: D, current: CurrentKey, expiry: Expiry) -> BoundHandle:
        """Return what a function gets for a descriptor with a time to live. Its values rest as (time, value).

        Raises UnsupportedFeatureError if states of this kind cannot have one.
        """
        raise UnsupportedFeatureError(
            f"{self.title} '{descriptor.name}' cannot have a time to live. Leave it out, and remove what is "
            "too old with timers."
        )

    # --- savepoints ----------------------------------------------------------------------------------

    can_be_written: ClassVar[bool] = True
    """False if programs cannot write states of this kind into savepoints (`Savepoint.with_state`)."""
    entry_column: ClassVar[str | None] = None
    """The savepoint column that tells the rows of one key apart; None if there is none."""

    @abstractmethod
    def to_columns(self, changes: Changes, timed: bool) -> Columns:
        """Return the savepoint columns of a snapshot: `key`, the entry column, `value`, and `time` if the
        state is `timed` (has a time to live)."""

    @abstractmethod
    def to_changes(self, columns: Columns, timed: bool) -> Changes:
        """Return the changes that put savepoint columns into an empty table. The inverse of `to_columns`; the
        rows of a key are adjacent."""

    @abstractmethod
    def entries(self, descriptor: D, content: object) -> Iterable[tuple[Any, Any]]:
        """Return (entry, value) of everything that a program writes into a new savepoint for one key."""

    def entry_of_row(self, row: Mapping[str, Any], before: int) -> object:
        """Return the entry of one row of a DataFrame that a program writes into a new savepoint. `before`
        counts the rows of the same key before it. Of rows with equal keys and entries the last one counts."""
        return None if self.entry_column is None else row[self.entry_column]

    # --- queryable state -----------------------------------------------------------------------------

    def entry_type(self, descriptor: D) -> TypeInformation | None:
        """Return the type of entries that can be looked up alone (`look_up_entry` of the table); None if a
        state has none."""
        return None

    @abstractmethod
    def look_up_value(self, descriptor: D, content: object, opened: Opened) -> object:
        """Return what a look-up answers, as a Python value for JSON. `content` is what the table's `look_up`
        returned, never MISSING. Return MISSING if all of it has expired."""

    @abstractmethod
    def read_only_view(self, descriptor: D, data: JsonValue, decode: DecodeJson) -> State:
        """Return a client's view of the JSON that a look-up answered: it reads like the kind's handle and
        refuses every change."""

    # --- windows -------------------------------------------------------------------------------------

    def merge(
        self, table: T, descriptor: D, key: object, into: object, others: Iterable[Any]
    ) -> None:
        """Bring what a table has under (key, window) for each window of `others` to (key, `into`); nothing is
        lost.

        Raises ProgramError if states of this kind cannot be merged.
        """
        raise ProgramError(
            f"State '{descriptor.name}' of a trigger is {self.kind.value} state, which cannot be merged: use "
            "reducing, aggregating or list state."
        )

    @property
    def title(self) -> str:
        """The kind as messages begin with it."""
        return f"{self.kind.value.capitalize()} state"
