"""Chooses the operator that runs a window: the general one, or one for windows that many programs use."""

from __future__ import annotations

from millpond.engine.context import TaskClock
from millpond.engine.windows.aligned import AlignedWindowOperator
from millpond.engine.windows.general import WindowOperator
from millpond.engine.windows.panes import PaneWindowOperator
from millpond.engine.windows.sessions import SessionWindowOperator
from millpond.plan.physical import OperatorPlan
from millpond.plan.window_strategy import WindowStrategy, window_strategy

_OPERATORS = {
    WindowStrategy.GENERAL: WindowOperator,
    WindowStrategy.PANES: PaneWindowOperator,
    WindowStrategy.ALIGNED: AlignedWindowOperator,
    WindowStrategy.SESSION: SessionWindowOperator,
}


def window_operator(plan: OperatorPlan, clock: TaskClock, subtask: int) -> WindowOperator:
    """Return the operator for the strategy that the plan has chosen for the window."""
    return _OPERATORS[window_strategy(plan.function)](plan, clock, subtask)
