"""Savepoints as tables, with no job running (E48): read them, change them, make new ones.

    savepoint = Savepoint.load(path)
    savepoint.pandas("count", "views")                          # also .rows, .arrow, .spark
    savepoint.with_state("count", ValueStateDescriptor("views", Types.INT()), {"ann": 3}).write(new_path)

A Savepoint never changes: every change returns another one, and `write` makes a new folder.
"""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow
import pyarrow.parquet

from millpond import __version__
from millpond.core.key_groups import DEFAULT_MIN_MAX_PARALLELISM
from millpond.datastream.execution import execution_service
from millpond.datastream.state import ListStateDescriptor, MapStateDescriptor, StateDescriptor
from millpond.errors import SavepointError
from millpond.savepoint.decoded import is_plain
from millpond.savepoint.job_state import SavedJobState, UidChanges
from millpond.savepoint.manifest import (
    Manifest,
    OperatorEntry,
    StateEntry,
    describe_file,
)
from millpond.savepoint.new_state import (
    NewState,
    broadcast_state,
    keyed_state,
    list_state,
    timers,
    times_of,
)
from millpond.savepoint.reader import SavepointReader
from millpond.savepoint.state_tables import TIMERS, columns_of, to_columns
from millpond.savepoint.writer import JOB_FILE, StateFile, new_folder, state_path
from millpond.state.broadcast_state import PREFIX as _BROADCAST
from millpond.state.kinds.kind import Columns
from millpond.state.operator_lists import SPLIT, UNION

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class _Operator:
    entry: OperatorEntry
    new: dict[str, NewState] = field(default_factory=dict)

    def names(self) -> list[str]:
        return list(dict.fromkeys([*(state.name for state in self.entry.states), *self.new]))

    def kept(self, name: str) -> list[StateEntry]:
        """Return all forms of a state that are in the savepoint from which this one is made
        (`SavepointReader.forms`)."""
        return [state for state in self.entry.states if state.name == name]


def _new_operator(
    uid: str,
    keyed: bool,
    parallelism: int = 1,
    max_parallelism: int = DEFAULT_MIN_MAX_PARALLELISM,
) -> _Operator:
    return _Operator(OperatorEntry(uid, uid, "", "", keyed, parallelism, max_parallelism, []))


def _no_state(uid: str, state: str, operator: _Operator) -> SavepointError:
    return SavepointError(f"Operator '{uid}' has no state '{state}'; it has {operator.names()}.")


class Savepoint:
    """A savepoint as tables, made by `load` or `new`. It never changes."""

    def __init__(
        self,
        reader: SavepointReader | None,
        operators: dict[str, _Operator],
        uids: UidChanges | None = None,
    ) -> None:
        self._reader = reader
        self._operators = operators
        self._uids = uids or UidChanges()

    @staticmethod
    def load(path: str | Path) -> Savepoint:
        """Open a savepoint. Raises SavepointError if it is damaged."""
        reader = SavepointReader(path)
        reader.check()
        return Savepoint(
            reader, {entry.uid: _Operator(entry) for entry in reader.manifest.operators}
        )

    @staticmethod
    def new() -> Savepoint:
        """Return an empty savepoint. Give it state with `with_state`."""
        return Savepoint(None, {})

    @property
    def job_id(self) -> str | None:
        """The id of the job that wrote it; None if no job did."""
        return None if self._reader is None else self._reader.manifest.job_id

    # --- looking ---------------------------------------------------------------------------------

    def operators(self) -> list[str]:
        """Return the uids of operators with state."""
        return list(self._operators)

    def states(self, uid: str) -> list[str]:
        """Return the names of an operator's states; "(timers)" is among them if there are timers."""
        return self._operator(uid).names()

    def rows(self, uid: str, state: str) -> list[dict[str, Any]]:
        """Return all rows as Python values: key_group, key, value and so on (docs/savepoint-format.md)."""
        rows: list[dict[str, Any]] = []
        for key_group, columns in self._groups(uid, state):
            names = ["key_group", *columns]
            values = zip(*columns.values(), strict=True)
            rows.extend(dict(zip(names, (key_group, *row), strict=True)) for row in values)
        return rows

    def arrow(self, uid: str, state: str) -> pyarrow.Table:
        """Return an Arrow table. Values are decoded, even those without a declared type; only those for which
        Arrow has no type (objects of your classes, values of different types) stay pickles."""
        self._refuse_new(uid, state)
        assert self._reader is not None
        return self._reader.table(uid, state)

    def pandas(self, uid: str, state: str) -> DataFrame:
        """Return a pandas DataFrame with Python values."""
        import pandas

        return pandas.DataFrame(self.rows(uid, state))

    def spark(self, uid: str, state: str, session: Any = None) -> Any:
        """Return a Spark DataFrame on the Parquet file, or on the table that `arrow` returns if the file has
        pickles or the state has several forms. `session` is a SparkSession; None means the running one, or a
        new one."""
        self._refuse_new(uid, state)
        assert self._reader is not None
        if session is None:
            session = execution_service().spark_session()
        forms = self._reader.forms(uid, state)
        if len(forms) == 1 and is_plain(forms[0].schemas):
            return session.read.parquet(str(self._reader.path / forms[0].file.path))
        return session.createDataFrame(self.arrow(uid, state))

    def sources(self) -> list[str]:
        """Return the uids of sources."""
        return [] if self._reader is None else self._uids.applied(self._reader.manifest.sources)

    def timers(self, uid: str) -> list[dict[str, Any]]:
        """Return domain, time, key and namespace (the window) of all timers."""
        return self.rows(uid, TIMERS) if TIMERS in self.states(uid) else []

    def broadcast_state(self, uid: str, state: str) -> dict[Any, Any]:
        """Return the entries of a broadcast state, which are the same in every key group."""
        for _, columns in self._groups(uid, _BROADCAST + state):
            return dict(zip(columns["entry"], columns["value"], strict=True))
        return {}

    def list_state(self, uid: str, state: str) -> list[Any]:
        """Return the elements of a list, or union list, of a function without keys, subtask by subtask."""
        if uid in self.sources():
            return self._list_of_source(uid, state)
        names = [name for name in (SPLIT + state, UNION + state) if name in self.states(uid)]
        groups = self._groups(uid, names[0] if names else SPLIT + state)
        return [
            element
            for _, columns in sorted(groups, key=lambda group: group[0])
            for element in columns["value"]
        ]

    def _list_of_source(self, uid: str, state: str) -> list[Any]:
        position = self._job_state().sources[uid].position
        content = position.get("lists") if isinstance(position, dict) else None
        lists = {} if content is None else columns_of(content)
        for name in (SPLIT + state, UNION + state):
            if name in lists:
                return lists[name]["value"]
        raise SavepointError(f"Source '{uid}' has no list '{state}'.")

    # --- changing --------------------------------------------------------------------------------

    def with_state(
        self,
        uid: str,
        descriptor: StateDescriptor,
        content: object,
        max_parallelism: int | None = None,
    ) -> Savepoint:
        """Return a savepoint with another keyed state, or with other content of an existing one.

        `content` is {key: value}, {key: [elements]} or {key: {entry: value}}, or a pandas or Spark DataFrame
        or an Arrow table with the columns key, value and, for maps, entry. If the operator does not exist
        yet, it is made, with `max_parallelism` (128 if that is None).

        Entries of a state with a time to live are as old as the column `time` says, or as what they replace;
        if neither is known, they begin to live when a job starts.
        """
        operator = self._keyed_operator(uid, max_parallelism)
        broadcast = _BROADCAST + descriptor.name
        if broadcast in operator.names() and descriptor.name not in operator.names():
            raise SavepointError(
                f"Operator '{uid}' has a broadcast state '{descriptor.name}': change it with "
                "with_broadcast_state."
            )
        is_known = descriptor.ttl_config is not None and descriptor.name in operator.names()
        times = times_of(descriptor, self._groups(uid, descriptor.name)) if is_known else {}
        maximum = operator.entry.max_parallelism
        return self._with(uid, operator, keyed_state(descriptor, content, maximum, times))

    def with_broadcast_state(
        self,
        uid: str,
        descriptor: MapStateDescriptor,
        content: Mapping[Any, Any],
        keyed: bool = True,
        max_parallelism: int | None = None,
    ) -> Savepoint:
        """Return a savepoint with another broadcast state, or with other content of an existing one: {entry:
        value}. If the operator does not exist yet, `keyed` says whether the other stream has keys."""
        if uid in self._operators:
            operator = self._operators[uid]
        elif keyed:
            operator = self._keyed_operator(uid, max_parallelism)
        else:
            operator = _new_operator(uid, keyed=False)
        return self._with(uid, operator, broadcast_state(descriptor, content, operator.entry))

    def with_list_state(
        self,
        uid: str,
        descriptor: ListStateDescriptor,
        elements: Iterable[Any],
        union: bool = False,
        parallelism: int = 1,
    ) -> Savepoint:
        """Return a savepoint with another list (or union list) of a function without keys, or with other
        content of an existing one. The elements are dealt out to the subtasks, of which there are
        `parallelism` if the operator does not exist yet; a job with another number of subtasks deals them out
        anew."""
        if uid in self.sources():
            raise SavepointError(
                f"'{uid}' is a source; its lists can be read, but not changed. Remove it with "
                "without_operator to have the source start from its beginning."
            )
        operator = self._operators.get(uid) or _new_operator(uid, False, parallelism)
        if operator.entry.keyed:
            raise SavepointError(f"Operator '{uid}' has keys: use with_state to give it state.")
        subtasks = operator.entry.parallelism
        return self._with(uid, operator, list_state(descriptor, elements, subtasks, union))

    def with_timers(
        self, uid: str, rows: Iterable[Mapping[str, Any]], max_parallelism: int | None = None
    ) -> Savepoint:
        """Return a savepoint with these timers instead of the existing ones. They have the form that `timers`
        returns: domain ("event" or "processing"), time in ms, key, and the namespace if a window has set
        them."""
        operator = self._keyed_operator(uid, max_parallelism)
        return self._with(uid, operator, timers(rows, operator.entry.max_parallelism))

    def _keyed_operator(self, uid: str, max_parallelism: int | None) -> _Operator:
        operator = self._operators.get(uid)
        if operator is None:
            maximum = max_parallelism or DEFAULT_MIN_MAX_PARALLELISM
            return _new_operator(uid, keyed=True, max_parallelism=maximum)
        if not operator.entry.keyed:
            raise SavepointError(
                f"Operator '{uid}' has no keys: use with_list_state or with_broadcast_state to give it state."
            )
        if max_parallelism not in (None, operator.entry.max_parallelism):
            raise SavepointError(
                f"Operator '{uid}' has max parallelism {operator.entry.max_parallelism}, which cannot change "
                f"to {max_parallelism}."
            )
        return operator

    def _with(self, uid: str, operator: _Operator, state: NewState) -> Savepoint:
        changed = replace(operator, new={**operator.new, state.name: state})
        return Savepoint(self._reader, {**self._operators, uid: changed}, self._uids)

    def without_operator(self, uid: str) -> Savepoint:
        """Return a savepoint without the state of an operator, or the position of a source."""
        if uid not in self.sources():
            self._operator(uid)
        operators = {other: state for other, state in self._operators.items() if other != uid}
        return Savepoint(self._reader, operators, self._uids.then(uid, None))

    def without_state(self, uid: str, state: str) -> Savepoint:
        """Return a savepoint without one state of an operator."""
        operator = self._operator(uid)
        if state not in operator.names():
            raise _no_state(uid, state, operator)
        entry = replace(
            operator.entry, states=[form for form in operator.entry.states if form.name != state]
        )
        new = {name: content for name, content in operator.new.items() if name != state}
        changed = {**self._operators, uid: _Operator(entry, new)}
        return Savepoint(self._reader, changed, self._uids)

    def renamed(self, uid: str, new_uid: str) -> Savepoint:
        """Return a savepoint in which an operator, or a source, has another uid."""
        if uid not in self.sources():
            self._operator(uid)
        if new_uid in self._operators or new_uid in self.sources():
            raise SavepointError(f"There is already an operator with uid '{new_uid}'.")
        operators = {
            new_uid if old_uid == uid else old_uid: (
                replace(state, entry=replace(state.entry, uid=new_uid)) if old_uid == uid else state
            )
            for old_uid, state in self._operators.items()
        }
        return Savepoint(self._reader, operators, self._uids.then(uid, new_uid))

    def write(self, path: str | Path) -> str:
        """Write everything as a new savepoint, and return its path. Raises SavepointError if the folder
        exists already."""
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
                sources=self.sources(),
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
        if self._reader is not None and not self._uids:
            path = self._reader.path / self._reader.manifest.job_file.path
            shutil.copyfile(path, folder / JOB_FILE)
        else:
            (folder / JOB_FILE).write_bytes(self._job_state().encode())

    def _job_state(self) -> SavedJobState:
        known = SavedJobState() if self._reader is None else self._reader.job_state
        return self._uids.in_job_state(known)

    # --- inside ----------------------------------------------------------------------------------

    def _operator(self, uid: str) -> _Operator:
        operator = self._operators.get(uid)
        if operator is None:
            raise SavepointError(
                f"There is no operator with uid '{uid}'; there are {self.operators()}."
            )
        return operator

    def _groups(self, uid: str, state: str) -> Iterator[tuple[int, Columns]]:
        """Yield (key group, columns) of a state, part by part."""
        operator = self._operator(uid)
        if state in operator.new:
            yield from sorted(operator.new[state].groups.items())
            return
        forms = operator.kept(state)
        if not forms:
            raise _no_state(uid, state, operator)
        assert self._reader is not None
        for entry in forms:
            file = pyarrow.parquet.ParquetFile(self._reader.path / entry.file.path)
            for position, key_group in enumerate(entry.file.groups):
                yield key_group, to_columns(file.read_row_group(position), entry.schemas)

    def _refuse_new(self, uid: str, state: str) -> None:
        if state in self._operator(uid).new:
            raise SavepointError(
                f"State '{state}' of '{uid}' is not written yet: call write() first, or use rows()."
            )
