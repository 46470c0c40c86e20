"""How a window is run: by the operator for all windows, or by one made for what most programs use."""

from __future__ import annotations

from enum import Enum

from millpond.datastream.window import (
    DynamicEventTimeSessionWindows,
    EventTimeSessionWindows,
    EventTimeTrigger,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from millpond.datastream.windowed_stream import WindowOperation


class WindowStrategy(Enum):
    """The value is part of the layout of stored state: it must not change."""

    GENERAL = "general"
    """Any window, element by element."""
    PANES = "panes"
    """Tumbling and sliding windows that reduce or aggregate: an element is added once, to its pane."""
    ALIGNED = "aligned"
    """Tumbling and sliding windows that keep their elements."""
    SESSION = "session"
    """Session windows that reduce or aggregate."""


def window_strategy(operation: WindowOperation) -> WindowStrategy:
    """Return the fastest strategy that gives the results of the general one."""
    plain = type(operation.trigger) is EventTimeTrigger and operation.evictor is None
    assigner = type(operation.assigner)
    if plain and assigner in (TumblingEventTimeWindows, SlidingEventTimeWindows):
        return WindowStrategy.ALIGNED if operation.combine is None else WindowStrategy.PANES
    sessions = assigner in (EventTimeSessionWindows, DynamicEventTimeSessionWindows)
    combined = operation.combine is not None and operation.content_type.check() is None
    if plain and sessions and combined and operation.allowed_lateness == 0:
        return WindowStrategy.SESSION
    return WindowStrategy.GENERAL


def window_layout(operation: WindowOperation) -> str:
    """Return what the content of windows and their timers depend on. State can only go on with the same."""
    return f"{window_strategy(operation).value}, {operation.assigner!r}"
