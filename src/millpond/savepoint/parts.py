"""Savepoint parts as tasks write them, in a staging folder: one file per key group (or subtask) of each
stateful operator. The driver makes a savepoint of them (`writer.py`).

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
_LENGTH = struct.Struct("<Q")


Part = tuple[int, int, int]  # operator, key group or subtask, size


def write_part(
    staging: str, operator_id: int, number: int, state: KeyGroupState, key: Schema = PICKLE
) -> Part | None:
    """Write the part of a key group or subtask. Return (operator, number, size), or None if there is no
    state. `key` is the schema of the declared type of keys.

    The file is written under a temporary name and renamed; a batch that runs again writes the same again. The
    driver is told what was written, because a savepoint that lacks a part must not be taken for complete.
    """
    if state.is_empty():
        return None
    folder = Path(staging) / str(operator_id)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / f"{number:05d}{_SUFFIX}"
    aside = path.with_suffix(f".{os.getpid()}")
    with aside.open("wb") as file:
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
    os.replace(aside, path)
    return operator_id, number, size


def _has_keys(name: str) -> bool:
    return not name.startswith(ALWAYS_IN_MEMORY)


def check_parts(staging: Path, parts: list[Part]) -> None:
    """Raise SavepointError if a part is missing, or not as large as its task has reported."""
    for operator_id, number, size in parts:
        path = staging / str(operator_id) / f"{number:05d}{_SUFFIX}"
        if not path.exists() or path.stat().st_size != size:
            raise SavepointError(
                f"The part {path} of the savepoint is missing or incomplete. The folder for savepoints must "
                "be one that the driver and all workers see."
            )


def list_parts(staging: Path, operator_id: int) -> list[Path]:
    """Return the files of an operator's parts, in the order of their numbers."""
    return sorted((staging / str(operator_id)).glob(f"*{_SUFFIX}"))


def read_part(path: Path) -> Iterator[tuple[int, dict[str, Schemas], Content]]:
    """Yield the pieces of a part: the number of the part, the schemas of each state, and the content."""
    with path.open("rb") as file:
        while head := file.read(_LENGTH.size):
            blob = file.read(*_LENGTH.unpack(head))
            piece: tuple[int, dict[str, Schemas], Content] = codec.decode(
                BlobKind.SAVEPOINT_PART, blob, str(path)
            )
            yield piece
