"""Which operator runs a window: the general one, or one made for the kinds that most people use."""

from __future__ import annotations

from millpond.plan.physical import OperatorPlan
from millpond.runtime.task.aligned_window_operator import AlignedWindowOperator, is_aligned
from millpond.runtime.task.context import TaskClock
from millpond.runtime.task.session_window_operator import (
    SessionWindowOperator,
    is_combined_session,
)
from millpond.runtime.task.window_operator import WindowOperator


def window_operator(plan: OperatorPlan, clock: TaskClock, subtask: int) -> WindowOperator:
    kind = WindowOperator
    if is_aligned(plan.function):
        kind = AlignedWindowOperator
    elif is_combined_session(plan.function):
        kind = SessionWindowOperator
    return kind(plan, clock, subtask)
