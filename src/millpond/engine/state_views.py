"""Which versions of queryable states can be read while another thread works on them (O6).

One thread works: it loads shards, runs batches on them, and keeps them until the next batch. Other
threads may read at any moment, and get exactly what batch C left, where C is the newest batch that counts.
Here is why that works:

1. A shard has at most two versions: the one from before the newest batch that ran here (`base_epoch`),
   which tables remember until they are committed, and the one that this batch left (`now_epoch`), once it is
   finished. Every batch runs on every shard of a task with queryable state. So if this slot is still the
   one that works on the shard, C is one of the two, and the reader says which.
2. While a batch changes tables, only the base is read. Tables either remember what was there before they
   change it, and are read in the opposite order (`state/hash/tables.py`), or keep changes apart until the
   commit (`state/ordered/tables.py`).
3. When tables are loaded, committed or rolled back, the base itself changes. `sequence` is odd while that
   happens and even otherwise, and grows each time. A reader takes it before and after, and reads again if it
   was odd or has changed. Nobody waits for anybody.
4. What a reader takes out is immutable, or a copy that was made in one step of the interpreter.

If neither version is C, there is no answer here. Either the shard is elsewhere now (C is newer than both
versions), or so many changes were waiting that they were committed before the batch counted (the base
is newer than C).

A backend that cannot be read from another thread (`reads_from_any_thread`) is never read while a batch runs
on a shard: both sides hold `lock` then.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, TypeVar

from millpond.common.basic_types import PickledBytesTypeInfo, TypeInformation
from millpond.datastream.state import StateDescriptor
from millpond.datastream.state_backend import StateBackend
from millpond.errors import MillpondError, ProgramError
from millpond.plan.physical import JobPlan, OperatorPlan
from millpond.state.shard_state import ShardState

R = TypeVar("R")
GroupId = tuple[int, int]  # task, shard


class ReaderLock(AbstractContextManager[bool], Protocol):
    """A lock that keeps readers and the thread that works apart, such as a `threading.Lock`."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Wait for the lock, at most `timeout` seconds unless that is -1. Return True if it was acquired."""

    def release(self) -> None:
        """Give the lock back."""


class Unreadable(Enum):
    """Why a state cannot be read."""

    MOVING = "the state is being loaded or committed"
    AHEAD = "a batch is running, and the version from before it is gone"
    OUTDATED = "the state is elsewhere by now"
    NOT_LOADED = "the state is not loaded yet"


@dataclass(frozen=True)
class QueryableState:
    """A state that a function has declared queryable. `descriptor` is the function's own."""

    name: str
    task: int
    operator: OperatorPlan
    descriptor: StateDescriptor
    key_type: TypeInformation | None
    parallelism: int
    max_parallelism: int
    by_key_group: bool


class GroupView:
    """The versions of one shard. The thread that works writes it, and other threads read it."""

    __slots__ = ("base_clock", "base_epoch", "now_clock", "now_epoch", "sequence", "state")

    def __init__(self, state: ShardState) -> None:
        self.sequence = 1
        self.state = state
        self.base_epoch = -1
        self.base_clock = 0  # the event time at which the base was left
        self.now_epoch: int | None = None  # None while a batch runs, and after it has failed
        self.now_clock = 0


class StateViews:
    """Everything that can be looked up in one slot. `on_declared` is called when a state is declared."""

    def __init__(
        self,
        on_declared: Callable[[], None] | None = None,
        lock: ReaderLock | None = None,
    ) -> None:
        self.states: dict[str, QueryableState] = {}
        self.groups: dict[GroupId, GroupView] = {}
        self.newest_epoch = -1  # of the batches that have begun here; earlier ones are committed
        self.is_exclusive = False
        self.lock = lock  # None if nobody reads from another thread
        self._on_declared = on_declared
        self._tasks: frozenset[int] = frozenset()  # those that have queryable states
        self._problem: MillpondError | None = None

    # --- what there is ---------------------------------------------------------------------------

    def fit_to(self, backend: StateBackend) -> None:
        """Learn from the backend whether readers must be kept out while a batch runs."""
        self.is_exclusive = not backend.reads_from_any_thread

    def declare(
        self, plan: JobPlan, task: int, operator: OperatorPlan, descriptor: StateDescriptor
    ) -> None:
        """Add a queryable state that a function asks for. Called when the function is opened, in each of its
        subtasks. What is wrong with it is raised later, by `check`."""
        name = descriptor.queryable_name
        assert name is not None
        known = self.states.get(name)
        if known is not None:
            if (known.operator.id, known.descriptor.name) != (operator.id, descriptor.name):
                self._problem = ProgramError(
                    f"The queryable state '{name}' is declared by operator '{known.operator.name}' (state "
                    f"'{known.descriptor.name}') and by operator '{operator.name}' (state "
                    f"'{descriptor.name}'). The name of a queryable state must be unique within a job."
                )
            return
        self.states[name] = describe(plan, task, operator, descriptor)
        self._tasks |= {task}
        if self._on_declared is not None:
            try:
                self._on_declared()
            except MillpondError as problem:
                self._problem = problem

    def check(self) -> None:
        """Raise what is wrong with the declared states. Called after functions were opened, because an error
        inside their `open` would be taken for a failure of the function."""
        if self._problem is not None:
            raise self._problem

    # --- called by the thread that works ------------------------------------------------------------

    def exclusively(self) -> AbstractContextManager[Any]:
        """Return a context manager that keeps readers out, if the backend needs that, during the work."""
        return self.lock if self.is_exclusive and self.lock is not None else nullcontext()

    def begin(self, task: int, key_group: int, epoch: int) -> None:
        """Note that a batch begins on a shard, whose state will now be loaded, committed or rolled back.
        Raises what `check` raises."""
        self.check()
        if task in self._tasks:
            self.newest_epoch = max(self.newest_epoch, epoch)
            view = self.groups.get((task, key_group))
            if view is not None:
                view.sequence |= 1

    def loaded(self, task: int, key_group: int, state: ShardState, epoch: int, clock: int) -> None:
        """Note that the state is as it was before batch `epoch`, when event time was `clock`, and has the
        declared types. From now on only that batch will change it."""
        if task not in self._tasks:
            return
        view = self.groups.get((task, key_group)) or GroupView(state)
        view.state = state
        view.base_epoch, view.base_clock = epoch - 1, clock
        view.now_epoch = None
        view.sequence = (view.sequence | 1) + 1
        self.groups[task, key_group] = view

    def finished(self, task: int, key_group: int, epoch: int, clock: int) -> None:
        """Note that the batch has finished; its changes wait for the commit."""
        view = self.groups.get((task, key_group))
        if view is not None:
            view.now_clock = clock
            view.now_epoch = epoch

    def commit_early(self, task: int, key_group: int, state: ShardState) -> None:
        """Commit a state before it is known whether its last batch counts."""
        view = self.groups.get((task, key_group))
        if view is None:
            state.commit()
            return
        view.sequence |= 1
        state.commit()
        assert view.now_epoch is not None
        view.base_epoch, view.base_clock = view.now_epoch, view.now_clock
        view.sequence += 1

    def is_read(self, task: int) -> bool:
        """Return True if the task has queryable states."""
        return task in self._tasks

    # --- called by threads that read ----------------------------------------------------------------

    def read(
        self, group_id: GroupId, committed_epoch: int, take: Callable[[ShardState, bool, int], R]
    ) -> R | Unreadable:
        """Return what `take(state, committed, event time)` returns for the version that batch
        `committed_epoch` left, or why that version cannot be read here.

        `take` must look at the last commit of the state if `committed`, otherwise at its current content.
        What it raises is passed on. Called by reading threads."""
        view = self.groups.get(group_id)
        if view is None:
            return Unreadable.NOT_LOADED
        sequence = view.sequence
        if sequence & 1:
            return Unreadable.MOVING
        state, now_epoch, base_epoch = view.state, view.now_epoch, view.base_epoch
        if now_epoch == committed_epoch:
            committed, clock = False, view.now_clock
        elif base_epoch == committed_epoch:
            if state.is_converted:
                return Unreadable.AHEAD
            committed, clock = True, view.base_clock
        elif base_epoch > committed_epoch:
            return Unreadable.AHEAD
        else:
            return Unreadable.OUTDATED if view.sequence == sequence else Unreadable.MOVING
        try:
            found = take(state, committed, clock)
        except Exception:
            if view.sequence == sequence:
                raise
            return Unreadable.MOVING  # it failed because the state changed meanwhile
        return found if view.sequence == sequence else Unreadable.MOVING


def describe(
    plan: JobPlan, task: int, operator: OperatorPlan, descriptor: StateDescriptor
) -> QueryableState:
    """Return what look-ups must know about a state that an operator of a task has declared queryable."""
    physical = plan.tasks[task]
    key_types = [plan.exchanges[task_input.exchange].key_type for task_input in physical.inputs]
    declared = [t for t in key_types if t is not None and not isinstance(t, PickledBytesTypeInfo)]
    assert descriptor.queryable_name is not None
    return QueryableState(
        descriptor.queryable_name,
        task,
        operator,
        descriptor,
        declared[0] if declared else None,
        physical.parallelism,
        physical.max_parallelism,
        physical.by_key_group,
    )
