"""Makes a savepoint of the parts that tasks have written. A savepoint is complete, or not there at all."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet

from millpond import __version__
from millpond.common.folder_sync import sync_folder
from millpond.core import fault_points
from millpond.plan.identity import state_layout
from millpond.plan.physical import JobPlan, OperatorPlan, TaskPlan
from millpond.savepoint.job_state import SavedJobState
from millpond.savepoint.manifest import (
    FileEntry,
    Manifest,
    OperatorEntry,
    StateEntry,
    describe_file,
)
from millpond.savepoint.parts import Part, Piece, files_of, list_pieces
from millpond.savepoint.state_tables import (
    TIMERS,
    TIMERS_KIND,
    Content,
    columns_of,
    joined_schemas,
    to_table,
)
from millpond.state.types.schemas import Schemas

JOB_FILE = "job.blob"
_BIGGEST = 5
_COMPRESSION = "zstd"


def savepoint_name(job_id: str, order_id: str) -> str:
    """Return the name of a savepoint's folder."""
    return f"savepoint-{job_id[:6]}-{order_id[:12]}"


def write_savepoint(
    plan: JobPlan,
    staging: Path,
    parts: list[Part],
    target: Path,
    job_state: SavedJobState,
    epoch: int,
    created_ms: int,
    drained: bool = False,
) -> Path:
    """Write a savepoint of these parts in `staging` to `target`, remove the staging folder, and return
    `target`. `job_state` is what the driver knows, by uid."""
    with new_folder(target) as building:
        operators = [
            _write_operator(plan.operators[task.root], task, files, building)
            for task in plan.tasks.values()
            if (files := files_of(staging, parts, task.root))
        ]
        (building / JOB_FILE).write_bytes(job_state.encode())
        manifest = Manifest(
            id=target.name,
            created_ms=created_ms,
            version=__version__,
            job_name=plan.name,
            job_id=plan.start.job_id,
            epoch=epoch,
            parallelism=plan.parallelism,
            drained=drained,
            operators=operators,
            sources=sorted(job_state.sources),
            job_file=describe_file(building, JOB_FILE),
        )
        manifest.write(building)
        fault_points.reach("driver within savepoint")
    shutil.rmtree(staging, ignore_errors=True)
    return target


def building_folder(target: Path) -> Path:
    """Return the folder in which a savepoint is built before it gets its name."""
    return target.with_name(f".{target.name}.building")


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Open a folder to build a savepoint in. It gets its name when the block ends, and is removed if the
    block raises."""
    building = building_folder(target)
    shutil.rmtree(building, ignore_errors=True)
    (building / "state").mkdir(parents=True, mode=0o700)
    try:
        yield building
        _sync(building)
        os.rename(building, target)
        sync_folder(target.parent)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise


def _write_operator(
    operator: OperatorPlan, task: TaskPlan, parts: list[Path], folder: Path
) -> OperatorEntry:
    schemas: dict[_Form, Schemas] = {}
    pieces = list_pieces(parts)
    # They are read twice, for their types and for their content, to have one at a time in memory.
    for part_schemas, content in map(Piece.read, pieces):
        for name, state_schemas in part_schemas.items():
            form = _form_of(name, content)
            schemas[form] = (
                joined_schemas(schemas[form], state_schemas) if form in schemas else state_schemas
            )
    files = {
        form: StateFile(folder, state_path(operator.id, operator.uid, number), form[0], schema)
        for number, (form, schema) in enumerate(sorted(schemas.items()))
    }
    for piece in pieces:
        _, content = piece.read()
        for name, columns in columns_of(content).items():
            form = _form_of(name, content)
            files[form].add(piece.number, form[1], columns)
            files[form].types = content["types"].get(name, {})
    return OperatorEntry(
        operator.uid,
        operator.name,
        operator.kind.value,
        state_layout(operator),
        task.keyed,
        task.parallelism,
        task.max_parallelism,
        [file.close() for file in files.values()],
    )


# A state's name, kind and declared types. There may be several forms of a state, because key groups that no
# function has asked for since the program changed have it as it was.
_Form = tuple[str, str, str]


def _form_of(name: str, content: Content) -> _Form:
    if name == TIMERS:
        return name, TIMERS_KIND, ""
    types = content["types"].get(name, {})
    return name, content["states"][name][0], json.dumps(types, sort_keys=True)


def state_path(operator: int, uid: str, number: int) -> str:
    """Return the path of a state's file within a savepoint."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", uid)[:80]
    return f"state/{operator}-{readable}-{number}.parquet"


class StateFile:
    """The file of one state (in one form): one or more row groups for each key group, one key group after
    the other."""

    def __init__(self, folder: Path, path: str, name: str, schemas: Schemas) -> None:
        self._folder = folder
        self._path = path
        self._name = name
        self._schemas = schemas
        self._kind = ""
        self.types: Schemas = {}  # as the program declared them
        self._writer: pyarrow.parquet.ParquetWriter | None = None
        self._groups: list[int] = []
        self._rows = 0
        self._keys = 0
        self._rows_of: Counter[Any] = Counter()  # key -> its rows, in the key group that is written
        self._biggest: Counter[str] = Counter()

    def add(self, number: int, kind: str, columns: dict[str, list[Any]]) -> None:
        """Write the columns of a key group (or subtask) as a row group."""
        table = to_table(number, columns, self._schemas)
        if self._writer is None:
            self._writer = pyarrow.parquet.ParquetWriter(
                self._folder / self._path, table.schema, compression=_COMPRESSION
            )
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        self._kind = kind
        if self._groups and self._groups[-1] != number:
            self._count_keys()
        self._groups.append(number)
        self._rows += table.num_rows
        self._rows_of.update(columns.get("key", ()))

    def _count_keys(self) -> None:
        """Count the keys of a key group that is complete."""
        self._keys += len(self._rows_of)
        for key, count in self._rows_of.most_common(_BIGGEST):
            self._biggest[repr(key)] = count
        self._biggest = Counter(dict(self._biggest.most_common(_BIGGEST)))
        self._rows_of.clear()

    def close(self) -> StateEntry:
        """Finish the file, to which something must have been added. Return its entry for the manifest."""
        self._count_keys()
        assert self._writer is not None
        self._writer.close()
        file: FileEntry = describe_file(self._folder, self._path, self._groups)
        biggest = [(key, count) for key, count in self._biggest.most_common() if count > 1]
        return StateEntry(
            self._name,
            self._kind,
            self._schemas,
            self.types,
            self._rows,
            self._keys,
            biggest,
            file,
        )


def _sync(folder: Path) -> None:
    """Sync all files to disk. This is done before the folder gets its name."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
