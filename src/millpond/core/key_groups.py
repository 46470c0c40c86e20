"""Keys, key groups and subtasks: which key belongs to which key group, and where it runs (E35, C1-C4).

A key's hash must be the same in every process, run and Python version, and equal keys must have equal hashes
(1 == 1.0 == True). Python's own `hash` does not promise the former.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import uuid
import zlib
from dataclasses import fields, is_dataclass
from typing import Any

import numpy
from numpy.typing import NDArray

from millpond.common.types import Row
from millpond.errors import ProgramError

Numbers = NDArray[numpy.int64]

DEFAULT_MIN_MAX_PARALLELISM = 128
UPPER_BOUND_MAX_PARALLELISM = 1 << 15
_MASK = 0xFFFFFFFF


def murmur_mix(code: int) -> int:
    """Return a 32-bit hash code mixed into a non-negative int, exactly as Flink does it (C1)."""
    code &= _MASK
    code = (code * 0xCC9E2D51) & _MASK
    code = ((code << 15) | (code >> 17)) & _MASK
    code = (code * 0x1B873593) & _MASK
    code = ((code << 13) | (code >> 19)) & _MASK
    code = (code * 5 + 0xE6546B64) & _MASK
    code ^= 4
    code ^= code >> 16
    code = (code * 0x85EBCA6B) & _MASK
    code ^= code >> 13
    code = (code * 0xC2B2AE35) & _MASK
    code ^= code >> 16
    if code == 0x80000000:
        return 0
    return code if code < 0x80000000 else (1 << 32) - code


def stable_hash(key: Any) -> int:
    """Return a 32-bit hash of a key that is the same in every process.

    Raises ProgramError if keys cannot be of this type."""
    kind = type(key)
    if kind is str:
        return zlib.crc32(key.encode("utf-8", "surrogatepass"))
    if kind is int or kind is bool:
        number = int(key)
        while not -(1 << 63) <= number < 1 << 64:
            number = (number & (1 << 63) - 1) ^ (number >> 63)
        return (number ^ (number >> 32)) & _MASK
    if kind is float:
        return stable_hash(int(key)) if key.is_integer() else zlib.crc32(key.hex().encode())
    if key is None:
        return 0
    if kind is bytes or kind is bytearray:
        return zlib.crc32(key)
    if kind is tuple or kind is Row:
        code = 1
        for item in key if kind is tuple else key.in_order_of_names():
            code = (31 * code + stable_hash(item)) & _MASK
        return code
    return _hash_of_rare_type(key)


def _hash_of_rare_type(key: object) -> int:
    kind = type(key)
    if isinstance(key, (str, int, tuple)):
        # Subclasses, such as named tuples and IntEnum, are equal to their plain values.
        if isinstance(key, str):
            return stable_hash(str.__str__(key))  # str() of an enum would be its name
        return stable_hash(int(key) if isinstance(key, int) else tuple(key))
    if isinstance(key, enum.Enum):
        return zlib.crc32(f"{kind.__qualname__}.{key.name}".encode())
    if isinstance(key, decimal.Decimal):
        if key.is_finite() and key == key.to_integral_value():
            return stable_hash(int(key))
        as_float = float(key)
        return (
            stable_hash(as_float) if as_float == key else zlib.crc32(f"{key.normalize()}".encode())
        )
    if isinstance(key, datetime.datetime) and key.tzinfo is not None:
        key = key.astimezone(datetime.UTC)  # equal instants are equal keys
    if isinstance(key, (datetime.date, datetime.time, datetime.timedelta, uuid.UUID)):
        return zlib.crc32(f"{kind.__name__}:{key}".encode())
    if isinstance(key, frozenset):
        return sum(stable_hash(item) for item in key) & _MASK
    if is_dataclass(key):
        # Fields that do not take part in comparisons may differ between equal keys.
        compared = (field.name for field in fields(key) if field.compare)
        return stable_hash(tuple(getattr(key, name) for name in compared))
    raise ProgramError(
        f"A key of type {kind.__name__} cannot be used: key_by must return a string, a number, "
        "bytes, a date, an enum, a frozen dataclass, or a tuple of these."
    )


def order_of(key: object) -> tuple[int, str, str]:
    """Return what to sort a key by, so that keys are in the same order in every process."""
    return stable_hash(key), type(key).__name__, repr(key)


def key_group_of(key: object, max_parallelism: int) -> int:
    """Return the key group of a key (C2). Raises ProgramError if keys cannot be of this type."""
    return murmur_mix(stable_hash(key)) % max_parallelism


def key_groups_of(keys: list[Any], max_parallelism: int) -> Numbers | None:
    """Return the key group of each key, or None if they are not all strings or all 64-bit integers.

    This is faster than remembering the groups of keys: a dictionary of many keys does not fit into the CPU's
    cache."""
    kinds = set(map(type, keys))
    try:
        if kinds == {str}:
            hashes = list(map(zlib.crc32, map(str.encode, keys)))
            code = numpy.array(hashes, numpy.uint32)
        elif kinds == {int}:
            code = hashes_of_integers(numpy.array(keys, numpy.int64))
        else:
            return None
    except (UnicodeEncodeError, OverflowError):
        return None
    return key_groups_of_hashes(code, max_parallelism)


def hashes_of_integers(numbers: Numbers) -> NDArray[numpy.uint32]:
    """Return the `stable_hash` of each number."""
    return (numbers ^ (numbers >> 32)).astype(numpy.uint32)


def key_groups_of_hashes(hashes: NDArray[numpy.uint32], max_parallelism: int) -> Numbers:
    """Return the key group for each hash: `murmur_mix` in 32-bit arithmetic, modulo `max_parallelism`."""
    code = hashes.copy()
    code *= numpy.uint32(0xCC9E2D51)
    code = (code << numpy.uint32(15)) | (code >> numpy.uint32(17))
    code *= numpy.uint32(0x1B873593)
    code = (code << numpy.uint32(13)) | (code >> numpy.uint32(19))
    code = code * numpy.uint32(5) + numpy.uint32(0xE6546B64)
    code ^= numpy.uint32(4)
    code ^= code >> numpy.uint32(16)
    code *= numpy.uint32(0x85EBCA6B)
    code ^= code >> numpy.uint32(13)
    code *= numpy.uint32(0xC2B2AE35)
    code ^= code >> numpy.uint32(16)
    positive = numpy.abs(code.view(numpy.int32).astype(numpy.int64))
    positive[code == 0x80000000] = 0
    return positive % max_parallelism


def default_max_parallelism(parallelism: int) -> int:
    """Return 1.5 times the parallelism, rounded up to a power of two, and within 128 and 32768 (C3)."""
    wanted = parallelism + parallelism // 2
    power = 1 << max(0, (wanted - 1).bit_length())
    return min(max(power, DEFAULT_MIN_MAX_PARALLELISM), UPPER_BOUND_MAX_PARALLELISM)


def subtask_of(key_group: int, parallelism: int, max_parallelism: int) -> int:
    """Return the subtask that a key group belongs to (C4)."""
    return key_group * parallelism // max_parallelism


def key_group_range(subtask: int, parallelism: int, max_parallelism: int) -> range:
    """Return the key groups of a subtask (C4)."""
    start = (subtask * max_parallelism + parallelism - 1) // parallelism
    end = ((subtask + 1) * max_parallelism - 1) // parallelism
    return range(start, end + 1)
