"""What the driver knows about the types of states and keys. It is in every epoch, so that a program that was
changed, and goes on in its job folder, is refused before anything is read if it does not fit (E47, C40)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from millpond.driver.job_folder import JobFolder
from millpond.errors import IncompatibleCheckpointError
from millpond.plan.physical import JobPlan
from millpond.state.key_check import changed_key, key_schema
from millpond.state.type_check import StoredTypes


class StateTypes:
    def __init__(self, plan: JobPlan) -> None:
        self._plan = plan
        self._types: StoredTypes = {}

    def take(self, told: Iterable[StoredTypes]) -> None:
        """What tasks have told."""
        for own in told:
            for uid, types in own.items():
                self._types[uid] = self._types.get(uid, {}) | types

    def content(self) -> dict[str, Any]:
        """For the epoch."""
        keys = {
            self._plan.operators[task.root].uid: key_schema(self._plan, task)
            for task in self._plan.tasks.values()
            if task.keyed
        }
        return {"states": self._types, "keys": keys}

    def load(self, epoch: dict[str, Any]) -> None:
        """What an epoch has; raises if keys have another type now."""
        stored = epoch.get("types", {"states": {}, "keys": {}})
        self._types = stored["states"]
        for task in self._plan.tasks.values():
            operator = self._plan.operators[task.root]
            before = stored["keys"].get(operator.uid)
            change = None if before is None else changed_key(before, key_schema(self._plan, task))
            if change is not None:
                raise IncompatibleCheckpointError(
                    f"Operator '{operator.name}' (uid '{operator.uid}'): {change} in its job folder. Keys "
                    "cannot change their type; start afresh under another job name or in another folder."
                )


def stored_in(folder: JobFolder) -> StoredTypes | None:
    """What the newest epoch says that states are; None if there is none yet."""
    epoch = folder.read_epoch(folder.last_epoch())
    return None if epoch is None else epoch.get("types", {"states": {}})["states"]
