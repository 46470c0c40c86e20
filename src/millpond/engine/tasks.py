"""Which task drives a chain."""

from __future__ import annotations

from millpond.engine.chain import OperatorChain
from millpond.engine.columns.task import ColumnTask
from millpond.engine.operators.operators import KeyedColumnsOperator
from millpond.engine.task import Task
from millpond.engine.windows.batched import BatchedWindowOperator
from millpond.engine.windows.task import WindowTask

AnyTask = Task | ColumnTask | WindowTask


def make_task(chain: OperatorChain) -> AnyTask:
    if isinstance(chain.root, KeyedColumnsOperator):
        return ColumnTask(chain)
    return WindowTask(chain) if isinstance(chain.root, BatchedWindowOperator) else Task(chain)
