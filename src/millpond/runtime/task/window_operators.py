"""Which operator runs a window: the general one, or one made for the kinds that most people use."""

from __future__ import annotations

from millpond.plan.physical import OperatorPlan
from millpond.runtime.task.aligned_window_operator import AlignedWindowOperator
from millpond.runtime.task.context import TaskClock
from millpond.runtime.task.pane_window_operator import PaneWindowOperator
from millpond.runtime.task.session_window_operator import SessionWindowOperator
from millpond.runtime.task.window_operator import WindowOperator

_OPERATORS = {
    "general": WindowOperator,
    "panes": PaneWindowOperator,
    "aligned": AlignedWindowOperator,
    "session": SessionWindowOperator,
}


def window_operator(plan: OperatorPlan, clock: TaskClock, subtask: int) -> WindowOperator:
    return _OPERATORS[plan.function.operator_kind()](plan, clock, subtask)
