"""Computes how a task's event-time clock advances from one batch to the next.

Where the clock stands at the end of a batch is a pure function of where it stood at the start, and of how far
each split has come at the end. The coordinator and every label compute it in the same way, so labels need not
keep it. Within a batch, a record meets the watermark of its place, limited by that end: splits are merged by
watermark, so when a record's turn comes, all splits that will come that far have done so.

The splits of one input are combined as Flink's sources do it: the minimum over the active ones, which never
goes back; a new split, or one that was idle, holds the clock until it has caught up. Inputs go through the
valve. If all splits of an input are idle and their watermarks go on by the wall clock, the largest one
counts.
"""

from __future__ import annotations

from collections.abc import Iterable

from millpond.common.time import MIN_TIMESTAMP
from millpond.engine.exchange.controls import SplitEnd, Start
from millpond.engine.time.valve import WatermarkValve
from millpond.plan.physical import TaskInput, TaskPlan

Status = tuple[int, bool]  # watermark, active


def advance(task: TaskPlan, start: Start, ends: Iterable[SplitEnd]) -> Start:
    """Return where the task's clock stands when splits have come as far as `ends` says."""
    origins = {origin: list(splits) for origin, splits in start.origins.items()}
    for end in ends:
        splits = origins.get(end.origin)
        if splits is not None:
            splits[end.split] = (max(splits[end.split][0], end.watermark), end.active)
    before = [
        (output, _is_active(task_input, start.origins))
        for task_input, output in zip(task.inputs, start.inputs, strict=True)
    ]
    going_on = [_going_on(task_input, start.origins, origins) for task_input in task.inputs]
    outputs = [
        max(_combine(task_input, output, origins), going)
        for task_input, output, going in zip(task.inputs, start.inputs, going_on, strict=True)
    ]
    valve = WatermarkValve.resumed(start.clock, before)
    active = [_is_active(task_input, origins) for task_input in task.inputs]
    for number, is_active in enumerate(active):
        if is_active or going_on[number] > MIN_TIMESTAMP:
            valve.status(number, True)
    for number, output in enumerate(outputs):
        valve.watermark(number, output)
    for number, is_active in enumerate(active):
        if not is_active:
            valve.status(number, False)
    return Start(outputs, origins, valve.output, start.unions)


def _splits(task_input: TaskInput, origins: dict[int, list[Status]]) -> list[Status]:
    return [status for origin in task_input.origins for status in origins.get(origin, ())]


def _is_active(task_input: TaskInput, origins: dict[int, list[Status]]) -> bool:
    splits = _splits(task_input, origins)
    return not splits or any(active for _, active in splits)


def _going_on(
    task_input: TaskInput, before: dict[int, list[Status]], after: dict[int, list[Status]]
) -> int:
    """Return how far an input has come by the wall clock; MIN_TIMESTAMP unless all its splits are idle."""
    if _is_active(task_input, before) or _is_active(task_input, after):
        return MIN_TIMESTAMP
    splits = zip(_splits(task_input, before), _splits(task_input, after), strict=True)
    return max((new for (old, _), (new, _) in splits if new > old), default=MIN_TIMESTAMP)


def _combine(task_input: TaskInput, output: int, origins: dict[int, list[Status]]) -> int:
    watermarks = [watermark for watermark, active in _splits(task_input, origins) if active]
    return max(output, min(watermarks)) if watermarks else output
