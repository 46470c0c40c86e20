"""The parts of a savepoint as tasks write them, in a staging folder: one file per key group (or subtask)
of each stateful operator. The driver puts them together (`writer.py`)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from millpond.errors import SavepointError
from millpond.runtime.task import codec
from millpond.runtime.task.codec import BlobKind
from millpond.savepoint.state_tables import Content, Schemas, columns_of, schemas_of
from millpond.state.key_group_state import KeyGroupState

_SUFFIX = ".part"


Part = tuple[int, int, int]  # operator, key group or subtask, size


def write_part(staging: str, operator_id: int, number: int, state: KeyGroupState) -> Part | None:
    """Written aside and renamed; a batch that runs again writes the same again. The driver is told what was
    written: a savepoint with a part missing must not pass for whole."""
    if state.is_empty():
        return None
    content = state.snapshot()
    schemas = {
        name: schemas_of(state, name, columns) for name, columns in columns_of(content).items()
    }
    folder = Path(staging) / str(operator_id)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / f"{number:05d}{_SUFFIX}"
    aside = path.with_suffix(f".{os.getpid()}")
    blob = codec.encode(BlobKind.SAVEPOINT_PART, (number, schemas, content))
    aside.write_bytes(blob)
    os.replace(aside, path)
    return operator_id, number, len(blob)


def check_parts(staging: Path, parts: list[Part]) -> None:
    for operator_id, number, size in parts:
        path = staging / str(operator_id) / f"{number:05d}{_SUFFIX}"
        if not path.exists() or path.stat().st_size != size:
            raise SavepointError(
                f"The part {path} of the savepoint is not there, or not whole. The folder for savepoints "
                "must be one that the driver and all workers see."
            )


def list_parts(staging: Path, operator_id: int) -> list[Path]:
    return sorted((staging / str(operator_id)).glob(f"*{_SUFFIX}"))


def read_part(path: Path) -> tuple[int, dict[str, Schemas], Content]:
    part: tuple[Any, ...] = codec.decode(BlobKind.SAVEPOINT_PART, path.read_bytes(), str(path))
    return part  # type: ignore[return-value]
