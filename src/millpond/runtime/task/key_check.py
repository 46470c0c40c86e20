"""Whether keys are where records of the same key would look for them (C40)."""

from __future__ import annotations

import dataclasses

from millpond.errors import IncompatibleCheckpointError
from millpond.plan.physical import TaskPlan
from millpond.runtime.task.key_groups import key_group_of
from millpond.state.key_group_state import KeyGroupState
from millpond.state.tables import DataTable


def check_keys(state: KeyGroupState, plan: TaskPlan) -> None:
    """Raise if a class that keys are of has changed since they were written: one key tells. Plain keys are
    what they were."""
    for table in state.tables.values() if plan.keyed else ():
        key = next(iter(table.data), None) if isinstance(table, DataTable) else None
        is_object = dataclasses.is_dataclass(key)
        if is_object and key_group_of(key, plan.max_parallelism) != state.key_group:
            raise IncompatibleCheckpointError(
                f"{state.where}: the key {key!r} belongs to another key group now: the fields of "
                f"{type(key).__name__} have changed since it was written. Keys cannot change; give the "
                "operator another uid to start without that state, or leave the class as it was."
            )
