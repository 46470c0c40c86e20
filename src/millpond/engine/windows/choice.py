"""Which operator runs a window: the general one, or one made for the kinds that most people use."""

from __future__ import annotations

from millpond.engine.context import TaskClock
from millpond.engine.windows.aligned import AlignedWindowOperator
from millpond.engine.windows.general import WindowOperator
from millpond.engine.windows.panes import PaneWindowOperator
from millpond.engine.windows.sessions import SessionWindowOperator
from millpond.plan.physical import OperatorPlan

_OPERATORS = {
    "general": WindowOperator,
    "panes": PaneWindowOperator,
    "aligned": AlignedWindowOperator,
    "session": SessionWindowOperator,
}


def window_operator(plan: OperatorPlan, clock: TaskClock, subtask: int) -> WindowOperator:
    return _OPERATORS[plan.function.operator_kind()](plan, clock, subtask)
