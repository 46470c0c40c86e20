"""Tells the functions of a task that a checkpoint is complete or was aborted (E44).

Every batch is a checkpoint, and its number is that of the batch. It is known to be complete when the next
batch begins, and known to be aborted when it is run again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millpond.datastream.functions import CheckpointListener
from millpond.engine.operators.user_errors import user_error

if TYPE_CHECKING:
    from millpond.engine.chain import OperatorChain


class CheckpointListeners:
    """The functions of a chain that want to know about checkpoints."""

    def __init__(self, chain: OperatorChain) -> None:
        self._listeners = [
            (operator.name, function)
            for operator in chain.operators.values()
            for function in _functions(operator.plan.function)
            if isinstance(function, CheckpointListener)
        ]
        self._subtask = chain.subtask
        self._epoch = -1
        self._parts: set[int] = set()  # the parts of the current batch that have begun

    def batch_begins(self, epoch: int, part: int) -> None:
        """Note that a batch is about to run on a shard or split, and tell the functions what
        follows from that. An epoch that begins means that the one before it is complete; a part that begins
        again means that the epoch was aborted."""
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


def _functions(function: object) -> list[object]:
    """Return the function of an operator, and those inside it."""
    inner = [getattr(function, name, None) for name in ("function", "combine")]
    return [function, *(wrapped for wrapped in inner if wrapped is not None)]
