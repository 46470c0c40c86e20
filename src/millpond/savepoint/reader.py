"""Opens savepoints: checks that they are whole, and gives state back."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow.parquet

from millpond.errors import SavepointError
from millpond.runtime.task import codec
from millpond.runtime.task.codec import BlobKind
from millpond.savepoint.manifest import Manifest, OperatorEntry, StateEntry, check_file
from millpond.savepoint.state_tables import Content, to_columns, to_content


class SavepointReader:
    """`check` reads every file once and raises if one is damaged. Whoever restores has done it before."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()
        self.manifest = Manifest.read(self.path)

    def check(self) -> None:
        check_file(self.path, self.manifest.job_file)
        for operator in self.manifest.operators:
            for state in operator.states:
                check_file(self.path, state.file)

    @cached_property
    def job_state(self) -> dict[str, Any]:
        blob = (self.path / self.manifest.job_file.path).read_bytes()
        content: dict[str, Any] = codec.decode(BlobKind.EPOCH, blob, self.manifest.job_file.path)
        return content

    def operator(self, uid: str) -> OperatorEntry | None:
        return next((own for own in self.manifest.operators if own.uid == uid), None)

    def content(self, uid: str, number: int) -> Content | None:
        """The state of a key group (or subtask), as KeyGroupState.apply takes it; None if it had none."""
        operator = self.operator(uid)
        if operator is None:
            return None
        states = {}
        for state in operator.states:
            if number in state.file.groups:
                table = self._file(state).read_row_group(state.file.groups.index(number))
                states[state.name] = (state.kind, to_columns(table, state.schemas))
        return to_content(states, self._declared_types(operator)) if states else None

    @staticmethod
    def _declared_types(operator: OperatorEntry) -> dict[str, dict[str, Any]]:
        return {state.name: state.types for state in operator.states if state.types}

    def table(self, uid: str, name: str) -> pyarrow.Table:
        """All of one state, as it is in the file."""
        return self._file(self.state(uid, name)).read()

    def state(self, uid: str, name: str) -> StateEntry:
        operator = self.operator(uid)
        if operator is None:
            known = [own.uid for own in self.manifest.operators]
            raise SavepointError(f"{self.path} has no operator with uid '{uid}'; it has {known}.")
        for state in operator.states:
            if state.name == name:
                return state
        known = [own.name for own in operator.states]
        raise SavepointError(
            f"{self.path}: operator '{uid}' has no state '{name}'; it has {known}."
        )

    def _file(self, state: StateEntry) -> Any:
        try:
            return pyarrow.parquet.ParquetFile(self.path / state.file.path)
        except (OSError, pyarrow.ArrowInvalid) as problem:
            raise SavepointError(
                f"{self.path / state.file.path} cannot be read: {problem}"
            ) from None
