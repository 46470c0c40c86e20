"""The states of shards that a host keeps in memory from one batch to the next.

A state is what a pass has left. Whether it is the truth depends on what the next pass builds upon, which its
position in the log tells (`Basis`).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from millpond.engine.state_views import StateViews
from millpond.state.partition_log import LogPosition
from millpond.state.shard_state import ShardState

_MAX_WAITING = 50_000
_MAX_WAITING_QUERYABLE = 500_000
Place = tuple[int, int]
"""level, partition"""
ShardId = tuple[int, int]
"""task, shard"""


class Basis(Enum):
    """What a pass builds upon, compared with the newest pass at the same place in this process."""

    THAT_PASS = "that pass"
    """It counts, and nothing has come after it."""
    WHAT_IT_BUILT_UPON = "what that pass built upon"
    """It does not count: what it has changed must be undone."""
    SOMETHING_ELSE = "something else"
    """Others have worked on the partition since, or nobody has done so here."""


class _NewestPass(NamedTuple):
    """The newest pass at a place. `after` is None if it has not ended, or has failed."""

    number: int
    before: LogPosition
    after: LogPosition | None


@dataclass
class _Kept:
    state: ShardState
    pass_number: int  # of the newest pass that has worked on it
    can_undo: bool = True


class KeptStates:
    """All states that are kept, by place."""

    def __init__(self, views: StateViews) -> None:
        self._views = views
        self._states: dict[Place, dict[ShardId, _Kept]] = {}
        self._newest: dict[Place, _NewestPass] = {}
        self._numbers = itertools.count()
        self._waiting = 0  # number of uncommitted changes in memory, in all shards

    def begin_pass(self, place: Place, position: LogPosition) -> PassStates:
        """Begin a pass that builds upon what the log is at a position."""
        newest, number = self._newest.get(place), next(self._numbers)
        basis = Basis.SOMETHING_ELSE
        if newest is not None and position == newest.after:
            basis = Basis.THAT_PASS
        elif newest is not None and position == newest.before:
            basis = Basis.WHAT_IT_BUILT_UPON
            number = newest.number  # if this one fails, too, what both have changed must be undone
        if basis is Basis.SOMETHING_ELSE:
            for kept in self._states.pop(place, {}).values():
                self._waiting -= kept.state.waiting_count()
        self._newest[place] = _NewestPass(number, position, None)
        return PassStates(self, place, number, basis)

    def end_pass(self, place: Place, position: LogPosition) -> None:
        """Note how far the log reaches after a pass."""
        self._newest[place] = self._newest[place]._replace(after=position)

    def get(self, place: Place, shard: ShardId) -> ShardState | None:
        """Return a state that is kept; None if it is not."""
        kept = self._states.get(place, {}).get(shard)
        return None if kept is None else kept.state

    def take(self, place: Place, shard: ShardId) -> _Kept | None:
        """Take a state out, so that it is not found again if the batch fails half-way."""
        kept = self._states.get(place, {}).pop(shard, None)
        if kept is not None:
            self._waiting -= kept.state.waiting_count()
        return kept

    def keep(self, place: Place, shard: ShardId, state: ShardState, pass_number: int) -> None:
        """Keep a state until the next batch, which tells whether this one counts.

        If too many changes would wait in memory for that, the batch is assumed to count: after a failure, the
        state then has to be loaded from the log."""
        state.rest()
        self._states.setdefault(place, {})[shard] = _Kept(state, pass_number)
        self._waiting += state.waiting_count()
        if self._waiting > _MAX_WAITING:
            self._commit_early(queryable=False)
        if self._waiting > _MAX_WAITING_QUERYABLE:
            self._commit_early(queryable=True)  # look-ups then have to wait for the batch

    def _commit_early(self, queryable: bool) -> None:
        for states in self._states.values():
            for shard, kept in states.items():
                count = kept.state.waiting_count()
                if count and self._views.is_read(shard[0]) == queryable:
                    self._views.commit_early(*shard, kept.state)
                    kept.can_undo = False
                    self._waiting -= count

    def take_over(self, older: KeptStates) -> None:
        """Take over what another host of the same job has kept, but for states whose keys may be of classes
        that the new plan brings along: these are other classes now, so old keys would equal no new ones."""
        self._newest = dict(older._newest)
        self._numbers = older._numbers
        for place, states in older._states.items():
            for shard, kept in states.items():
                if kept.state.has_plain_keys():
                    kept.state.forget_program()
                    self._states.setdefault(place, {})[shard] = kept
                    self._waiting += kept.state.waiting_count()

    def clear(self) -> None:
        """Forget all states."""
        self._states.clear()
        self._newest.clear()
        self._waiting = 0


class PassStates:
    """The states that one pass finds and leaves."""

    def __init__(self, kept: KeptStates, place: Place, number: int, basis: Basis) -> None:
        self._kept = kept
        self._place = place
        self._number = number
        self.basis = basis

    def get(self, shard: ShardId) -> ShardState | None:
        """Return a state that is kept, as it is; None if there is none."""
        return self._kept.get(self._place, shard)

    def take(self, shard: ShardId) -> tuple[ShardState | None, bool]:
        """Return the state of a shard as it was before this pass, None if that is not in memory; and whether
        nothing had to be undone for it."""
        kept = self._kept.take(self._place, shard)
        if kept is None:
            return None, False
        if self.basis is Basis.WHAT_IT_BUILT_UPON and kept.pass_number == self._number:
            return (kept.state if kept.can_undo and kept.state.rollback() else None), False
        kept.state.commit()
        return kept.state, True

    def keep(self, shard: ShardId, state: ShardState) -> None:
        """Keep the state that this pass leaves."""
        self._kept.keep(self._place, shard, state, self._number)

    def end(self, position: LogPosition) -> None:
        """End the pass. `position` is how far the log reaches now."""
        self._kept.end_pass(self._place, position)
