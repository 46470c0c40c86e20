"""Tells functions of a task that a checkpoint is complete, or was given up (E44).

Every batch is a checkpoint, and its number is the batch's. That it is complete is known when the next
batch begins; that it was given up, when it is run again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millpond.datastream.functions import CheckpointListener
from millpond.engine.operators.user_errors import user_error

if TYPE_CHECKING:
    from millpond.engine.chain import OperatorChain


class CheckpointListeners:
    def __init__(self, chain: OperatorChain) -> None:
        self._listeners = [
            (operator.name, function)
            for operator in chain.operators.values()
            for function in _functions(operator.plan.function)
            if isinstance(function, CheckpointListener)
        ]
        self._subtask = chain.subtask
        self._epoch = -1
        self._parts: set[int] = set()  # of the batch that have begun

    def batch_begins(self, epoch: int, part: int) -> None:
        """A key group (or split) is about to be worked on."""
        if not self._listeners:
            return
        if epoch > self._epoch:
            if epoch > 0:
                self._tell("notify_checkpoint_complete", epoch - 1)
            self._epoch, self._parts = epoch, set()
        elif part in self._parts:
            self._tell("notify_checkpoint_aborted", epoch)
            self._parts = set()
        self._parts.add(part)

    def _tell(self, method: str, checkpoint_id: int) -> None:
        for name, function in self._listeners:
            try:
                getattr(function, method)(checkpoint_id)
            except Exception as problem:
                raise user_error(problem, name, self._subtask, method, None) from None


def _functions(function: Any) -> list[Any]:
    """The function of an operator, and those within it."""
    inner = [getattr(function, name, None) for name in ("function", "combine")]
    return [function, *(own for own in inner if own is not None)]
