"""Keys as bytes, for stores that are ordered by bytes.

Equal keys have equal bytes (1, 1.0 and True are one key, as in a dictionary), no key's bytes begin with
another's, and integers, strings and tuples of such are in their natural order:

    tag  key                 then
    01   None
    02   bytes               00 as 00 ff, then 00 01
    03   strings             UTF-8, as bytes
    05   tuples              their items, then 00
    15   64-bit integers     8 bytes, big endian, counted from the smallest
    14   smaller integers    length (4 bytes, as ff ff ff ff minus it), the complement of the absolute value
    16   larger integers     length (4 bytes), value
    21   other floats        8 bytes, big endian; negative ones complemented
    4x   anything else       see `_encode_other`

Bytes do not tell what kind a key was if it is not one of these exactly: a named tuple has the bytes of a
tuple. `is_exact` tells; for others whoever stores them keeps the key itself, too.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import io
import math
import pickle
import struct
import uuid
from dataclasses import fields, is_dataclass
from typing import Any

import numpy

from millpond.common.types import Row

_INT64 = struct.Struct(">BQ")
_UINT64 = struct.Struct(">Q")
_UINT32 = struct.Struct(">I")
_OFFSET = 1 << 63
_LONGEST = 0xFFFFFFFF
_NONE, _BYTES, _STRING, _TUPLE, _INT, _FLOAT = 0x01, 0x02, 0x03, 0x05, 0x15, 0x21
_SMALL_INT, _LARGE_INT = 0x14, 0x16
_END = b"\x00"
# Keys of these types, and tuples of them, are exact.
EXACT = frozenset({str, int, bytes, type(None)})


def encode_key(key: Any) -> bytes:
    """Return the bytes of a key. Equal keys have equal bytes."""
    kind = type(key)
    if kind is str:
        try:
            data: bytes = key.encode()
        except UnicodeEncodeError:
            data = key.encode("utf-8", "surrogatepass")
        if b"\x00" in data:
            data = data.replace(b"\x00", b"\x00\xff")
        return b"\x03" + data + b"\x00\x01"
    if kind is int:
        if -_OFFSET <= key < _OFFSET:
            return _INT64.pack(_INT, key + _OFFSET)
        return _encode_long(key)
    if kind is tuple:
        return b"\x05" + b"".join(map(encode_key, key)) + b"\x00"
    if key is None:
        return b"\x01"
    if kind is bytes:
        data = key.replace(b"\x00", b"\x00\xff")
        return b"\x02" + data + b"\x00\x01"
    if kind is float:
        return _encode_float(key)
    return _encode_other(key)


class KeyBytes:
    """Returns `encode_key` of the key that a function is called for, and remembers it: all states of the
    function ask for the same one."""

    __slots__ = ("_bytes", "_key")

    def __init__(self) -> None:
        self._key: object = None
        self._bytes = encode_key(None)

    def of(self, key: Any) -> bytes:
        """Return the bytes of a key."""
        if key is not self._key:
            self._key, self._bytes = key, encode_key(key)
        return self._bytes


def is_exact(key: Any) -> bool:
    """Return True if `decode_key` gives the key back with its type."""
    kind = type(key)
    if kind in EXACT:
        return True
    if kind is tuple:
        return all(map(is_exact, key))
    return kind is float and not key.is_integer()


def decode_key(data: bytes, at: int = 0) -> tuple[Any, int]:
    """Return the key at position `at`, and where it ends. Raises ValueError if its bytes do not tell it."""
    tag = data[at]
    if tag in (_STRING, _BYTES):
        end = data.index(0, at + 1)
        while data[end + 1] == 0xFF:
            end = data.index(0, end + 2)
        content = data[at + 1 : end]
        if b"\x00" in content:
            content = content.replace(b"\x00\xff", b"\x00")
        if tag == _BYTES:
            return content, end + 2
        try:
            return content.decode(), end + 2
        except UnicodeDecodeError:
            return content.decode("utf-8", "surrogatepass"), end + 2
    if tag == _INT:
        return _UINT64.unpack_from(data, at + 1)[0] - _OFFSET, at + 9
    if tag == _TUPLE:
        items, at = [], at + 1
        while data[at]:
            item, at = decode_key(data, at)
            items.append(item)
        return tuple(items), at + 1
    if tag == _NONE:
        return None, at + 1
    if tag == _FLOAT:
        return _decode_float(data, at), at + 9
    if tag in (_LARGE_INT, _SMALL_INT):
        return _decode_long(data, at)
    raise ValueError(f"the key was not kept in full: tag {tag:#x}")


def after(prefix: bytes) -> bytes:
    """Return the first bytes that come after everything that begins with `prefix`."""
    whole = prefix.rstrip(b"\xff")
    return whole[:-1] + bytes([whole[-1] + 1])


def _encode_long(key: int) -> bytes:
    size = (abs(key).bit_length() + 7) // 8
    if key > 0:
        return bytes([_LARGE_INT]) + _UINT32.pack(size) + key.to_bytes(size, "big")
    complement = ((1 << 8 * size) - 1 + key).to_bytes(size, "big")
    return bytes([_SMALL_INT]) + _UINT32.pack(_LONGEST - size) + complement


def _decode_long(data: bytes, at: int) -> tuple[int, int]:
    (size,) = _UINT32.unpack_from(data, at + 1)
    if data[at] == _LARGE_INT:
        return int.from_bytes(data[at + 5 : at + 5 + size], "big"), at + 5 + size
    size = _LONGEST - size
    complement = int.from_bytes(data[at + 5 : at + 5 + size], "big")
    return complement - ((1 << 8 * size) - 1), at + 5 + size


def _encode_float(key: float) -> bytes:
    if key.is_integer():
        return encode_key(int(key))  # 1.0 and 1 are equal keys
    (bits,) = _UINT64.unpack(struct.pack(">d", key if not math.isnan(key) else math.nan))
    bits = bits ^ 0xFFFFFFFFFFFFFFFF if bits >> 63 else bits | _OFFSET
    return _INT64.pack(_FLOAT, bits)


def _decode_float(data: bytes, at: int) -> float:
    (bits,) = _UINT64.unpack_from(data, at + 1)
    bits = bits ^ _OFFSET if bits >> 63 else bits ^ 0xFFFFFFFFFFFFFFFF
    value: float = struct.unpack(">d", _UINT64.pack(bits))[0]
    return value


def _encode_other(key: Any) -> bytes:
    """Return the bytes of a key that cannot be told from them. They are the same if keys are equal."""
    kind = type(key)
    if isinstance(key, bytearray):
        return encode_key(bytes(key))
    if kind is Row:
        return b"\x40" + encode_key((key.get_row_kind().name, *_row_content(key)))
    if isinstance(key, numpy.generic) and not isinstance(key, (str, bytes, float)):
        return encode_key(key.item())
    if isinstance(key, uuid.UUID):
        return _named(b"\x48", uuid.UUID, key.int)
    if isinstance(key, str):
        return encode_key(str.__str__(key))  # str() of an enum would be its name
    if isinstance(key, int):
        return encode_key(int(key))
    if isinstance(key, tuple):
        return encode_key(tuple(key))
    if isinstance(key, float):
        return _encode_float(float(key))
    if isinstance(key, enum.Enum):
        return _named(b"\x41", kind, key.name)
    if isinstance(key, decimal.Decimal):
        return _encode_decimal(key)
    if isinstance(key, datetime.datetime):
        key = key.astimezone(datetime.UTC) if key.tzinfo is not None else key.replace(fold=0)
        return _named(b"\x42", datetime.datetime, key.isoformat())
    if isinstance(key, (datetime.date, datetime.time, datetime.timedelta)):
        return _named(b"\x43", kind, repr(key))
    if isinstance(key, frozenset):
        return b"\x44" + b"".join(sorted(map(encode_key, key))) + _END
    if is_dataclass(key) and "__eq__" in vars(kind):
        content = tuple(getattr(key, field.name) for field in fields(key) if field.compare)
        return _named(b"\x45", kind, content)
    return _named(b"\x46", kind, _pickled(key))


def _row_content(row: Row) -> tuple[Any, ...]:
    names = row._fields
    if names is None:
        return False, *row
    return True, *(part for pair in sorted(row.as_dict().items()) for part in pair)


def _encode_decimal(key: decimal.Decimal) -> bytes:
    if key.is_finite() and key == key.to_integral_value():
        return encode_key(int(key))
    as_float = float(key)
    if as_float == key:
        return _encode_float(as_float)
    return _named(b"\x47", decimal.Decimal, str(key.normalize(decimal.Context(prec=100_000))))


def _named(tag: bytes, kind: type, content: object) -> bytes:
    return tag + encode_key((kind.__module__, kind.__qualname__, content))


def _pickled(key: object) -> bytes:
    """Return a pickle without references between its parts: which of them are the same object must not
    matter."""
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, 5)
    pickler.fast = True
    pickler.dump(key)
    return buffer.getvalue()
