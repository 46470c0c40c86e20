"""Columns: many values packed by their type. Frames and change logs consist of them.

A list of values becomes the narrowest column that gives back exactly the same values:

    tag  column             encoded as (tag, ...)
    C    all the same       ("C", value, count)
    I    64-bit integers    ("I", smallest, bytes per number, differences as unsigned little endian)
    F    floats             ("F", 64-bit IEEE little endian)
    S    strings            ("S", count, UTF-8 text, joined by U+001F)
    D    few strings        ("D", the distinct ones as S, column I of their numbers)
    T    tuples             ("T", count, a column per field)
    O    anything else      ("O", list)

The encoded form consists of plain containers and bytes; whoever stores it pickles it and adds a checksum.
"""

from __future__ import annotations

import operator
import sys
from itertools import chain
from typing import Any, TypeVar

import numpy
from numpy.typing import NDArray

T = TypeVar("T")
Numbers = NDArray[numpy.int64]
_SEPARATOR = "\x1f"
_PACKED_FROM = 12  # values
_FEW = 4  # distinct strings are stored once if each occurs this often on average
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1
_WIDTHS = ((1 << 8, "<u1"), (1 << 16, "<u2"), (1 << 32, "<u4"), (1 << 64, "<u8"))


class Column:
    """A sequence of values of one kind."""

    def __len__(self) -> int:
        raise NotImplementedError

    def to_list(self) -> list[Any]:
        """Return the values. The list may be the column's own: do not change it."""
        raise NotImplementedError

    def encode(self) -> tuple[Any, ...]:
        """Return the column in plain containers and bytes, as the table at the top of the module says."""
        raise NotImplementedError


class ConstantColumn(Column):
    """The same value `count` times."""

    def __init__(self, value: Any, count: int) -> None:
        self.value = value
        self.count = count

    def __len__(self) -> int:
        return self.count

    def to_list(self) -> list[Any]:
        return [self.value] * self.count

    def encode(self) -> tuple[Any, ...]:
        return "C", self.value, self.count


class IntColumn(Column):
    """Integers of 64 bits."""

    def __init__(self, numbers: Numbers) -> None:
        self.numbers = numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def to_list(self) -> list[Any]:
        return self.numbers.tolist()  # type: ignore[no-any-return]

    def encode(self) -> tuple[Any, ...]:
        smallest = int(self.numbers.min())
        span = int(self.numbers.max()) - smallest
        width = next(dtype for limit, dtype in _WIDTHS if span < limit)
        # The differences wrap around in 64 bits, and decoding wraps them back.
        differences = self.numbers.astype(numpy.uint64) - numpy.uint64(smallest & (1 << 64) - 1)
        return "I", smallest, int(width[2]), differences.astype(width).tobytes()


class FloatColumn(Column):
    """Floats."""

    def __init__(self, numbers: NDArray[numpy.float64]) -> None:
        self.numbers = numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def to_list(self) -> list[Any]:
        return self.numbers.tolist()  # type: ignore[no-any-return]

    def encode(self) -> tuple[Any, ...]:
        return "F", self.numbers.astype("<f8").tobytes()


class StringColumn(Column):
    """Strings. Encoded as objects if they contain the separator or cannot be UTF-8."""

    def __init__(self, strings: list[str]) -> None:
        self.strings = strings

    def __len__(self) -> int:
        return len(self.strings)

    def to_list(self) -> list[Any]:
        return self.strings

    def encode(self) -> tuple[Any, ...]:
        text = _SEPARATOR.join(self.strings)
        if text.count(_SEPARATOR) != len(self.strings) - 1:
            return "O", self.strings
        try:
            return "S", len(self.strings), text.encode()
        except UnicodeEncodeError:  # lone surrogates
            return "O", self.strings


class DictionaryColumn(Column):
    """Strings of which few are distinct: `codes` are their positions in `distinct`."""

    def __init__(self, distinct: list[str], codes: Numbers) -> None:
        self.distinct = distinct
        self.codes = codes

    def __len__(self) -> int:
        return len(self.codes)

    def to_list(self) -> list[Any]:
        return list(map(self.distinct.__getitem__, self.codes.tolist()))

    def encode(self) -> tuple[Any, ...]:
        return "D", StringColumn(self.distinct).encode(), IntColumn(self.codes).encode()


class TupleColumn(Column):
    """Tuples of the same length, which is at least 1: a column per field."""

    def __init__(self, fields: list[Column], count: int) -> None:
        self.fields = fields
        self.count = count

    def __len__(self) -> int:
        return self.count

    def to_list(self) -> list[Any]:
        return list(zip(*(field.to_list() for field in self.fields), strict=True))

    def encode(self) -> tuple[Any, ...]:
        return "T", self.count, [field.encode() for field in self.fields]


class ObjectColumn(Column):
    """Values of any types, not packed."""

    def __init__(self, values: list[Any]) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def to_list(self) -> list[Any]:
        return self.values

    def encode(self) -> tuple[Any, ...]:
        return "O", self.values


def take_list(values: list[T], order: Numbers) -> list[T]:
    """Return the values at the positions in `order`, in that order."""
    if len(order) > 1:
        return list(operator.itemgetter(*order.tolist())(values))
    return [values[i] for i in order.tolist()]


def column_of(values: list[Any]) -> Column:
    """Return the narrowest column that gives back exactly these values. There must be at least one."""
    types = set(map(type, values))
    if len(types) != 1:
        return ObjectColumn(values)
    (kind,) = types
    if kind is int:
        return _int_column(values)
    if kind is str:
        return _string_column(values)
    if kind is float:
        return FloatColumn(numpy.array(values, numpy.float64))
    if kind is tuple:
        widths = set(map(len, values))
        if len(widths) == 1 and 0 not in widths:
            # One field at a time: zip(*values) would walk thousands of iterators side by side.
            getters = map(operator.itemgetter, range(widths.pop()))
            fields = [column_of(list(map(getter, values))) for getter in getters]
            return TupleColumn(fields, len(values))
    if kind is type(None) or (kind is bool and values.count(values[0]) == len(values)):
        return ConstantColumn(values[0], len(values))
    return ObjectColumn(values)


def _int_column(values: list[int]) -> Column:
    try:
        numbers = numpy.array(values, numpy.int64)
    except OverflowError:
        return ObjectColumn(values)
    if numbers[0] == numbers[-1] and (numbers == numbers[0]).all():
        return ConstantColumn(values[0], len(values))
    return IntColumn(numbers)


def _string_column(values: list[str]) -> Column:
    # The beginning shows whether it is worth looking at all strings.
    if len(values) >= 2 * _FEW and len(set(values[:256])) * 2 <= min(256, len(values)):
        codes = {string: code for code, string in enumerate(dict.fromkeys(values))}
        if len(codes) == 1:
            return ConstantColumn(values[0], len(values))
        if len(codes) * _FEW <= len(values):
            numbers = numpy.fromiter(map(codes.__getitem__, values), numpy.int64, len(values))
            return DictionaryColumn(list(codes), numbers)
    return StringColumn(values)


def decode_column(encoded: tuple[Any, ...]) -> Column:
    """Return the column that `Column.encode` has packed."""
    tag = encoded[0]
    if tag == "I":
        _, smallest, width, data = encoded
        differences = numpy.frombuffer(data, f"<u{width}").astype(numpy.uint64)
        differences += numpy.uint64(smallest & (1 << 64) - 1)
        return IntColumn(differences.view(numpy.int64))
    if tag == "S":
        return StringColumn(str(encoded[2], "utf-8").split(_SEPARATOR))
    if tag == "T":
        return TupleColumn([decode_column(field) for field in encoded[2]], encoded[1])
    if tag == "C":
        return ConstantColumn(encoded[1], encoded[2])
    if tag == "D":
        # Interned, so that strings that end up in state are in memory only once.
        distinct = [sys.intern(string) for string in decode_column(encoded[1]).to_list()]
        codes = decode_column(encoded[2])
        return DictionaryColumn(distinct, numpy.array(codes.to_list(), numpy.int64))
    if tag == "F":
        return FloatColumn(numpy.frombuffer(encoded[1], "<f8"))
    return ObjectColumn(encoded[1])


def encode_list(values: list[Any]) -> tuple[Any, ...]:
    """Return a list in the encoded form of the narrowest column; as it is if it is so short that packing it
    takes longer than it saves."""
    return column_of(values).encode() if len(values) >= _PACKED_FROM else ("O", values)


def decode_list(encoded: tuple[Any, ...]) -> list[Any]:
    """Return the list that `encode_list` has packed."""
    return decode_column(encoded).to_list()


def numbers_of(column: Column) -> int | Numbers:
    """Return the integers of a column: a single number if they are all equal, otherwise an array."""
    if isinstance(column, ConstantColumn):
        return int(column.value)
    if isinstance(column, IntColumn):
        return column.numbers
    return numpy.array(column.to_list(), numpy.int64)


def concatenate(columns: list[list[T]]) -> list[T]:
    """Return the items of all lists in one list. A single list is returned as it is, not copied."""
    return columns[0] if len(columns) == 1 else list(chain.from_iterable(columns))
