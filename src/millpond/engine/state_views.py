"""Which versions of queryable states can be read, while other threads work on them (O6).

One thread works: it loads key groups, runs batches on them, keeps them until the next batch. Others may read
at any moment, and get exactly what batch C left, C being the newest batch that Spark has committed. Why
that is so:

1. A key group at work or at rest has at most two versions: what was there before the newest batch that ran
   here (`base_epoch`), which tables remember until they are committed, and what that batch left
   (`now_epoch`), once it is through. Every batch runs on every key group. So if this slot is still the
   one that works on the key group, C is one of the two, and a reader says which.
2. While a batch changes tables, only the base is read. Tables remember what was there before they change it,
   and are read in the opposite order (`state/hash/tables.py`), or keep changes apart until the commit
   (`state/ordered/tables.py`).
3. When tables are loaded, committed or rolled back, the base itself changes. Then `sequence` is odd. It is
   even otherwise, and has grown if such a thing happened meanwhile: a reader takes it before and after,
   and reads again if it is odd or not the same. Nobody waits for anybody.
4. What is taken out is immutable, or a copy that was made in one step of the interpreter.

If neither version is C, there is no answer here: the key group lies elsewhere now (C is newer than both), or
so many changes were waiting that they were committed before Spark had (the base is newer than C).

A backend that cannot be read from another thread (`reads_from_any_thread`) is never read while a batch runs
on a key group: both sides hold `lock` then.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import Enum
from typing import Any

from millpond.common.basic_types import PickledBytesTypeInfo, TypeInformation
from millpond.core.labels import NUMBERS_PER_TASK
from millpond.datastream.state import StateDescriptor
from millpond.datastream.state_backend import StateBackend
from millpond.errors import MillpondError, ProgramError
from millpond.plan.physical import JobPlan, OperatorPlan
from millpond.state.key_group_state import KeyGroupState

Place = tuple[int, int]  # task, key group
NEEDS_SLOTS = (
    "The program has queryable state. Slots answer for it, but millpond.slots is off: set it to on."
)


class Unreadable(Enum):
    """Why there is no answer."""

    MOVING = "the state is being loaded or committed"
    AHEAD = "a batch is under way, and what was there before it is no longer there"
    OUTDATED = "the key group lies elsewhere by now"
    NOT_LOADED = "the key group is not loaded yet"


@dataclass(frozen=True)
class QueryableState:
    """A state that a function has declared queryable. `descriptor` is the function's own."""

    name: str
    task: int
    operator: OperatorPlan
    descriptor: StateDescriptor
    key_type: TypeInformation | None
    max_parallelism: int
    first_number: int  # of the task's key groups among all labels of its level, see labels.py


class GroupView:
    """The versions of one key group. Written by the thread that works, read by others."""

    __slots__ = ("base_clock", "base_epoch", "now_clock", "now_epoch", "sequence", "state")

    def __init__(self, state: KeyGroupState) -> None:
        self.sequence = 1
        self.state = state
        self.base_epoch = -1
        self.base_clock = 0  # event time then
        self.now_epoch: int | None = None  # None: a batch is at work, or has failed
        self.now_clock = 0


class StateViews:
    """All that can be looked up in one slot. `on_declared` is called when a state is declared."""

    def __init__(
        self,
        on_declared: Callable[[], None] | None = None,
        lock: Any = None,
    ) -> None:
        self.states: dict[str, QueryableState] = {}
        self.groups: dict[Place, GroupView] = {}
        self.newest_epoch = -1  # of the batches that have begun here: those before it are committed
        self.is_exclusive = False
        self.lock = lock  # of readers and whoever works; None: there is one thread only
        self._on_declared = on_declared
        self._tasks: frozenset[int] = frozenset()  # with queryable states
        self._problem: MillpondError | None = None

    # --- what there is ---------------------------------------------------------------------------

    def fit_to(self, backend: StateBackend) -> None:
        self.is_exclusive = not backend.reads_from_any_thread

    def declare(
        self, plan: JobPlan, task: int, operator: OperatorPlan, descriptor: StateDescriptor
    ) -> None:
        """A function asks for a queryable state: when it is opened, in each of its subtasks."""
        name = descriptor.queryable_name
        assert name is not None
        known = self.states.get(name)
        if known is not None:
            if (known.operator.id, known.descriptor.name) != (operator.id, descriptor.name):
                self._problem = ProgramError(
                    f"The queryable state '{name}' is declared by operator '{known.operator.name}' (state "
                    f"'{known.descriptor.name}') and by operator '{operator.name}' (state "
                    f"'{descriptor.name}'). Such a name must be unique within a job."
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
        """After functions were opened: raise what is wrong with what they have declared. Not before, because
        it would be taken for a failure of theirs."""
        if self._problem is not None:
            raise self._problem

    # --- called by whoever works -----------------------------------------------------------------

    def exclusively(self) -> AbstractContextManager[Any]:
        """Around the work on a key group."""
        return self.lock if self.is_exclusive and self.lock is not None else nullcontext()

    def begin(self, task: int, key_group: int, epoch: int) -> None:
        """A batch begins with a key group: its state will be loaded, committed or rolled back."""
        self.check()
        if task in self._tasks:
            self.newest_epoch = max(self.newest_epoch, epoch)
            view = self.groups.get((task, key_group))
            if view is not None:
                view.sequence |= 1

    def loaded(
        self, task: int, key_group: int, state: KeyGroupState, epoch: int, clock: int
    ) -> None:
        """The state is as it was before batch `epoch`, when event time was `clock`, and in the form that is
        declared. Only that batch will change it from now on."""
        if task not in self._tasks:
            return
        view = self.groups.get((task, key_group)) or GroupView(state)
        view.state = state
        view.base_epoch, view.base_clock = epoch - 1, clock
        view.now_epoch = None
        view.sequence = (view.sequence | 1) + 1
        self.groups[task, key_group] = view

    def finished(self, task: int, key_group: int, epoch: int, clock: int) -> None:
        """The batch is through; what it did waits for its commit."""
        view = self.groups.get((task, key_group))
        if view is not None:
            view.now_clock = clock
            view.now_epoch = epoch

    def commit_early(self, task: int, key_group: int, state: KeyGroupState) -> None:
        """Commit a state before it is known whether its batch counts."""
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
        return task in self._tasks

    # --- called by whoever reads -----------------------------------------------------------------

    def read(
        self, place: Place, committed_epoch: int, take: Callable[[KeyGroupState, bool, int], Any]
    ) -> Any:
        """What `take(state, committed, event time)` takes out of the version that batch `committed_epoch`
        left, or why there is no such thing here (Unreadable)."""
        view = self.groups.get(place)
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
            return Unreadable.MOVING  # it changed under our hands
        return found if view.sequence == sequence else Unreadable.MOVING


def has_queryable_sinks(plan: JobPlan) -> bool:
    """True if a stream ends with as_queryable_state: the only queryable states that a plan knows of."""
    return any(hasattr(operator.function, "queryable_name") for operator in plan.operators.values())


def describe(
    plan: JobPlan, task: int, operator: OperatorPlan, descriptor: StateDescriptor
) -> QueryableState:
    own = plan.tasks[task]
    key_types = [plan.exchanges[task_input.exchange].key_type for task_input in own.inputs]
    declared = [t for t in key_types if t is not None and not isinstance(t, PickledBytesTypeInfo)]
    assert descriptor.queryable_name is not None
    return QueryableState(
        descriptor.queryable_name,
        task,
        operator,
        descriptor,
        declared[0] if declared else None,
        own.max_parallelism,
        own.ordinal * NUMBERS_PER_TASK,
    )
