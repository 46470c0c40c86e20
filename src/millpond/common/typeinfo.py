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
from typing import Any

from millpond.common.basic_types import (
    BasicType,
    BasicTypeInfo,
    ClassTypeInfo,
    DateTypeInfo,
    PickledBytesTypeInfo,
    SqlTimeTypeInfo,
    TimestampTypeInfo,
    TimeTypeInfo,
    TypeInformation,
)
from millpond.common.composite_types import (
    BasicArrayTypeInfo,
    ExternalTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
)
from millpond.common.time import Instant
from millpond.errors import ProgramError
from millpond.missing import module_getattr

__all__ = [
    "BasicArrayTypeInfo",
    "BasicType",
    "BasicTypeInfo",
    "ClassTypeInfo",
    "DateTypeInfo",
    "ExternalTypeInfo",
    "ListTypeInfo",
    "MapTypeInfo",
    "ObjectArrayTypeInfo",
    "PickledBytesTypeInfo",
    "PrimitiveArrayTypeInfo",
    "RowTypeInfo",
    "SqlTimeTypeInfo",
    "TimeTypeInfo",
    "TimestampTypeInfo",
    "TupleTypeInfo",
    "TypeInformation",
    "Types",
    "to_type_info",
]


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
        return RowTypeInfo([to_type_info(field_type) for field_type in field_types])

    @staticmethod
    def ROW_NAMED(field_names: list[str], field_types: list[TypeInformation]) -> RowTypeInfo:
        return RowTypeInfo([to_type_info(field_type) for field_type in field_types], field_names)

    @staticmethod
    def TUPLE(field_types: list[TypeInformation]) -> TupleTypeInfo:
        return TupleTypeInfo([to_type_info(field_type) for field_type in field_types])

    @staticmethod
    def PRIMITIVE_ARRAY(element_type: TypeInformation) -> TypeInformation:
        return PrimitiveArrayTypeInfo(to_type_info(element_type))

    @staticmethod
    def BASIC_ARRAY(element_type: TypeInformation) -> TypeInformation:
        return BasicArrayTypeInfo(to_type_info(element_type))

    @staticmethod
    def OBJECT_ARRAY(element_type: TypeInformation) -> TypeInformation:
        return ObjectArrayTypeInfo(to_type_info(element_type))

    @staticmethod
    def MAP(key_type_info: TypeInformation, value_type_info: TypeInformation) -> TypeInformation:
        return MapTypeInfo(to_type_info(key_type_info), to_type_info(value_type_info))

    @staticmethod
    def LIST(element_type_info: TypeInformation) -> TypeInformation:
        return ListTypeInfo(to_type_info(element_type_info))


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
