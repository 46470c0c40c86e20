"""The driver's part of queryable state: it publishes which batches count, and runs one when somebody waits
for it.

The plan does not know which states there are: functions declare them when they are opened, in the slots.
The driver learns it from what slots write into the job folder (`files.py`).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from millpond.errors import ProgramError
from millpond.queryable import files

_WANTED_EVERY_S = 1.0
LOOK_EVERY_MS = 250


class KnownStates:
    """The queryable states that a job's driver knows of, by name. They outlive attempts; any thread may
    read them."""

    def __init__(self) -> None:
        self.by_name: dict[str, dict[str, Any]] = {}


class QueryableDesk:
    """The desk of one attempt at a job. Without a folder it does nothing. Used by the thread that plans
    batches."""

    def __init__(
        self,
        known: KnownStates,
        folder: Path | None,
        generation: int,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._known = known
        self._folder = folder
        self._generation = generation
        self._clock_s = clock_s
        self._seen_ns = 0  # the time of the folder when it was last read
        self._learned: dict[str, dict[str, Any]] = {}  # in this run
        self._wanted_s: float | None = None
        # Slots of earlier runs are gone. With a first batch, the slots of this run load their state.
        self._first_is_due = folder is not None and files.has_queryable_state(folder)
        if folder is not None and self._first_is_due:
            files.drop_locations_before(folder, generation)
            _, states = files.read_states(folder)
            known.by_name = known.by_name or states

    @property
    def has_states(self) -> bool:
        """True if the job is known to have queryable state."""
        return bool(self._known.by_name)

    def committed(self, epoch: int) -> None:
        """Publish that this batch counts. Called before the batch's output becomes visible:
        whoever has seen that finds state that is as new."""
        if self._folder is not None and files.has_queryable_state(self._folder):
            files.write_committed(self._folder, self._generation, epoch)

    def learn(self) -> None:
        """Take in what slots have written since, after a batch. What was known stays known: a slot that
        has just come back has not opened all of its functions yet. Raises ProgramError if two states have
        the same name."""
        seen_ns = 0 if self._folder is None else files.folder_time_ns(self._folder)
        if self._folder is None or seen_ns == self._seen_ns:
            return
        states = dict(self._learned)
        for location in files.read_locations(self._folder, self._generation):
            for name, state in location.states.items():
                _check_same(name, states.setdefault(name, state), state)
        if not states:
            return
        files.write_states(self._folder, self._generation, states)
        self._known.by_name = self._learned = states
        self._seen_ns = seen_ns

    def wants_batch(self) -> bool:
        """Return True if a batch should run although there is nothing to read."""
        if self._first_is_due:
            return True
        if self._folder is None or not self.has_states:
            return False
        if self._wanted_s is not None and self._clock_s() - self._wanted_s < _WANTED_EVERY_S:
            return False
        return files.is_batch_wanted(self._folder)

    def batch_planned(self) -> None:
        """Note that a batch will run, so that nobody has to wait for one any more."""
        if self._folder is not None and (self._first_is_due or self.has_states):
            self._first_is_due = False
            self._wanted_s = self._clock_s()
            files.forget_wanted(self._folder)


def _check_same(name: str, one: dict[str, Any], other: dict[str, Any]) -> None:
    """Raise ProgramError if a name stands for two states. Slots refuse such names themselves, but not all
    of them may have all operators."""
    if (one["uid"], one["state"]) != (other["uid"], other["state"]):
        raise ProgramError(
            f"The queryable state '{name}' is declared by operator '{one['operator']}' (state "
            f"'{one['state']}') and by operator '{other['operator']}' (state '{other['state']}'). Such a "
            "name must be unique within a job."
        )


def states_of(
    known: KnownStates, vertex_id: Callable[[str], str] | None = None
) -> dict[str, dict[str, Any]]:
    """Return the queryable states that a job's driver knows of, for the job's report. Complete after the
    first batch. `vertex_id` makes the id of a vertex from the uid of its first operator."""
    make_id = vertex_id or (lambda uid: hashlib.md5(uid.encode()).hexdigest())
    return {
        name: {
            "vertex": make_id(state["uid"]),
            "operator": state["operator"],
            "state": state["state"],
            "kind": state["kind"],
        }
        for name, state in known.by_name.items()
    }
