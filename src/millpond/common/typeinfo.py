"""Types: what a stream or a state holds, declared with `Types` or with Python type hints.

`conform(value)` of a declared type turns a value into the form that the type promises (for `Types.ROW`, a
tuple into a `Row`) and refuses a value that does not fit, saying why.
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
    "TypeLike",
    "Types",
    "to_type_info",
]


class Types:
    """Factory methods for all types, with PyFlink's names. None fits every type."""

    @staticmethod
    def STRING() -> TypeInformation:
        """Return the type of `str`."""
        return BasicTypeInfo(BasicType.STRING)

    @staticmethod
    def BYTE() -> TypeInformation:
        """Return the type of integers of 8 bits; a value out of range is refused."""
        return BasicTypeInfo(BasicType.BYTE)

    @staticmethod
    def BOOLEAN() -> TypeInformation:
        """Return the type of `bool`."""
        return BasicTypeInfo(BasicType.BOOLEAN)

    @staticmethod
    def SHORT() -> TypeInformation:
        """Return the type of integers of 16 bits; a value out of range is refused."""
        return BasicTypeInfo(BasicType.SHORT)

    @staticmethod
    def INT() -> TypeInformation:
        """Return the type of integers of 32 bits; a value out of range is refused."""
        return BasicTypeInfo(BasicType.INT)

    @staticmethod
    def LONG() -> TypeInformation:
        """Return the type of integers of 64 bits; a value out of range is refused."""
        return BasicTypeInfo(BasicType.LONG)

    @staticmethod
    def FLOAT() -> TypeInformation:
        """Return the type of floats. Unlike in Flink, numbers are not rounded to 32 bits. Integers fit
        too."""
        return BasicTypeInfo(BasicType.FLOAT)

    @staticmethod
    def DOUBLE() -> TypeInformation:
        """Return the type of floats. Integers fit too."""
        return BasicTypeInfo(BasicType.DOUBLE)

    @staticmethod
    def CHAR() -> TypeInformation:
        """Return the type of characters; any `str` fits."""
        return BasicTypeInfo(BasicType.CHAR)

    @staticmethod
    def BIG_INT() -> TypeInformation:
        """Return the type of integers of any size."""
        return BasicTypeInfo(BasicType.BIG_INT)

    @staticmethod
    def BIG_DEC() -> TypeInformation:
        """Return the type of `decimal.Decimal`."""
        return BasicTypeInfo(BasicType.BIG_DEC)

    @staticmethod
    def INSTANT() -> TypeInformation:
        """Return the type of `millpond.common.Instant`."""
        return BasicTypeInfo(BasicType.INSTANT)

    @staticmethod
    def SQL_DATE() -> TypeInformation:
        """Return the type of `datetime.date`."""
        return DateTypeInfo()

    @staticmethod
    def SQL_TIME() -> TypeInformation:
        """Return the type of `datetime.time`."""
        return TimeTypeInfo()

    @staticmethod
    def SQL_TIMESTAMP() -> TypeInformation:
        """Return the type of `datetime.datetime`."""
        return TimestampTypeInfo()

    @staticmethod
    def PICKLED_BYTE_ARRAY() -> TypeInformation:
        """Return the type of any Python object that can be pickled; the default where no type is declared."""
        return PickledBytesTypeInfo()

    @staticmethod
    def ROW(field_types: list[TypeInformation]) -> RowTypeInfo:
        """Return the type of rows with these field types; the fields are called f0, f1, ..."""
        return RowTypeInfo([to_type_info(field_type) for field_type in field_types])

    @staticmethod
    def ROW_NAMED(field_names: list[str], field_types: list[TypeInformation]) -> RowTypeInfo:
        """Return the type of rows with named fields; raise ProgramError unless there are as many names as
        types."""
        return RowTypeInfo([to_type_info(field_type) for field_type in field_types], field_names)

    @staticmethod
    def TUPLE(field_types: list[TypeInformation]) -> TupleTypeInfo:
        """Return the type of tuples with these field types."""
        return TupleTypeInfo([to_type_info(field_type) for field_type in field_types])

    @staticmethod
    def PRIMITIVE_ARRAY(element_type: TypeInformation) -> TypeInformation:
        """Return the type of lists of a primitive type. `PRIMITIVE_ARRAY(BYTE())` is the type of bytes."""
        return PrimitiveArrayTypeInfo(to_type_info(element_type))

    @staticmethod
    def BASIC_ARRAY(element_type: TypeInformation) -> TypeInformation:
        """Return the type of lists of a basic type."""
        return BasicArrayTypeInfo(to_type_info(element_type))

    @staticmethod
    def OBJECT_ARRAY(element_type: TypeInformation) -> TypeInformation:
        """Return the type of lists of any type."""
        return ObjectArrayTypeInfo(to_type_info(element_type))

    @staticmethod
    def MAP(key_type_info: TypeInformation, value_type_info: TypeInformation) -> TypeInformation:
        """Return the type of dictionaries with these types of keys and values."""
        return MapTypeInfo(to_type_info(key_type_info), to_type_info(value_type_info))

    @staticmethod
    def LIST(element_type_info: TypeInformation) -> TypeInformation:
        """Return the type of lists with this type of elements."""
        return ListTypeInfo(to_type_info(element_type_info))


TypeLike = object
"""Declares a type: a TypeInformation, a Python type hint such as `tuple[str, int]`, or None for anything that
can be pickled. Type hints have no type in common, so checkers accept any object; `to_type_info` refuses what
is none of these."""

_HINTS: dict[object, Callable[[], TypeInformation]] = {
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


def to_type_info(declared: TypeLike) -> TypeInformation:
    """Return `declared` itself if it is a `TypeInformation`, or the type that a Python type hint means.

    None means anything that can be pickled. Raise ProgramError for anything else.
    """
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
        f"{declared!r} is not a type that Millpond knows: use millpond.common.Types or a type hint "
        "such as tuple[str, int]."
    )


__getattr__ = module_getattr(__name__)
