"""Delivers the output of batches: prints, collects, commits."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any, ParamSpec, TypeVar

from millpond.common.serialization import record_to_text
from millpond.core import codec, fault_points
from millpond.core.codec import BlobKind
from millpond.core.labels import split_label
from millpond.datastream.connectors.base import Epoch
from millpond.datastream.stream_graph import SinkKind
from millpond.engine.exchange.frames import Frame, Row, decode_frame, merge
from millpond.engine.exchange.reports import Prepared
from millpond.engine.operators.user_errors import user_error
from millpond.errors import MillpondError
from millpond.plan.physical import JobPlan, SinkPlan

_log = logging.getLogger(__name__)
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


class OutputDelivery:
    """Delivers the output of a job. It outlives attempts, so that an epoch that runs again in the same
    process is not shown again. `collect` receives the values of collecting sinks, batch by batch."""

    def __init__(self, plan: JobPlan, collect: Callable[[list[Any]], None] | None = None) -> None:
        self._plan = plan
        self._collect = collect
        self._shown_epoch = -1

    def begin_attempt(self, plan: JobPlan) -> None:
        """Use the plan of another attempt from now on."""
        self._plan = plan

    def show(self, epoch: int, rows: list[Row]) -> None:
        """Print and collect what a batch gave to such sinks, unless this epoch was shown already."""
        if epoch <= self._shown_epoch:
            return
        self._shown_epoch = epoch
        frames: dict[int, list[tuple[int, Frame]]] = {}
        for _, label, blob in rows:
            if codec.kind_of(blob) == BlobKind.FRAME:
                frame = decode_frame(blob)
                frames.setdefault(frame.target, []).append((split_label(label)[1], frame))
        for sink in self._plan.sinks.values():
            sink_frames = frames.get(sink.id, [])
            if sink.kind is SinkKind.PRINT:
                self._print(sink, sink_frames)
            elif sink.kind is SinkKind.COLLECT and self._collect is not None:
                self._collect([value for _, value in _values(sink_frames)])

    def commit(self, epoch: int, prepared: list[Prepared]) -> None:
        """Commit what two-phase sinks have prepared in a batch that counts."""
        for sink in self._plan.sinks.values():
            messages = [message.message for message in prepared if message.sink == sink.id]
            if sink.kind is SinkKind.TWO_PHASE and messages:
                sink_epoch = Epoch(epoch, self._plan.start.job_id, sink.uid)
                fault_points.reach("driver before output")
                _call(sink, sink.function.commit, f"committing epoch {epoch}", sink_epoch, messages)
                fault_points.reach("driver after output")

    def recover(self, epoch: int) -> None:
        """Tell two-phase sinks that whatever was prepared after `epoch` never counts. This is called before
        the first batch of an attempt."""
        for sink, newest in self._two_phase(epoch):
            _call(sink, sink.function.recover, "recovering", newest)

    def tick(self, epoch: int, now_ms: int) -> int | None:
        """Let two-phase sinks act on time. Return in how many milliseconds one of them has something to do;
        None if none has."""
        waits: list[int] = []
        for sink, sink_epoch in self._two_phase(epoch):
            wait_ms = _call(sink, sink.function.tick, "looking at the time", sink_epoch, now_ms)
            if wait_ms is not None:
                waits.append(wait_ms)
        return min(waits, default=None)

    def finish(self, epoch: int) -> None:
        """Tell two-phase sinks that the job ends with this epoch, or may go on elsewhere from it."""
        for sink, sink_epoch in self._two_phase(epoch):
            _call(sink, sink.function.finish, "finishing", sink_epoch)

    def _two_phase(self, epoch: int) -> Iterator[tuple[SinkPlan, Epoch]]:
        for sink in self._plan.sinks.values():
            if sink.kind is SinkKind.TWO_PHASE:
                yield sink, Epoch(epoch, self._plan.start.job_id, sink.uid)

    def close(self) -> None:
        """Close two-phase sinks at the end of an attempt. What they raise is logged only: it changes nothing
        now."""
        for sink in self._plan.sinks.values():
            if sink.kind is SinkKind.TWO_PHASE:
                try:
                    sink.function.close()
                except Exception as problem:
                    _log.warning("Sink '%s' failed while it was closed: %r", sink.name, problem)

    @staticmethod
    def _print(sink: SinkPlan, frames: list[tuple[int, Frame]]) -> None:
        """Print a line per record. The number before it is that of the sink's subtask, counted from 1."""
        lines = []
        for subtask, value in _values(frames):
            prefix = sink.identifier or ""
            if sink.parallelism > 1:
                prefix = f"{prefix}:{subtask + 1}" if prefix else f"{subtask + 1}"
            lines.append((f"{prefix}> " if prefix else "") + record_to_text(value))
        if lines:
            sys.stdout.write("\n".join(lines) + "\n")
            sys.stdout.flush()


def _call(
    sink: SinkPlan,
    method: Callable[_Arguments, _Result],
    action: str,
    *arguments: _Arguments.args,
    **named: _Arguments.kwargs,
) -> _Result:
    """Call a method of a user's sink. What it raises becomes a UserFunctionError that names the sink."""
    try:
        return method(*arguments, **named)
    except MillpondError:
        raise
    except Exception as problem:
        raise user_error(problem, sink.name, 0, action, None) from None


def _values(frames: list[tuple[int, Frame]]) -> Iterator[tuple[int, Any]]:
    """Return (subtask, value) of all records, in the order of their places."""
    subtasks = {id(frame): subtask for subtask, frame in frames}
    bundle = merge([frame for _, frame in frames], lambda frame: subtasks[id(frame)])
    if bundle is None:
        return iter(())
    of = repeat(bundle.inputs) if isinstance(bundle.inputs, int) else bundle.inputs
    return zip(of, bundle.open_values())  # noqa: B905 (one may be endless)
