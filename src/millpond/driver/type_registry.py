"""What the driver knows about the types of states and keys. Every epoch holds it, so that a changed program
that does not fit its job folder is refused before it reads anything (E47, C40)."""

from __future__ import annotations

from collections.abc import Iterable

from millpond.datastream.formats.avro_schemas import Schema
from millpond.driver.epochs.epoch_log import epoch_records
from millpond.driver.epochs.epoch_record import EpochRecord
from millpond.driver.job_folder import JobFolder
from millpond.errors import IncompatibleCheckpointError
from millpond.plan.physical import JobPlan
from millpond.plan.settings import StoredForm, StoredTypes
from millpond.state.key_check import changed_key, key_schema


class TypeRegistry:
    """The types of the states and keys of one job. Used by the thread that runs batches."""

    def __init__(self, plan: JobPlan) -> None:
        self._plan = plan
        self._types: dict[str, dict[str, list[StoredForm]]] = {}

    def add(self, reported: Iterable[StoredTypes]) -> None:
        """Add the types that tasks have reported; for a state that is known, the newer types count."""
        for types_by_uid in reported:
            for uid, types in types_by_uid.items():
                self._types[uid] = {**self._types.get(uid, {}), **types}

    def state_types(self) -> StoredTypes:
        """Return the types of all states that tasks have reported, by uid and state."""
        return self._types

    def key_types(self) -> dict[str, Schema]:
        """Return, by uid, the type that the program declares for the keys of each keyed task."""
        return {
            self._plan.operators[task.root].uid: key_schema(self._plan, task)
            for task in self._plan.tasks.values()
            if task.keyed
        }

    def load(self, epoch: EpochRecord) -> None:
        """Replace the types with those of an epoch. Raises IncompatibleCheckpointError if keys have another
        type now."""
        self._types = {uid: dict(types) for uid, types in epoch.state_types.items()}
        for task in self._plan.tasks.values():
            operator = self._plan.operators[task.root]
            before = epoch.key_types.get(operator.uid)
            change = None if before is None else changed_key(before, key_schema(self._plan, task))
            if change is not None:
                raise IncompatibleCheckpointError(
                    f"Operator '{operator.name}' (uid '{operator.uid}'): {change} in its job folder. Keys "
                    "cannot change their type; start afresh under another job name or in another folder."
                )


def stored_types(folder: JobFolder) -> StoredTypes | None:
    """Return the types of states in the newest epoch of a job folder; None if there is no epoch yet."""
    types: StoredTypes | None = None
    for record in epoch_records(folder.storage):
        types = record.state_types
    return types
