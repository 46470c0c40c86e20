"""Functions that take many records at once: the records of a key group as columns, its state as arrays.

Beyond PyFlink. A `KeyedColumnFunction` does with NumPy what a `KeyedProcessFunction` does record by record:
same keys, same event time, same timers, same results however batches are cut. See docs/guide/columns.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy
import pyarrow
from numpy.typing import ArrayLike, NDArray

from millpond.common.basic_types import BasicType, BasicTypeInfo
from millpond.common.typeinfo import TypeLike
from millpond.common.types import Row
from millpond.common.watermark_strategy import TimestampAssigner
from millpond.datastream.functions import Function, KeySelector
from millpond.datastream.output_tag import OutputTag
from millpond.datastream.state import StateDescriptor, StateKind
from millpond.errors import ProgramError

Numbers = NDArray[Any]
_DTYPES = {
    BasicType.BYTE: numpy.int8,
    BasicType.SHORT: numpy.int16,
    BasicType.INT: numpy.int32,
    BasicType.LONG: numpy.int64,
    BasicType.FLOAT: numpy.float64,  # Python has only one kind of float
    BasicType.DOUBLE: numpy.float64,
    BasicType.BOOLEAN: numpy.bool_,
}


def _field(value: Any, field: str | int) -> Any:
    if isinstance(field, str) and not isinstance(value, (Row, dict)):
        return getattr(value, field)
    return value[field]


class FieldKeySelector(KeySelector):
    """A key selector for one or several fields, made by `fields`."""

    def __init__(self, names: tuple[str | int, ...]) -> None:
        if not names:
            raise ProgramError("fields() needs the name or position of at least one field.")
        self.names = names

    def get_key(self, value: object) -> Any:
        if len(self.names) == 1:
            return _field(value, self.names[0])
        return tuple(_field(value, name) for name in self.names)


def fields(*names: str | int) -> FieldKeySelector:
    """Return a key selector for the field with this name or position, or for a tuple of several.

    `stream.key_by(fields("user", "ad"))` gives the same keys as `key_by(lambda view: (view.user, view.ad))`,
    and can be computed for whole columns. Raise ProgramError without a name.
    """
    return FieldKeySelector(names)


class TimestampField(TimestampAssigner):
    """A timestamp assigner that reads the field with this name or position, in milliseconds."""

    def __init__(self, name: str | int) -> None:
        self.name = name

    def extract_timestamp(self, value: object, record_timestamp: int) -> int:
        return _field(value, self.name)  # type: ignore[no-any-return]


class ColumnStateDescriptor(StateDescriptor):
    """Describes a state that holds one number per key.

    A key without a value reads `default`. A key is forgotten, and takes no room, once all its column states
    are back at their defaults and it has no timers. Raise ProgramError for types other than numbers and
    booleans.
    """

    kind = StateKind.COLUMN

    def __init__(self, name: str, type_info: TypeLike, default: int | float | bool = 0) -> None:
        super().__init__(name, type_info)
        declared = self.type_info
        dtype = _DTYPES.get(declared.basic_type) if isinstance(declared, BasicTypeInfo) else None
        if dtype is None:
            raise ProgramError(
                f"Column state '{name}' is declared as {declared}, but columns hold numbers: Types.INT(), "
                "LONG(), DOUBLE(), BOOLEAN() and the like. Use a KeyedProcessFunction for other types."
            )
        self.dtype = numpy.dtype(dtype)
        self.default = self.dtype.type(default)
        if self.default != self.default:
            raise ProgramError(
                f"Column state '{name}' cannot have NaN as its default, because NaN equals nothing."
            )


class ColumnState(ABC):
    """The values of a column state. `rows` is an array with the row of each event's key, from
    `KeyedColumns.rows`."""

    @abstractmethod
    def get(self, rows: Numbers) -> Numbers:
        """Return the current values of the rows."""

    @abstractmethod
    def put(self, rows: Numbers, values: ArrayLike) -> None:
        """Set the values of the rows. If a row occurs more than once, its last value stays."""

    @abstractmethod
    def running_sum(self, rows: Numbers, amounts: ArrayLike) -> Numbers:
        """Add each amount to its row, one after the other; return what the row held after each addition."""

    @abstractmethod
    def running_max(self, rows: Numbers, values: ArrayLike) -> Numbers:
        """Raise each row to its value if that is larger, one after the other; return what the row held
        after each step."""

    @abstractmethod
    def running_min(self, rows: Numbers, values: ArrayLike) -> Numbers:
        """Lower each row to its value if that is smaller, one after the other; return what the row held
        after each step."""


class KeyedColumns(ABC):
    """The events of one key group in the order in which they happen: records, and the timers that fire
    between them.

    All arrays have one entry per event.
    """

    rows: NDArray[numpy.int64]  # the row of the event's key in column states
    fired: NDArray[numpy.bool_]  # True for timers
    # A record's timestamp (the smallest long if it has none), or a timer's time.
    times: NDArray[numpy.int64]
    watermarks: NDArray[numpy.int64]  # the event-time clock
    # The records, in order: one row per event with `fired` False. Without records it may have no columns.
    records: pyarrow.RecordBatch

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def column(self, name: str) -> Numbers:
        """Return a column of `records` as a NumPy array; raise if a value is missing."""

    @abstractmethod
    def keys(self, where: Numbers) -> list[Any]:
        """Return the keys of the events that `where` selects, by positions or by a mask."""


class KeyedColumnFunction(Function):
    """A keyed function on columns, for `KeyedStream.process_columns`."""

    @abstractmethod
    def process_columns(self, events: KeyedColumns, ctx: KeyedColumnFunction.Context) -> None:
        """Process all events of a stretch of event time.

        A stretch ends before the first timer that is registered in it: if a new timer turns out to be due
        within the stretch, what the call did is undone and the function is called again with a shorter one.
        So a function must keep everything it remembers in column states; it is fast if its timers lie far
        ahead.
        """

    class Context(ABC):
        """Timers and output of the current call."""

        @abstractmethod
        def register_event_time_timers(self, where: Numbers, times: ArrayLike) -> None:
            """Register a timer for the key of each event that `where` selects, by positions or by a mask."""

        @abstractmethod
        def delete_event_time_timers(self, where: Numbers, times: ArrayLike) -> None:
            """Delete timers that earlier calls registered; those that do not exist are ignored."""

        @abstractmethod
        def collect(
            self,
            where: Numbers,
            values: list[Any] | Numbers | pyarrow.RecordBatch,
            output_tag: OutputTag | None = None,
        ) -> None:
            """Emit one value, from a list, an array or a record batch, for each event that `where` selects.

            With `output_tag` they go to that side output.
            """
