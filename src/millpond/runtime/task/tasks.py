"""Which task drives a chain."""

from __future__ import annotations

from millpond.runtime.task.batched_window_operator import BatchedWindowOperator
from millpond.runtime.task.chain import OperatorChain
from millpond.runtime.task.column_task import ColumnTask
from millpond.runtime.task.operators import KeyedColumnsOperator
from millpond.runtime.task.task import Task
from millpond.runtime.task.window_task import WindowTask

AnyTask = Task | ColumnTask | WindowTask


def make_task(chain: OperatorChain) -> AnyTask:
    if isinstance(chain.root, KeyedColumnsOperator):
        return ColumnTask(chain)
    return WindowTask(chain) if isinstance(chain.root, BatchedWindowOperator) else Task(chain)
