"""Chooses the task that drives a chain."""

from __future__ import annotations

from collections.abc import Callable

from millpond.engine.chain import OperatorChain
from millpond.engine.columns.task import ColumnTask
from millpond.engine.operators.base import Drive
from millpond.engine.task import Task
from millpond.engine.windows.task import WindowTask

AnyTask = Task | ColumnTask | WindowTask
_TASKS: dict[Drive, Callable[[OperatorChain], AnyTask]] = {
    Drive.RECORDS: Task,
    Drive.BATCHED_WINDOWS: WindowTask,
    Drive.COLUMNS: ColumnTask,
}


def make_task(chain: OperatorChain) -> AnyTask:
    """Return a task that drives a chain in the way its root wants (`Operator.drive`)."""
    return _TASKS[chain.root.drive](chain)
