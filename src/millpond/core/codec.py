"""How values become bytes in files and between processes.

Layout of every blob (little endian):

    offset  size  content
    0       2     magic "MP"
    2       1     version of the kind's format, see VERSIONS
    3       1     kind: 1 frame, 2 control, 3 report, 4 change, 5 snapshot, 6 log head, 7 lane plan,
                  8 batch plan, 9 epoch, 10 part of a savepoint, 11 joined changes,
                  12 union lists, 13 identity of a job, 14 state of a job in a savepoint, 15 chunk of rows
    4       4     CRC-32 of the payload
    8       ...   payload: a pickle (protocol 5) of plain containers

Python objects of undeclared types need pickle. It is safe here because blobs are only ever read from the
job's own shuffle and the job's own folder, which is private to its user. Classes are named, not included; see
`executors/spark/main_classes.py` for those of the main script, and `pickling.py` for the rest.
"""

from __future__ import annotations

import datetime
import decimal
import struct
import zlib
from collections.abc import Callable, Iterable
from enum import IntEnum
from itertools import chain
from typing import Any

from millpond.core.pickling import dumps as dumps
from millpond.core.pickling import loads as loads
from millpond.errors import CorruptDataError

MAGIC = b"MP"
_HEADER = struct.Struct("<2sBBI")


class BlobKind(IntEnum):
    """What a blob contains. The numbers are part of the format and must not change."""

    FRAME = 1
    CONTROL = 2
    REPORT = 3
    CHANGE = 4
    SNAPSHOT = 5
    LOG_HEAD = 6
    LANE_PLAN = 7
    BATCH_PLAN = 8
    EPOCH = 9
    SAVEPOINT_PART = 10
    JOINED = 11
    UNIONS = 12
    JOB = 13
    JOB_STATE = 14
    CHUNK = 15


VERSIONS = dict.fromkeys(BlobKind, 1) | {BlobKind.JOB_STATE: 2}
"""The format versions that this release writes. Released formats stay readable: a change to one raises its
version here, and adds a function to UPGRADES and a golden file to the tests."""
UPGRADES: dict[tuple[BlobKind, int], Callable[[Any], Any]] = {}
"""(kind, version) -> function that turns a payload of that version into one of the next version"""


def encode(kind: BlobKind, value: object) -> bytes:
    """Return a blob that holds `value`: the header and the pickled value."""
    payload = dumps(value)
    return _HEADER.pack(MAGIC, VERSIONS[kind], kind, zlib.crc32(payload)) + payload


def kind_of(blob: bytes) -> int:
    """Return the number of the blob's kind without decoding or checking the blob."""
    return blob[3]


def decode(kind: BlobKind, blob: bytes, where: str = "") -> Any:
    """Return the value in a blob, in the newest format.

    Raises CorruptDataError, which names `where`, if the blob is damaged, of another kind, or in a format that
    this release does not know."""
    subject = where or f"a {kind.name.lower()} blob"
    if len(blob) < _HEADER.size:
        raise CorruptDataError(f"{subject}: {len(blob)} bytes are too short to be a Millpond blob.")
    magic, version, found_kind, checksum = _HEADER.unpack_from(blob)
    if magic != MAGIC:
        raise CorruptDataError(f"{subject}: not a Millpond blob (it starts with {magic!r}).")
    if found_kind != kind:
        raise CorruptDataError(f"{subject}: expected {kind.name}, found kind {found_kind}.")
    if version > VERSIONS[kind]:
        raise CorruptDataError(
            f"{subject}: written in format {version} by a newer release; this one reads format "
            f"{VERSIONS[kind]} and older. Use the release that wrote it, or a newer one."
        )
    payload = memoryview(blob)[_HEADER.size :]
    if zlib.crc32(payload) != checksum:
        raise CorruptDataError(f"{subject}: checksum does not match; the data is damaged.")
    value = loads(payload)
    for older in range(version, VERSIONS[kind]):
        value = UPGRADES[kind, older](value)
    return value


class Frozen:
    """A mutable value at rest: its pickle. Reading it always gives a fresh copy, so nobody can change state
    or a record on its way through an old reference."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __reduce__(self) -> tuple[Any, ...]:
        return Frozen, (self.data,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Frozen) and loads(self.data) == loads(other.data)

    def __hash__(self) -> int:
        return hash(self.data)


# Types whose values cannot be changed.
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
    """Return True if the value is an atom or a tuple of immutable values. Subclasses count as mutable."""
    kind = type(value)
    if kind in ATOMS:
        return True
    if kind is tuple:
        for item in value:
            if type(item) not in ATOMS and not is_immutable(item):
                return False
        return True
    return False


def are_immutable(values: Iterable[Any]) -> bool:
    """Return True if `is_immutable` is true of all values."""
    known = list(values)
    types = set(map(type, known))
    return types <= ATOMS or (types <= ATOMS | {tuple} and all(map(is_immutable, known)))


def freeze(value: object) -> Any:
    """Return the value as it rests: itself if it is immutable, otherwise its pickle as `Frozen`."""
    return value if type(value) in ATOMS or is_immutable(value) else Frozen(dumps(value))


def freeze_all(values: object) -> Any:
    """Freeze all values of a list; return the list itself if there is nothing to freeze.

    Anything else is columns, which are immutable, and is returned as it is."""
    if not isinstance(values, list):
        return values
    types = set(map(type, values))
    if types <= ATOMS:
        return values
    if types == {tuple} and ATOMS.issuperset(map(type, chain.from_iterable(values))):
        return values
    return list(map(freeze, values))


def thaw(value: object) -> Any:
    """Return a fresh copy of a frozen value; any other value is returned as it is."""
    return loads(value.data) if type(value) is Frozen else value


def thaw_all(values: list[Any]) -> list[Any]:
    """Thaw all values of a list; return the list itself if nothing in it is frozen."""
    return list(map(thaw, values)) if Frozen in set(map(type, values)) else values
