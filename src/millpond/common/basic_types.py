"""Types of single values, and the base class of all types."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from enum import Enum
from typing import Any

from millpond.common.time import Instant
from millpond.errors import TypeMismatchError


class TypeInformation:
    """Base class of all types. Two types are equal if they describe the same values."""

    def conform(self, value: object) -> object:
        """Return `value` in the form this type promises; raise TypeMismatchError if it does not fit."""
        return value

    def check(self) -> Callable[[Any], Any] | None:
        """Return the function to apply to each value, or None if every value fits unchanged."""
        return self.conform

    def _mismatch(self, value: object) -> TypeMismatchError:
        text = repr(value)
        text = text if len(text) <= 120 else text[:117] + "..."
        return TypeMismatchError(
            f"{text} (of type {type(value).__name__}) does not fit the declared type {self}"
        )

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __str__(self) -> str:
        return repr(self)


class BasicType(Enum):
    """The kinds of single values. The enum's values are the names that `repr` of a type shows."""

    STRING = "String"
    BYTE = "Byte"
    BOOLEAN = "Boolean"
    SHORT = "Short"
    INT = "Integer"
    LONG = "Long"
    FLOAT = "Float"
    DOUBLE = "Double"
    CHAR = "Character"
    BIG_INT = "BigInteger"
    BIG_DEC = "BigDecimal"
    INSTANT = "Instant"


_INTEGER_BITS = {BasicType.BYTE: 8, BasicType.SHORT: 16, BasicType.INT: 32, BasicType.LONG: 64}
_PYTHON_CLASS: dict[BasicType, type | tuple[type, ...]] = {
    BasicType.STRING: str,
    BasicType.BOOLEAN: bool,
    BasicType.FLOAT: (float, int),
    BasicType.DOUBLE: (float, int),
    BasicType.CHAR: str,
    BasicType.BIG_INT: int,
    BasicType.BIG_DEC: decimal.Decimal,
    BasicType.INSTANT: Instant,
}


class BasicTypeInfo(TypeInformation):
    """The type of one plain value; see `Types` for how to get one. None always fits."""

    def __init__(self, basic_type: BasicType) -> None:
        self.basic_type = basic_type
        bits = _INTEGER_BITS.get(basic_type)
        self.limits = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if bits else None

    def conform(self, value: object) -> object:
        if value is None:
            return value
        if self.limits is not None:
            if not isinstance(value, int) or isinstance(value, bool):
                raise self._mismatch(value)
            if not self.limits[0] <= value <= self.limits[1]:
                raise TypeMismatchError(
                    f"{value} is out of range for {self} "
                    f"({self.limits[0]} to {self.limits[1]}); use a wider type"
                )
            return value
        if not isinstance(value, _PYTHON_CLASS[self.basic_type]):
            raise self._mismatch(value)
        return value

    def check(self) -> Callable[[Any], Any]:
        """Return `conform` with a fast path for the usual values."""
        conform = self.conform
        if self.limits is not None:
            low, high = self.limits

            def check_integer(value: object) -> object:
                return value if type(value) is int and low <= value <= high else conform(value)

            return check_integer
        classes = _PYTHON_CLASS[self.basic_type]
        plain = classes if isinstance(classes, type) else classes[0]
        return lambda value: value if type(value) is plain else conform(value)

    def __repr__(self) -> str:
        return self.basic_type.value

    @staticmethod
    def STRING_TYPE_INFO() -> BasicTypeInfo:
        """Return the same type as `Types.STRING()`."""
        return BasicTypeInfo(BasicType.STRING)

    @staticmethod
    def BOOLEAN_TYPE_INFO() -> BasicTypeInfo:
        """Return the same type as `Types.BOOLEAN()`."""
        return BasicTypeInfo(BasicType.BOOLEAN)

    @staticmethod
    def BYTE_TYPE_INFO() -> BasicTypeInfo:
        """Return the same type as `Types.BYTE()`."""
        return BasicTypeInfo(BasicType.BYTE)

    @staticmethod
    def SHORT_TYPE_INFO() -> BasicTypeInfo:
        """Return the same type as `Types.SHORT()`."""
        return BasicTypeInfo(BasicType.SHORT)

    @staticmethod
    def INT_TYPE_INFO() -> BasicTypeInfo:
        """Return the same type as `Types.INT()`."""
        return BasicTypeInfo(BasicType.INT)

    @staticmethod
    def LONG_TYPE_INFO() -> BasicTypeInfo:
        """Return the same type as `Types.LONG()`."""
        return BasicTypeInfo(BasicType.LONG)

    @staticmethod
    def FLOAT_TYPE_INFO() -> BasicTypeInfo:
        """Return the same type as `Types.FLOAT()`."""
        return BasicTypeInfo(BasicType.FLOAT)

    @staticmethod
    def DOUBLE_TYPE_INFO() -> BasicTypeInfo:
        """Return the same type as `Types.DOUBLE()`."""
        return BasicTypeInfo(BasicType.DOUBLE)

    @staticmethod
    def CHAR_TYPE_INFO() -> BasicTypeInfo:
        """Return the same type as `Types.CHAR()`."""
        return BasicTypeInfo(BasicType.CHAR)

    @staticmethod
    def BIG_INT_TYPE_INFO() -> BasicTypeInfo:
        """Return the same type as `Types.BIG_INT()`."""
        return BasicTypeInfo(BasicType.BIG_INT)

    @staticmethod
    def BIG_DEC_TYPE_INFO() -> BasicTypeInfo:
        """Return the same type as `Types.BIG_DEC()`."""
        return BasicTypeInfo(BasicType.BIG_DEC)

    @staticmethod
    def INSTANT_TYPE_INFO() -> BasicTypeInfo:
        """Return the same type as `Types.INSTANT()`."""
        return BasicTypeInfo(BasicType.INSTANT)


class _ClassTypeInfo(TypeInformation):
    """The type of instances of one Python class, or None."""

    python_class: type | tuple[type, ...] = object

    def conform(self, value: object) -> object:
        if value is not None and not isinstance(value, self.python_class):
            raise self._mismatch(value)
        return value

    def __repr__(self) -> str:
        return type(self).__name__


class DateTypeInfo(_ClassTypeInfo):
    """The type of `datetime.date`, as made by `Types.SQL_DATE()`."""

    python_class = datetime.date


class TimeTypeInfo(_ClassTypeInfo):
    """The type of `datetime.time`, as made by `Types.SQL_TIME()`."""

    python_class = datetime.time


class TimestampTypeInfo(_ClassTypeInfo):
    """The type of `datetime.datetime`, as made by `Types.SQL_TIMESTAMP()`."""

    python_class = datetime.datetime


class SqlTimeTypeInfo(TypeInformation):
    """Factory methods for the SQL date and time types."""

    @staticmethod
    def DATE() -> TypeInformation:
        """Return the same type as `Types.SQL_DATE()`."""
        return DateTypeInfo()

    @staticmethod
    def TIME() -> TypeInformation:
        """Return the same type as `Types.SQL_TIME()`."""
        return TimeTypeInfo()

    @staticmethod
    def TIMESTAMP() -> TypeInformation:
        """Return the same type as `Types.SQL_TIMESTAMP()`."""
        return TimestampTypeInfo()


class PickledBytesTypeInfo(TypeInformation):
    """The type of any Python object that can be pickled; the default where no type is declared."""

    def check(self) -> None:
        return None

    def __repr__(self) -> str:
        return "PickledByteArrayTypeInfo"


class ClassTypeInfo(TypeInformation):
    """The type of instances of a user's class, such as a dataclass, named by a type hint."""

    def __init__(self, python_class: type) -> None:
        self.python_class = python_class

    def conform(self, value: object) -> object:
        if value is not None and not isinstance(value, self.python_class):
            raise self._mismatch(value)
        return value

    def __repr__(self) -> str:
        return f"Class<{self.python_class.__module__}.{self.python_class.__qualname__}>"
