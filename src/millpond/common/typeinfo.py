"""Types: what a stream or a state holds. Declared with `Types`, or with Python type hints.

A declared type does two things: `conform(value)` turns a value into the form the type promises
(a tuple into a `Row` for `Types.ROW`) and refuses one that does not fit, saying why.
"""

from __future__ import annotations

import datetime
import decimal
import types as python_types
import typing
from collections.abc import Callable
from enum import Enum
from typing import Any

from millpond.common.time import Instant
from millpond.common.types import Row
from millpond.errors import ProgramError, TypeMismatchError
from millpond.missing import module_getattr


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
        self._limits = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if bits else None

    def conform(self, value: Any) -> Any:
        if value is None:
            return value
        if self._limits is not None:
            if not isinstance(value, int) or isinstance(value, bool):
                raise self._mismatch(value)
            if not self._limits[0] <= value <= self._limits[1]:
                raise TypeMismatchError(
                    f"{value} is out of range for {self} "
                    f"({self._limits[0]} to {self._limits[1]}); use a wider type"
                )
            return value
        if not isinstance(value, _PYTHON_CLASS[self.basic_type]):
            raise self._mismatch(value)
        return value

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


class _ElementsTypeInfo(TypeInformation):
    label = ""

    def __init__(self, element_type: TypeInformation) -> None:
        self.element_type = to_type_info(element_type)
        self._element_check = self.element_type.check()

    def conform(self, value: Any) -> Any:
        if value is None or isinstance(value, (bytes, bytearray)):
            return value
        if not isinstance(value, (list, tuple)) and type(value).__name__ not in (
            "ndarray",
            "array",
        ):
            raise self._mismatch(value)
        if self._element_check is not None:
            for element in value:
                self._element_check(element)
        return value

    def __repr__(self) -> str:
        return f"{self.label}<{self.element_type}>"


class PrimitiveArrayTypeInfo(_ElementsTypeInfo):
    label = "PrimitiveArray"


class BasicArrayTypeInfo(_ElementsTypeInfo):
    label = "BasicArray"


class ObjectArrayTypeInfo(_ElementsTypeInfo):
    label = "ObjectArray"


class ListTypeInfo(_ElementsTypeInfo):
    label = "List"


class MapTypeInfo(TypeInformation):
    def __init__(self, key_type_info: TypeInformation, value_type_info: TypeInformation) -> None:
        self.key_type_info = to_type_info(key_type_info)
        self.value_type_info = to_type_info(value_type_info)

    def conform(self, value: Any) -> Any:
        if value is None:
            return value
        if not isinstance(value, dict):
            raise self._mismatch(value)
        for key, item in value.items():
            self.key_type_info.conform(key)
            self.value_type_info.conform(item)
        return value

    def __repr__(self) -> str:
        return f"Map<{self.key_type_info}, {self.value_type_info}>"


class _FieldsTypeInfo(TypeInformation):
    def __init__(self, field_types: list[TypeInformation]) -> None:
        self.types = [to_type_info(field_type) for field_type in field_types]
        self._checks = [field_type.check() for field_type in self.types]

    def get_field_types(self) -> list[TypeInformation]:
        return self.types

    def _conform_fields(self, value: Any) -> list[Any]:
        if len(value) != len(self._checks):
            raise TypeMismatchError(
                f"{value!r} has {len(value)} fields, but the declared type {self} has "
                f"{len(self._checks)}"
            )
        try:
            return [
                item if check is None else check(item)
                for check, item in zip(self._checks, value, strict=True)
            ]
        except TypeMismatchError as mismatch:
            raise TypeMismatchError(f"{mismatch}, a field of {self} in {value!r}") from None


class TupleTypeInfo(_FieldsTypeInfo):
    def conform(self, value: Any) -> Any:
        if value is None:
            return value
        if not isinstance(value, (tuple, list, Row)):
            raise self._mismatch(value)
        return tuple(self._conform_fields(value))

    def __repr__(self) -> str:
        return f"Tuple<{', '.join(map(str, self.types))}>"


class RowTypeInfo(_FieldsTypeInfo):
    def __init__(
        self, field_types: list[TypeInformation], field_names: list[str] | None = None
    ) -> None:
        super().__init__(field_types)
        if field_names is not None and len(field_names) != len(field_types):
            raise ProgramError(
                f"Types.ROW_NAMED needs as many names as types: {field_names} against "
                f"{len(field_types)} types."
            )
        self.field_names = field_names or [f"f{i}" for i in range(len(field_types))]

    def get_field_names(self) -> list[str]:
        return self.field_names

    def get_field_index(self, field_name: str) -> int:
        return self.field_names.index(field_name) if field_name in self.field_names else -1

    def conform(self, value: Any) -> Any:
        if value is None:
            return value
        if isinstance(value, dict):
            missing = [name for name in self.field_names if name not in value]
            if missing:
                raise TypeMismatchError(f"{value!r} lacks {missing}, fields of {self}")
            value = [value[name] for name in self.field_names]
        if not isinstance(value, (tuple, list, Row)):
            raise self._mismatch(value)
        row = Row(*self._conform_fields(value))
        row.set_field_names(self.field_names)
        if isinstance(value, Row):
            row.set_row_kind(value.get_row_kind())
        return row

    def __repr__(self) -> str:
        fields = ", ".join(
            f"{name}: {field_type}"
            for name, field_type in zip(self.field_names, self.types, strict=True)
        )
        return f"Row<{fields}>"


class ExternalTypeInfo(TypeInformation):
    """A type of the Table API around another type."""

    def __init__(self, type_info: TypeInformation) -> None:
        self._type_info = to_type_info(type_info)

    def conform(self, value: Any) -> Any:
        return self._type_info.conform(value)

    def __repr__(self) -> str:
        return f"External<{self._type_info}>"


class Types:
    """Makers of all types, with PyFlink's names."""

    @staticmethod
    def STRING() -> TypeInformation:
        return BasicTypeInfo(BasicType.STRING)

    @staticmethod
    def BYTE() -> TypeInformation:
        return BasicTypeInfo(BasicType.BYTE)

    @staticmethod
    def BOOLEAN() -> TypeInformation:
        return BasicTypeInfo(BasicType.BOOLEAN)

    @staticmethod
    def SHORT() -> TypeInformation:
        return BasicTypeInfo(BasicType.SHORT)

    @staticmethod
    def INT() -> TypeInformation:
        return BasicTypeInfo(BasicType.INT)

    @staticmethod
    def LONG() -> TypeInformation:
        return BasicTypeInfo(BasicType.LONG)

    @staticmethod
    def FLOAT() -> TypeInformation:
        return BasicTypeInfo(BasicType.FLOAT)

    @staticmethod
    def DOUBLE() -> TypeInformation:
        return BasicTypeInfo(BasicType.DOUBLE)

    @staticmethod
    def CHAR() -> TypeInformation:
        return BasicTypeInfo(BasicType.CHAR)

    @staticmethod
    def BIG_INT() -> TypeInformation:
        return BasicTypeInfo(BasicType.BIG_INT)

    @staticmethod
    def BIG_DEC() -> TypeInformation:
        return BasicTypeInfo(BasicType.BIG_DEC)

    @staticmethod
    def INSTANT() -> TypeInformation:
        return BasicTypeInfo(BasicType.INSTANT)

    @staticmethod
    def SQL_DATE() -> TypeInformation:
        return DateTypeInfo()

    @staticmethod
    def SQL_TIME() -> TypeInformation:
        return TimeTypeInfo()

    @staticmethod
    def SQL_TIMESTAMP() -> TypeInformation:
        return TimestampTypeInfo()

    @staticmethod
    def PICKLED_BYTE_ARRAY() -> TypeInformation:
        return PickledBytesTypeInfo()

    @staticmethod
    def ROW(field_types: list[TypeInformation]) -> RowTypeInfo:
        return RowTypeInfo(field_types)

    @staticmethod
    def ROW_NAMED(field_names: list[str], field_types: list[TypeInformation]) -> RowTypeInfo:
        return RowTypeInfo(field_types, field_names)

    @staticmethod
    def TUPLE(field_types: list[TypeInformation]) -> TupleTypeInfo:
        return TupleTypeInfo(field_types)

    @staticmethod
    def PRIMITIVE_ARRAY(element_type: TypeInformation) -> TypeInformation:
        return PrimitiveArrayTypeInfo(element_type)

    @staticmethod
    def BASIC_ARRAY(element_type: TypeInformation) -> TypeInformation:
        return BasicArrayTypeInfo(element_type)

    @staticmethod
    def OBJECT_ARRAY(element_type: TypeInformation) -> TypeInformation:
        return ObjectArrayTypeInfo(element_type)

    @staticmethod
    def MAP(key_type_info: TypeInformation, value_type_info: TypeInformation) -> TypeInformation:
        return MapTypeInfo(key_type_info, value_type_info)

    @staticmethod
    def LIST(element_type_info: TypeInformation) -> TypeInformation:
        return ListTypeInfo(element_type_info)


_HINTS: dict[Any, Callable[[], TypeInformation]] = {
    str: Types.STRING,
    bool: Types.BOOLEAN,
    int: Types.BIG_INT,
    float: Types.DOUBLE,
    bytes: lambda: Types.PRIMITIVE_ARRAY(Types.BYTE()),
    decimal.Decimal: Types.BIG_DEC,
    datetime.datetime: Types.SQL_TIMESTAMP,
    datetime.date: Types.SQL_DATE,
    datetime.time: Types.SQL_TIME,
    Instant: Types.INSTANT,
    Any: Types.PICKLED_BYTE_ARRAY,
    object: Types.PICKLED_BYTE_ARRAY,
    tuple: Types.PICKLED_BYTE_ARRAY,
    list: Types.PICKLED_BYTE_ARRAY,
    dict: Types.PICKLED_BYTE_ARRAY,
}


def to_type_info(declared: Any) -> TypeInformation:
    """A `TypeInformation` from one, from a Python type hint, or from None (anything goes)."""
    if isinstance(declared, TypeInformation):
        return declared
    if declared is None:
        return PickledBytesTypeInfo()
    if declared in _HINTS:
        return _HINTS[declared]()
    origin, arguments = typing.get_origin(declared), typing.get_args(declared)
    if origin is tuple and arguments and arguments[-1] is not Ellipsis:
        return TupleTypeInfo([to_type_info(argument) for argument in arguments])
    if origin in (list, tuple) and arguments:
        return ListTypeInfo(to_type_info(arguments[0]))
    if origin is dict:
        return MapTypeInfo(to_type_info(arguments[0]), to_type_info(arguments[1]))
    if origin in (typing.Union, python_types.UnionType):
        given = [argument for argument in arguments if argument is not type(None)]
        return to_type_info(given[0]) if len(given) == 1 else PickledBytesTypeInfo()
    if isinstance(declared, type):
        return ClassTypeInfo(declared)
    raise ProgramError(
        f"{declared!r} is not a type Millpond knows: use millpond.common.Types or a type hint "
        "such as tuple[str, int]."
    )


__getattr__ = module_getattr(__name__)
