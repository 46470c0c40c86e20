"""Bytes at rest and between processes.

Layout of every blob (little endian):

    offset  size  content
    0       2     magic "MP"
    2       1     version of the kind's format: 4 for frame, 3 for change and snapshot
                  and for control and lane plan, 2 for log head, 1 for the others
    3       1     kind: 1 frame, 2 control, 3 meta, 4 change, 5 snapshot, 6 log head, 7 lane plan,
                  8 batch plan, 9 epoch, 10 part of a savepoint, 11 segment of small changes,
                  12 union lists
    4       4     CRC-32 of the payload
    8       ...   payload: a pickle (protocol 5) of plain containers

Pickle is what Python objects of undeclared type need; blobs are only ever read from the job's own
shuffle and the job's own folder, which is private to its user. Classes are named, not included; see
`executors/spark/main_classes.py` for those of the main script, and `pickling.py` for the rest.
"""

from __future__ import annotations

import datetime
import decimal
import struct
import zlib
from enum import IntEnum
from itertools import chain
from typing import Any

from millpond.core.pickling import dumps as dumps
from millpond.core.pickling import loads as loads
from millpond.errors import CorruptDataError

MAGIC = b"MP"
_HEADER = struct.Struct("<2sBBI")


class BlobKind(IntEnum):
    FRAME = 1
    CONTROL = 2
    META = 3
    CHANGE = 4
    SNAPSHOT = 5
    LOG_HEAD = 6
    LANE_PLAN = 7
    BATCH_PLAN = 8
    EPOCH = 9
    SAVEPOINT_PART = 10
    SEGMENT = 11
    UNIONS = 12


# Version 2: columns (columns.py) instead of one pickled object per record or entry. Version 3 of frames:
# values may be Arrow columns; version 4: keys may be a field of the values.
# Version 3 of changes and snapshots: the types of states.
# Version 2 of controls and lane plans: where to write the parts of a savepoint; version 3: union lists.
# Version 2 of log heads: segments.
VERSIONS = dict.fromkeys(BlobKind, 1) | {
    BlobKind.FRAME: 4,
    BlobKind.CONTROL: 3,
    BlobKind.LANE_PLAN: 3,
    BlobKind.LOG_HEAD: 2,
    BlobKind.CHANGE: 3,
    BlobKind.SNAPSHOT: 3,
}


def encode(kind: BlobKind, value: Any) -> bytes:
    payload = dumps(value)
    return _HEADER.pack(MAGIC, VERSIONS[kind], kind, zlib.crc32(payload)) + payload


def kind_of(blob: bytes) -> int:
    return blob[3]


def decode(kind: BlobKind, blob: bytes, where: str = "") -> Any:
    """The value in a blob; raises CorruptDataError, naming `where`, if anything is off."""
    place = where or f"a {kind.name.lower()} blob"
    if len(blob) < _HEADER.size:
        raise CorruptDataError(f"{place}: {len(blob)} bytes are too short to be a Millpond blob.")
    magic, version, found_kind, checksum = _HEADER.unpack_from(blob)
    if magic != MAGIC:
        raise CorruptDataError(f"{place}: not a Millpond blob (it starts with {magic!r}).")
    if found_kind != kind:
        raise CorruptDataError(f"{place}: expected {kind.name}, found kind {found_kind}.")
    if version != VERSIONS[kind]:
        raise CorruptDataError(
            f"{place}: written in format {version}, this release reads format {VERSIONS[kind]}. "
            "Use the release that wrote it."
        )
    payload = memoryview(blob)[_HEADER.size :]
    if zlib.crc32(payload) != checksum:
        raise CorruptDataError(f"{place}: checksum does not match; the data is damaged.")
    return loads(payload)


class Frozen:
    """A mutable value at rest: its pickle. What is read from it is always a fresh copy, so no one
    can change state or a record in flight through an old reference."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __reduce__(self) -> tuple[Any, ...]:
        return Frozen, (self.data,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Frozen) and loads(self.data) == loads(other.data)

    def __hash__(self) -> int:
        return hash(self.data)


# Types whose values nobody can change.
ATOMS = frozenset(
    {
        int,
        str,
        float,
        bool,
        bytes,
        type(None),
        decimal.Decimal,
        datetime.date,
        datetime.datetime,
        datetime.time,
        datetime.timedelta,
        Frozen,
    }
)


def is_immutable(value: Any) -> bool:
    kind = type(value)
    if kind in ATOMS:
        return True
    if kind is tuple:
        for item in value:
            if type(item) not in ATOMS and not is_immutable(item):
                return False
        return True
    return False


def freeze(value: Any) -> Any:
    """The value itself if nobody can change it, else its pickle."""
    return value if type(value) in ATOMS or is_immutable(value) else Frozen(dumps(value))


def freeze_all(values: Any) -> Any:
    """`freeze` for a whole list: the list itself if there is nothing to freeze. Columns are immutable."""
    if not isinstance(values, list):
        return values
    types = set(map(type, values))
    if types <= ATOMS:
        return values
    if types == {tuple} and ATOMS.issuperset(map(type, chain.from_iterable(values))):
        return values
    return list(map(freeze, values))


def thaw(value: Any) -> Any:
    return loads(value.data) if type(value) is Frozen else value


def thaw_all(values: list[Any]) -> list[Any]:
    """`thaw` for a whole column: the list itself if nothing in it is frozen."""
    return list(map(thaw, values)) if Frozen in set(map(type, values)) else values
