"""Types of single values, and the base of all types."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from enum import Enum
from typing import Any

from millpond.common.time import Instant
from millpond.errors import TypeMismatchError


class TypeInformation:
    """Base of all types. Two types are equal when they describe the same values."""

    def conform(self, value: Any) -> Any:
        """Return `value` in the form this type promises; raise TypeMismatchError if it cannot be."""
        return value

    def check(self) -> Callable[[Any], Any] | None:
        """The function to apply to each value, or None if every value fits as it is."""
        return self.conform

    def _mismatch(self, value: Any) -> TypeMismatchError:
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
    """One plain value. None always fits."""

    def __init__(self, basic_type: BasicType) -> None:
        self.basic_type = basic_type
        bits = _INTEGER_BITS.get(basic_type)
        self.limits = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if bits else None

    def conform(self, value: Any) -> Any:
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
        """`conform` with a short way for the values that come by the million."""
        conform = self.conform
        if self.limits is not None:
            low, high = self.limits

            def check_integer(value: Any) -> Any:
                return value if type(value) is int and low <= value <= high else conform(value)

            return check_integer
        classes = _PYTHON_CLASS[self.basic_type]
        plain = classes if isinstance(classes, type) else classes[0]
        return lambda value: value if type(value) is plain else conform(value)

    def __repr__(self) -> str:
        return self.basic_type.value

    @staticmethod
    def STRING_TYPE_INFO() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.STRING)

    @staticmethod
    def BOOLEAN_TYPE_INFO() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.BOOLEAN)

    @staticmethod
    def BYTE_TYPE_INFO() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.BYTE)

    @staticmethod
    def SHORT_TYPE_INFO() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.SHORT)

    @staticmethod
    def INT_TYPE_INFO() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.INT)

    @staticmethod
    def LONG_TYPE_INFO() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.LONG)

    @staticmethod
    def FLOAT_TYPE_INFO() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.FLOAT)

    @staticmethod
    def DOUBLE_TYPE_INFO() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.DOUBLE)

    @staticmethod
    def CHAR_TYPE_INFO() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.CHAR)

    @staticmethod
    def BIG_INT_TYPE_INFO() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.BIG_INT)

    @staticmethod
    def BIG_DEC_TYPE_INFO() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.BIG_DEC)

    @staticmethod
    def INSTANT_TYPE_INFO() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.INSTANT)


class _ClassTypeInfo(TypeInformation):
    """Values of one Python class, or None."""

    python_class: type | tuple[type, ...] = object

    def conform(self, value: Any) -> Any:
        if value is not None and not isinstance(value, self.python_class):
            raise self._mismatch(value)
        return value

    def __repr__(self) -> str:
        return type(self).__name__


class DateTypeInfo(_ClassTypeInfo):
    python_class = datetime.date


class TimeTypeInfo(_ClassTypeInfo):
    python_class = datetime.time


class TimestampTypeInfo(_ClassTypeInfo):
    python_class = datetime.datetime


class SqlTimeTypeInfo(TypeInformation):
    """Makers of the SQL time types."""

    @staticmethod
    def DATE() -> TypeInformation:
        return DateTypeInfo()

    @staticmethod
    def TIME() -> TypeInformation:
        return TimeTypeInfo()

    @staticmethod
    def TIMESTAMP() -> TypeInformation:
        return TimestampTypeInfo()


class PickledBytesTypeInfo(TypeInformation):
    """Any Python object that can be pickled. The type of a stream nobody declared one for."""

    def check(self) -> None:
        return None

    def __repr__(self) -> str:
        return "PickledByteArrayTypeInfo"


class ClassTypeInfo(TypeInformation):
    """Instances of a user's class (a dataclass, say), named by a type hint."""

    def __init__(self, python_class: type) -> None:
        self.python_class = python_class

    def conform(self, value: Any) -> Any:
        if value is not None and not isinstance(value, self.python_class):
            raise self._mismatch(value)
        return value

    def __repr__(self) -> str:
        return f"Class<{self.python_class.__module__}.{self.python_class.__qualname__}>"
