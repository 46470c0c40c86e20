"""Savepoints as tables, with no job running (E48): read them, change them, make new ones.

    savepoint = Savepoint.load(path)
    savepoint.pandas("count", "views")                          # also .rows, .arrow, .spark
    savepoint.with_state("count", ValueStateDescriptor("views", Types.INT()), {"ann": 3}).write(new_path)

A Savepoint never changes: every change gives another one, and `write` makes a new folder.
"""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow

from millpond import __version__
from millpond.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    StateKind,
)
from millpond.errors import ProgramError, SavepointError, TypeMismatchError
from millpond.runtime.job_state import EMPTY_JOB_STATE
from millpond.runtime.task import codec
from millpond.runtime.task.codec import BlobKind
from millpond.runtime.task.key_groups import DEFAULT_MIN_MAX_PARALLELISM, key_group_of
from millpond.savepoint.decoded import is_plain
from millpond.savepoint.manifest import (
    Manifest,
    OperatorEntry,
    StateEntry,
    describe_file,
)
from millpond.savepoint.reader import SavepointReader
from millpond.savepoint.state_tables import TIMERS, Columns, Schemas, to_columns
from millpond.savepoint.writer import JOB_FILE, StateFile, new_folder, state_path
from millpond.state.broadcast_state import PREFIX as _BROADCAST
from millpond.state.key_group_state import declared_schemas
from millpond.state.schemas import PICKLE, schema_of_values


@dataclass(frozen=True)
class _NewState:
    """A state that is not in the savepoint this one is made from."""

    name: str
    kind: str
    schemas: Schemas
    types: Schemas
    groups: dict[int, Columns]


@dataclass(frozen=True)
class _Operator:
    entry: OperatorEntry
    new: dict[str, _NewState] = field(default_factory=dict)

    def names(self) -> list[str]:
        return list(dict.fromkeys([*(state.name for state in self.entry.states), *self.new]))

    def kept(self, name: str) -> list[StateEntry]:
        """All forms of a state, see SavepointReader.forms."""
        return [state for state in self.entry.states if state.name == name]


class Savepoint:
    """Made by `load` or `new`."""

    def __init__(self, reader: SavepointReader | None, operators: dict[str, _Operator]) -> None:
        self._reader = reader
        self._operators = operators

    @staticmethod
    def load(path: str | Path) -> Savepoint:
        """Open a savepoint; raises SavepointError if it is damaged."""
        reader = SavepointReader(path)
        reader.check()
        return Savepoint(reader, {own.uid: _Operator(own) for own in reader.manifest.operators})

    @staticmethod
    def new() -> Savepoint:
        """An empty one. Give it state with `with_state`."""
        return Savepoint(None, {})

    @property
    def job_id(self) -> str | None:
        """Of the job that wrote it; None if no job has."""
        return None if self._reader is None else self._reader.manifest.job_id

    # --- looking ---------------------------------------------------------------------------------

    def operators(self) -> list[str]:
        """The uids of operators with state."""
        return list(self._operators)

    def states(self, uid: str) -> list[str]:
        """The names of an operator's states; "(timers)" is one if there are any."""
        return self._operator(uid).names()

    def rows(self, uid: str, state: str) -> list[dict[str, Any]]:
        """All entries as Python values: key_group, key, value, ... (docs/savepoint-format.md)."""
        rows: list[dict[str, Any]] = []
        for key_group, columns in self._groups(uid, state):
            names = ["key_group", *columns]
            values = zip(*columns.values(), strict=True)
            rows.extend(dict(zip(names, (key_group, *row), strict=True)) for row in values)
        return rows

    def arrow(self, uid: str, state: str) -> pyarrow.Table:
        """Values are decoded, also those without a declared type; only what Arrow has no type for (objects
        of your classes, values of different types) stays as pickles."""
        self._refuse_new(uid, state)
        assert self._reader is not None
        return self._reader.table(uid, state)

    def pandas(self, uid: str, state: str) -> Any:
        """A pandas DataFrame with Python values."""
        import pandas

        return pandas.DataFrame(self.rows(uid, state))

    def spark(self, uid: str, state: str, session: Any = None) -> Any:
        """A Spark DataFrame on the Parquet file; if that has pickles, or the state different forms, of the
        table that `arrow` gives."""
        self._refuse_new(uid, state)
        assert self._reader is not None
        if session is None:
            from millpond.common.configuration import Configuration
            from millpond.runtime.spark.session import get_session

            session = get_session(Configuration())
        forms = self._reader.forms(uid, state)
        if len(forms) == 1 and is_plain(forms[0].schemas):
            return session.read.parquet(str(self._reader.path / forms[0].file.path))
        return session.createDataFrame(self.arrow(uid, state))

    def timers(self, uid: str) -> list[dict[str, Any]]:
        """domain, time, key and namespace (the window) of all timers."""
        return self.rows(uid, TIMERS) if TIMERS in self.states(uid) else []

    def broadcast_state(self, uid: str, state: str) -> dict[Any, Any]:
        """The entries of a broadcast state; every key group has the same."""
        for _, columns in self._groups(uid, _BROADCAST + state):
            return dict(zip(columns["entry"], columns["value"], strict=True))
        return {}

    # --- changing --------------------------------------------------------------------------------

    def with_state(
        self,
        uid: str,
        descriptor: StateDescriptor,
        content: Mapping[Any, Any] | Iterable[Any] | Any,
        max_parallelism: int | None = None,
    ) -> Savepoint:
        """Another state, or another content of one. `content` is {key: value}, {key: [elements]} or {key:
        {entry: value}}, or a pandas or Spark DataFrame with the columns key, value and, for maps, entry. An
        operator that is not there yet is made, for `max_parallelism` (128 if it is left out)."""
        operator = self._operators.get(uid)
        maximum = max_parallelism or DEFAULT_MIN_MAX_PARALLELISM
        if operator is None:
            entry = OperatorEntry(uid, uid, "", "", True, 1, maximum, [])
            operator = _Operator(entry)
        elif max_parallelism not in (None, operator.entry.max_parallelism):
            raise SavepointError(
                f"Operator '{uid}' has max parallelism {operator.entry.max_parallelism}, not "
                f"{max_parallelism}; it cannot change."
            )
        state = _new_state(descriptor, content, operator.entry.max_parallelism)
        changed = replace(operator, new={**operator.new, descriptor.name: state})
        return Savepoint(self._reader, {**self._operators, uid: changed})

    def without_operator(self, uid: str) -> Savepoint:
        self._operator(uid)
        return Savepoint(
            self._reader, {own: state for own, state in self._operators.items() if own != uid}
        )

    def without_state(self, uid: str, state: str) -> Savepoint:
        operator = self._operator(uid)
        if state not in operator.names():
            raise SavepointError(f"Operator '{uid}' has no state '{state}': {operator.names()}.")
        entry = replace(
            operator.entry, states=[own for own in operator.entry.states if own.name != state]
        )
        new = {name: own for name, own in operator.new.items() if name != state}
        return Savepoint(self._reader, {**self._operators, uid: _Operator(entry, new)})

    def renamed(self, uid: str, new_uid: str) -> Savepoint:
        """Give an operator another uid."""
        operator = self._operator(uid)
        if new_uid in self._operators:
            raise SavepointError(f"There is an operator with uid '{new_uid}' already.")
        changed = replace(operator, entry=replace(operator.entry, uid=new_uid))
        return Savepoint(
            self._reader,
            {
                new_uid if own == uid else own: changed if own == uid else state
                for own, state in self._operators.items()
            },
        )

    def write(self, path: str | Path) -> str:
        """Write all of it as a new savepoint; returns its path."""
        target = Path(path).absolute()
        if target.exists():
            raise SavepointError(f"{target} exists already; a savepoint is never changed in place.")
        target.parent.mkdir(parents=True, exist_ok=True)
        with new_folder(target) as building:
            operators = [
                self._write_operator(number, uid, operator, building)
                for number, (uid, operator) in enumerate(self._operators.items())
            ]
            self._write_job_file(building)
            base = None if self._reader is None else self._reader.manifest
            Manifest(
                id=target.name,
                created_ms=time.time_ns() // 1_000_000,
                version=__version__,
                job_name="" if base is None else base.job_name,
                job_id=uuid.uuid4().hex if base is None else base.job_id,
                epoch=-1 if base is None else base.epoch,
                parallelism=1 if base is None else base.parallelism,
                drained=False if base is None else base.drained,
                operators=operators,
                sources=[] if base is None else base.sources,
                job_file=describe_file(building, JOB_FILE),
            ).write(building)
        return str(target)

    def _write_operator(
        self, number: int, uid: str, operator: _Operator, folder: Path
    ) -> OperatorEntry:
        states: list[StateEntry] = []
        for name in operator.names():
            new = operator.new.get(name)
            if new is None:
                for kept in operator.kept(name):
                    path = state_path(number, uid, len(states))
                    states.append(self._copied(kept, folder, path))
            elif new.groups:
                path = state_path(number, uid, len(states))
                file = StateFile(folder, path, name, new.schemas)
                file.types = new.types
                for key_group, columns in sorted(new.groups.items()):
                    file.add(key_group, new.kind, columns)
                states.append(file.close())
        return replace(operator.entry, uid=uid, states=states)

    def _copied(self, state: StateEntry, folder: Path, path: str) -> StateEntry:
        assert self._reader is not None
        shutil.copyfile(self._reader.path / state.file.path, folder / path)
        return replace(state, file=replace(state.file, path=path))

    def _write_job_file(self, folder: Path) -> None:
        if self._reader is None:
            (folder / JOB_FILE).write_bytes(codec.encode(BlobKind.EPOCH, EMPTY_JOB_STATE))
        else:
            shutil.copyfile(
                self._reader.path / self._reader.manifest.job_file.path, folder / JOB_FILE
            )

    # --- inside ----------------------------------------------------------------------------------

    def _operator(self, uid: str) -> _Operator:
        operator = self._operators.get(uid)
        if operator is None:
            raise SavepointError(
                f"There is no operator with uid '{uid}'; there are {self.operators()}."
            )
        return operator

    def _groups(self, uid: str, state: str) -> Iterator[tuple[int, Columns]]:
        """(key group, columns) of a state."""
        operator = self._operator(uid)
        if state in operator.new:
            yield from sorted(operator.new[state].groups.items())
            return
        forms = operator.kept(state)
        if not forms:
            raise SavepointError(f"Operator '{uid}' has no state '{state}': {operator.names()}.")
        assert self._reader is not None
        for entry in forms:
            file = pyarrow.parquet.ParquetFile(self._reader.path / entry.file.path)
            for position, key_group in enumerate(entry.file.groups):
                yield key_group, to_columns(file.read_row_group(position), entry.schemas)

    def _refuse_new(self, uid: str, state: str) -> None:
        if state in self._operator(uid).new:
            raise SavepointError(
                f"State '{state}' of '{uid}' is not written yet: write() first, or use rows()."
            )


def _new_state(descriptor: StateDescriptor, content: Any, max_parallelism: int) -> _NewState:
    if descriptor.kind is StateKind.COLUMN:
        raise ProgramError(f"Column state '{descriptor.name}' cannot be written.")
    groups: dict[int, Columns] = {}
    check = descriptor.type_info.check()
    for key, entry, value in _entries(descriptor, content):
        if check is not None:
            try:
                value = check(value)
            except TypeMismatchError as mismatch:
                raise TypeMismatchError(
                    f"State '{descriptor.name}', key {key!r}: {mismatch}"
                ) from None
        columns = groups.setdefault(key_group_of(key, max_parallelism), {})
        columns.setdefault("key", []).append(key)
        if entry is not None:
            name = "position" if isinstance(descriptor, ListStateDescriptor) else "entry"
            columns.setdefault(name, []).append(entry[0])
        columns.setdefault("value", []).append(value)
    types = declared_schemas(descriptor)
    schemas: Schemas = {}
    for name in next(iter(groups.values()), {}):
        schema = types.get(name, PICKLE)
        if schema == PICKLE:
            schema = schema_of_values([v for columns in groups.values() for v in columns[name]])
        schemas[name] = schema
    return _NewState(descriptor.name, descriptor.kind.value, schemas, types, groups)


def _entries(
    descriptor: StateDescriptor, content: Any
) -> Iterator[tuple[Any, tuple[Any] | None, Any]]:
    """(key, (entry or position,) if there is such, value), the rows of a key together."""
    if not isinstance(content, Mapping):
        content = _from_frame(descriptor, content)
    for key, value in content.items():
        if isinstance(descriptor, ListStateDescriptor):
            for position, element in enumerate(value):
                yield key, (position,), element
        elif isinstance(descriptor, MapStateDescriptor):
            for entry, own in value.items():
                yield key, (entry,), own
        else:
            yield key, None, value


def _from_frame(descriptor: StateDescriptor, frame: Any) -> dict[Any, Any]:
    """Of a pandas or Spark DataFrame, or an Arrow table."""
    if hasattr(frame, "toArrow"):
        frame = frame.toArrow()
    if hasattr(frame, "to_dict"):
        rows = frame.to_dict("records")
    elif isinstance(frame, pyarrow.Table):
        rows = frame.to_pylist()
    else:
        raise TypeError(
            f"with_state takes a dict, a DataFrame or an Arrow table, not {type(frame).__name__}"
        )
    found: dict[Any, Any] = {}
    for row in rows:
        if isinstance(descriptor, ListStateDescriptor):
            found.setdefault(row["key"], []).append(row["value"])
        elif isinstance(descriptor, MapStateDescriptor):
            found.setdefault(row["key"], {})[row["entry"]] = row["value"]
        else:
            found[row["key"]] = row["value"]
    return found
