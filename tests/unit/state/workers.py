"""Workers that run batches on one shard, as hosts in slots do: with a log, and states that they keep."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from millpond.core.storage import MemoryStorage
from millpond.engine.kept_states import KeptStates
from millpond.engine.state_views import StateViews
from millpond.state import change_log as changelog
from millpond.state.partition_log import EMPTY, LogPosition, PartitionLog
from millpond.state.shard_state import ShardState

_SHARD = (0, 0)
_PLACE = (1, 0)
Apply = Callable[[ShardState, Any], object]


class Worker:
    """One process. All workers of a test share a storage."""

    def __init__(
        self, storage: MemoryStorage, name: str, new_state: Callable[[], ShardState]
    ) -> None:
        self.log = PartitionLog(storage, "log/1/0", name)
        self._kept = KeptStates(StateViews())
        self._new_state = new_state

    def store(self, number: int) -> changelog.LogStore:
        return self.log.of(number)

    def load(self, position: LogPosition) -> ShardState:
        """Return the state at a position; later passes do not know about it."""
        self.log.go_to(position)
        state = self._new_state()
        changelog.load(self.store, state)
        return state

    def run(
        self,
        position: LogPosition,
        operations: Iterable[Any],
        apply: Apply,
        check: Callable[[ShardState], None] = lambda state: None,
        commits_early: bool = False,
        fails: bool = False,
    ) -> LogPosition:
        """Run a batch that builds upon a position. Return the position after it."""
        self.log.go_to(position)
        states = self._kept.begin_pass(_PLACE, position)
        state, _ = states.take(_SHARD)
        if state is None:
            state = self._new_state()
            changelog.load(self.store, state)
        check(state)
        for operation in operations:
            apply(state, operation)
        changelog.append(self.store, state)
        states.keep(_SHARD, state)
        if commits_early:
            (kept,) = self._kept._states[_PLACE].values()
            state.commit()
            kept.can_undo = False
        if fails:
            return position
        after = self.log.write()
        states.end(after)
        return after


def run_batches(
    batches: Iterable[tuple[list[Any], str]],
    model: Any,
    apply: Apply,
    check: Callable[[ShardState], None],
    new_state: Callable[[], ShardState],
    commits_early: bool = False,
) -> None:
    """Run batches on a state and on a model. What happens to a batch: it counts; it is lost, and runs again
    in the same worker or in another one; it fails before it is written, and runs again; or it counts, and
    the next one runs in a worker that slept for a while. Check the state before each batch, and in the end
    in every worker."""
    storage, position = MemoryStorage(), EMPTY
    workers = [Worker(storage, str(number), new_state) for number in range(3)]
    for operations, fate in batches:
        worker = workers[2 if fate == "old worker" else 0]
        if fate.startswith(("lost", "fails")):
            worker.run(position, operations, apply, check, commits_early, fate.startswith("fails"))
            worker = workers[1] if fate == "lost, other worker" else worker
        position = worker.run(position, operations, apply, check, commits_early)
        for operation in operations:
            model.apply(operation)
    for worker in workers:
        worker.run(position, [], apply, check)
        check(worker.load(position))
