"""Savepoint parts as tasks write them, in a staging folder: one file per shard of each stateful operator. The
driver makes a savepoint of them (`writer.py`).

A batch may run several times, and its runs need not give the same; a task that was given up may still write.
So every part has a file of its own, and only those that are reported by the run that counts are used.

    part   <staging>/<operator>/<shard>-<token>.part

A file has one or more pieces, each of which is (little endian) the length of a blob (8 bytes), the number of
the key group that it belongs to, or of the subtask if the operator has no key (4 bytes), and the blob
(`core/codec.py`).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from millpond.core import codec
from millpond.core.codec import BlobKind
from millpond.datastream.formats.avro_schemas import Schema
from millpond.errors import SavepointError
from millpond.savepoint.state_tables import Content, columns_of, schemas_of
from millpond.state.grouping import WITHOUT_KEY
from millpond.state.key_check import KEY
from millpond.state.shard_state import ShardState, split_content
from millpond.state.types.schemas import PICKLE, Schemas, is_pickled

_SUFFIX = ".part"
_TOKEN_BYTES = 8
_HEADER = struct.Struct("<QI")


Part = tuple[int, int, int, str]
"""(operator, shard, size in bytes, token)"""


def write_part(
    staging: str, operator_id: int, shard: int, state: ShardState, key: Schema = PICKLE
) -> Part | None:
    """Write the part of a shard. Return what the driver is to know of it, or None if there is no state. `key`
    is the schema of the declared type of keys.

    The driver is told what was written, because a savepoint that lacks a part must not be taken for complete.
    """
    if state.is_empty():
        return None
    token = os.urandom(_TOKEN_BYTES).hex()
    path = _path(Path(staging), operator_id, shard, token)
    # The driver makes the staging folder. If that is gone, the savepoint is over.
    path.parent.mkdir(exist_ok=True, mode=0o700)
    with path.open("xb") as file:
        for number, content in _pieces(state):
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
            blob = codec.encode(BlobKind.SAVEPOINT_PART, (schemas, content))
            file.write(_HEADER.pack(len(blob), number))
            file.write(blob)
        size = file.tell()
    return operator_id, shard, size, token


def _path(staging: Path, operator_id: int, shard: int, token: str) -> Path:
    return staging / str(operator_id) / f"{shard:05d}-{token}{_SUFFIX}"


def _has_keys(name: str) -> bool:
    return not name.startswith(WITHOUT_KEY)


def _pieces(state: ShardState) -> Iterator[tuple[int, Content]]:
    """Yield the state in pieces, each with the number of its key group or subtask. What has no key goes to
    every key group, because any of them may be needed elsewhere."""
    if state.grouping is None:
        for content in state.snapshot_parts():
            yield state.number, content
        return
    for content in state.snapshot_parts():
        parts, own = split_content(content, state.grouping)
        if own["states"]:
            for number in state.grouping.key_groups:
                yield number, own
        yield from parts.items()


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


class Piece(NamedTuple):
    """Where a piece of a part is."""

    number: int
    path: Path
    offset: int
    length: int

    def read(self) -> tuple[dict[str, Schemas], Content]:
        """Return the schemas of each state, and the content."""
        with self.path.open("rb") as file:
            file.seek(self.offset)
            blob = file.read(self.length)
        piece: tuple[dict[str, Schemas], Content] = codec.decode(
            BlobKind.SAVEPOINT_PART, blob, str(self.path)
        )
        return piece


def list_pieces(paths: Iterable[Path]) -> list[Piece]:
    """Return the pieces of parts, one key group (or subtask) after the other."""
    pieces: list[Piece] = []
    for path in paths:
        with path.open("rb") as file:
            while header := file.read(_HEADER.size):
                length, number = _HEADER.unpack(header)
                pieces.append(Piece(number, path, file.tell(), length))
                file.seek(length, os.SEEK_CUR)
    return sorted(pieces)
