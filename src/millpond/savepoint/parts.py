"""The parts of a savepoint as tasks write them, in a staging folder: one file per key group (or subtask)
of each stateful operator. The driver puts them together (`writer.py`)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from millpond.runtime.task import codec
from millpond.runtime.task.codec import BlobKind
from millpond.savepoint.state_tables import Content, Schemas, columns_of, schemas_of
from millpond.state.key_group_state import KeyGroupState

_SUFFIX = ".part"


def write_part(staging: str, operator_id: int, number: int, state: KeyGroupState) -> None:
    """Written aside and renamed; a batch that runs again writes the same again."""
    if state.is_empty():
        return
    state.clean_all()
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


def list_parts(staging: Path, operator_id: int) -> list[Path]:
    return sorted((staging / str(operator_id)).glob(f"*{_SUFFIX}"))


def read_part(path: Path) -> tuple[int, dict[str, Schemas], Content]:
    part: tuple[Any, ...] = codec.decode(BlobKind.SAVEPOINT_PART, path.read_bytes(), str(path))
    return part  # type: ignore[return-value]
