"""Savepoint parts as tasks write them, in a staging folder: one file per key group (or subtask) of each
stateful operator. The driver makes a savepoint of them (`writer.py`).

A batch may run several times, and its runs need not give the same; a task that was given up may still write.
So every part has a file of its own, and only those that are reported by the run that counts are used.

    part   <staging>/<operator>/<key group or subtask>-<token>.part

A file has one or more pieces, each of which is a length (8 bytes, little endian) and a blob
(`core/codec.py`).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

from millpond.core import codec
from millpond.core.codec import BlobKind
from millpond.datastream.formats.avro_schemas import Schema
from millpond.errors import SavepointError
from millpond.savepoint.state_tables import Content, columns_of, schemas_of
from millpond.state.key_check import KEY
from millpond.state.key_group_state import ALWAYS_IN_MEMORY, KeyGroupState
from millpond.state.types.schemas import PICKLE, Schemas, is_pickled

_SUFFIX = ".part"
_TOKEN_BYTES = 8
_LENGTH = struct.Struct("<Q")


Part = tuple[int, int, int, str]
"""(operator, key group or subtask, size in bytes, token)"""


def write_part(
    staging: str, operator_id: int, number: int, state: KeyGroupState, key: Schema = PICKLE
) -> Part | None:
    """Write the part of a key group or subtask. Return what the driver is to know of it, or None if there is
    no state. `key` is the schema of the declared type of keys.

    The driver is told what was written, because a savepoint that lacks a part must not be taken for complete.
    """
    if state.is_empty():
        return None
    token = os.urandom(_TOKEN_BYTES).hex()
    path = _path(Path(staging), operator_id, number, token)
    # The driver makes the staging folder. If that is gone, the savepoint is over.
    path.parent.mkdir(exist_ok=True, mode=0o700)
    with path.open("xb") as file:
        for content in state.snapshot_parts():
            columns = columns_of(content)
            if not is_pickled(key):
                types = content["types"]
                keyed = {
                    name: types.get(name, {}) | {KEY: key} for name in columns if _has_keys(name)
                }
                content = content | {"types": types | keyed}
            schemas = {
                name: schemas_of(content["types"].get(name, {}), state_columns)
                for name, state_columns in columns.items()
            }
            blob = codec.encode(BlobKind.SAVEPOINT_PART, (number, schemas, content))
            file.write(_LENGTH.pack(len(blob)))
            file.write(blob)
        size = file.tell()
    return operator_id, number, size, token


def _path(staging: Path, operator_id: int, number: int, token: str) -> Path:
    return staging / str(operator_id) / f"{number:05d}-{token}{_SUFFIX}"


def _has_keys(name: str) -> bool:
    return not name.startswith(ALWAYS_IN_MEMORY)


def check_parts(staging: Path, parts: list[Part]) -> None:
    """Raise SavepointError if a part is missing, or not as large as its task has reported."""
    for operator_id, number, size, token in parts:
        path = _path(staging, operator_id, number, token)
        if not path.exists() or path.stat().st_size != size:
            raise SavepointError(
                f"The part {path} of the savepoint is missing or incomplete. The folder for savepoints must "
                "be one that the driver and all workers see."
            )


def files_of(staging: Path, parts: list[Part], operator_id: int) -> list[Path]:
    """Return the files of an operator's parts, in the order of their numbers."""
    own = sorted((number, token) for operator, number, _, token in parts if operator == operator_id)
    return [_path(staging, operator_id, number, token) for number, token in own]


def read_part(path: Path) -> Iterator[tuple[int, dict[str, Schemas], Content]]:
    """Yield the pieces of a part: the number of the part, the schemas of each state, and the content."""
    with path.open("rb") as file:
        while head := file.read(_LENGTH.size):
            blob = file.read(*_LENGTH.unpack(head))
            piece: tuple[int, dict[str, Schemas], Content] = codec.decode(
                BlobKind.SAVEPOINT_PART, blob, str(path)
            )
            yield piece
