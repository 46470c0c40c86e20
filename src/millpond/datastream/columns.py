"""Functions that take many records at once: a key group's records as columns, its state as arrays.

Beyond PyFlink. A `KeyedColumnFunction` does with NumPy what a `KeyedProcessFunction` does record by record:
same keys, same event time, same timers, same results whatever the batches. See docs/guide/columns.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy
import pyarrow
from numpy.typing import ArrayLike, NDArray

from millpond.common.basic_types import BasicType, BasicTypeInfo, TypeInformation
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
    BasicType.FLOAT: numpy.float64,  # as in Python, which has one kind of float
    BasicType.DOUBLE: numpy.float64,
    BasicType.BOOLEAN: numpy.bool_,
}


def _field(value: Any, field: str | int) -> Any:
    if isinstance(field, str) and not isinstance(value, (Row, dict)):
        return getattr(value, field)
    return value[field]


class FieldKeySelector(KeySelector):
    """Made by `fields`."""

    def __init__(self, names: tuple[str | int, ...]) -> None:
        if not names:
            raise ProgramError("fields() needs the name or position of at least one field.")
        self.names = names

    def get_key(self, value: Any) -> Any:
        if len(self.names) == 1:
            return _field(value, self.names[0])
        return tuple(_field(value, name) for name in self.names)


def fields(*names: str | int) -> FieldKeySelector:
    """A key selector: the field with this name or position, or a tuple of several.

    `stream.key_by(fields("user", "ad"))` does what `key_by(lambda view: (view.user, view.ad))` does, and
    can be done for whole columns."""
    return FieldKeySelector(names)


class TimestampField(TimestampAssigner):
    """A timestamp assigner: the field with this name or position, in milliseconds."""

    def __init__(self, name: str | int) -> None:
        self.name = name

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return _field(value, self.name)  # type: ignore[no-any-return]


class ColumnStateDescriptor(StateDescriptor):
    """A number per key. A key that has none reads `default`, and one that is set back to it takes no room:
    when all its column states are at their defaults and it has no timers, a key is forgotten."""

    kind = StateKind.COLUMN

    def __init__(
        self, name: str, type_info: TypeInformation | Any, default: int | float | bool = 0
    ) -> None:
        super().__init__(name, type_info)
        declared = self.type_info
        dtype = _DTYPES.get(declared.basic_type) if isinstance(declared, BasicTypeInfo) else None
        if dtype is None:
            raise ProgramError(
                f"Column state '{name}' is declared as {declared}; columns hold numbers: Types.INT(), "
                "LONG(), DOUBLE(), BOOLEAN() and such. Use a KeyedProcessFunction for other types."
            )
        self.dtype = numpy.dtype(dtype)
        self.default = self.dtype.type(default)
        if self.default != self.default:
            raise ProgramError(
                f"Column state '{name}': NaN equals nothing and cannot be the default."
            )


class ColumnState(ABC):
    """`rows` are those of `KeyedColumns.rows`: an array with the row of each event's key."""

    @abstractmethod
    def get(self, rows: Numbers) -> Numbers:
        """The values of the rows as they are now."""

    @abstractmethod
    def put(self, rows: Numbers, values: ArrayLike) -> None:
        """Set the values of the rows. If a row comes more than once, its last value stays."""

    @abstractmethod
    def running_sum(self, rows: Numbers, amounts: ArrayLike) -> Numbers:
        """Add each amount to its row, one after the other, and tell what the row held after it."""

    @abstractmethod
    def running_max(self, rows: Numbers, values: ArrayLike) -> Numbers:
        """Let each value raise its row, one after the other, and tell what the row held after it."""

    @abstractmethod
    def running_min(self, rows: Numbers, values: ArrayLike) -> Numbers:
        """Let each value lower its row, one after the other, and tell what the row held after it."""


class KeyedColumns(ABC):
    """Events of one key group in the order in which they happen: records, and timers that fire between
    them. All arrays have one entry per event."""

    rows: NDArray[numpy.int64]  # of the event's key in column states
    fired: NDArray[numpy.bool_]  # True for timers
    times: NDArray[
        numpy.int64
    ]  # a record's timestamp (Long.MIN_VALUE if it has none); a timer's time
    watermarks: NDArray[numpy.int64]  # the event-time clock
    # The records, in order: one row per event with `fired` False. If there are none it may have no columns.
    records: pyarrow.RecordBatch

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def column(self, name: str) -> Numbers:
        """A column of `records` as a NumPy array. Raises if a value is missing."""

    @abstractmethod
    def keys(self, where: Numbers) -> list[Any]:
        """The keys of some events, given by positions or by a mask."""


class KeyedColumnFunction(Function):
    """A keyed function on columns."""

    @abstractmethod
    def process_columns(self, events: KeyedColumns, ctx: KeyedColumnFunction.Context) -> None:
        """Called with all the events of a stretch of event time.

        A stretch ends before the first timer that is registered in it: if one turns out to be due
        within, what the call did is taken back and it is called again with a shorter one. So it must
        keep what it remembers in column states only, and it is fast if timers are far ahead."""

    class Context(ABC):
        @abstractmethod
        def register_event_time_timers(self, where: Numbers, times: ArrayLike) -> None:
            """A timer for the key of each event that `where` (positions, or a mask) tells."""

        @abstractmethod
        def delete_event_time_timers(self, where: Numbers, times: ArrayLike) -> None:
            """Take timers back that earlier calls registered; those that do not exist are none."""

        @abstractmethod
        def collect(
            self, where: Numbers, values: list[Any] | Any, output_tag: OutputTag | None = None
        ) -> None:
            """Emit one value (of a list, an array or a record batch) for each event that `where` tells."""
