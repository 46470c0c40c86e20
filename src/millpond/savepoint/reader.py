"""Opens savepoints: checks that they are complete, and returns their state."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import pyarrow.parquet

from millpond.common.paths import local_folder
from millpond.errors import SavepointError
from millpond.savepoint.decoded import decoded_table
from millpond.savepoint.job_state import SavedJobState
from millpond.savepoint.manifest import Manifest, OperatorEntry, StateEntry, check_file
from millpond.savepoint.state_tables import Content, to_columns, to_content
from millpond.state.broadcast_state import PREFIX as BROADCAST
from millpond.state.key_check import KEY
from millpond.state.kinds.kind import Columns
from millpond.state.kinds.list import element_columns
from millpond.state.operator_lists import SPLIT, UNION, deal_out
from millpond.state.types.schemas import PICKLE, Schemas


class SavepointReader:
    """An open savepoint. Call `check` before restoring state from it."""

    def __init__(self, path: str | Path) -> None:
        self.path = local_folder(path, "The savepoint")
        self.manifest = Manifest.read(self.path)

    def check(self) -> None:
        """Read every file once. Raises SavepointError if one is missing or damaged."""
        check_file(self.path, self.manifest.job_file)
        for operator in self.manifest.operators:
            for state in operator.states:
                check_file(self.path, state.file)

    @cached_property
    def job_state(self) -> SavedJobState:
        """What the savepoint holds about the job as a whole."""
        path = self.path / self.manifest.job_file.path
        return SavedJobState.decode(path.read_bytes(), str(path))

    def operator(self, uid: str) -> OperatorEntry | None:
        """Return the operator with this uid; None if there is none."""
        return next((entry for entry in self.manifest.operators if entry.uid == uid), None)

    def contents(self, uid: str, number: int) -> Iterator[Content]:
        """Yield the state of a key group (or subtask) in pieces, as ShardState.apply takes them; no piece
        if it had no state."""
        operator = self.operator(uid)
        for state in () if operator is None else operator.states:
            if number not in state.file.groups:
                continue
            file, types = self._file(state), {state.name: without_key(state.types)}
            for position, owner in enumerate(state.file.groups):
                if owner == number:
                    columns = to_columns(file.read_row_group(position), state.schemas)
                    yield to_content({state.name: (state.kind, columns)}, types)

    def subtask_content(self, uid: str, subtask: int, parallelism: int) -> Content | None:
        """Return the state of a subtask of an operator without keys; None if it has none. The operator may
        have had another number of subtasks: lists are dealt out anew or united (E31), and broadcast state is
        that of any subtask (C38)."""
        operator = self.operator(uid)
        if operator is None:
            return None
        states: dict[str, tuple[str, Columns]] = {}
        types: dict[str, Schemas] = {}
        for name in dict.fromkeys(state.name for state in operator.states):
            parts: dict[int, Columns] = {}
            forms = self.forms(uid, name)
            for state in forms:
                file = self._file(state)
                for position, number in enumerate(state.file.groups):
                    columns = to_columns(file.read_row_group(position), state.schemas)
                    parts[number] = _joined(parts[number], columns) if number in parts else columns
            # If the forms declare their values in different ways, nothing is known about these.
            types[name] = forms[0].types if len(forms) == 1 else dict.fromkeys(state.types, PICKLE)
            subtask_columns = _of_subtask(name, parts, subtask, operator.parallelism, parallelism)
            if subtask_columns is not None and subtask_columns["key"]:
                states[name] = (state.kind, subtask_columns)
        return to_content(states, types) if states else None

    def table(self, uid: str, name: str) -> pyarrow.Table:
        """Return all of one state as an Arrow table; see `decoded.py`."""
        forms = [(self._file(form).read(), form.schemas) for form in self.forms(uid, name)]
        return decoded_table(forms)

    def forms(self, uid: str, name: str) -> list[StateEntry]:
        """Return the forms of a state, at least one. There may be more, because key groups that no function
        has asked for since the program changed have the state as it was. Raises SavepointError if there is no
        such state."""
        operator = self.operator(uid)
        if operator is None:
            known = [entry.uid for entry in self.manifest.operators]
            raise SavepointError(f"{self.path} has no operator with uid '{uid}'; it has {known}.")
        forms = [state for state in operator.states if state.name == name]
        if forms:
            return forms
        known = list(dict.fromkeys(state.name for state in operator.states))
        raise SavepointError(
            f"{self.path}: operator '{uid}' has no state '{name}'; it has {known}."
        )

    def _file(self, state: StateEntry) -> pyarrow.parquet.ParquetFile:
        try:
            return pyarrow.parquet.ParquetFile(self.path / state.file.path)
        except (OSError, pyarrow.ArrowInvalid) as problem:
            raise SavepointError(
                f"{self.path / state.file.path} cannot be read: {problem}"
            ) from None


def without_key(types: Schemas) -> Schemas:
    """Return the types of a state's values, as a change log has them. The type of keys belongs to the
    operator."""
    return {column: schema for column, schema in types.items() if column != KEY}


def _joined(first: Columns, second: Columns) -> Columns:
    return {name: values + second[name] for name, values in first.items()}


def _of_subtask(
    name: str, parts: dict[int, Columns], subtask: int, before: int, parallelism: int
) -> Columns | None:
    if name.startswith(BROADCAST):
        return parts.get(subtask, parts[min(parts)])
    if not name.startswith((SPLIT, UNION)):
        return parts.get(subtask)
    lists = [parts[number]["value"] if number in parts else [] for number in range(before)]
    if name.startswith(UNION):
        elements = [element for part in lists for element in part]
    else:
        elements = deal_out(lists, parallelism)[subtask]
    return element_columns(elements)
