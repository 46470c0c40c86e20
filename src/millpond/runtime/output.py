"""Delivers what a batch produced: prints, collects, commits."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from millpond.common.serialization import record_to_text
from millpond.datastream.connectors.base import TwoPhaseSink
from millpond.errors import MillpondError
from millpond.plan.graph import SinkKind
from millpond.plan.physical import JobPlan, SinkPlan
from millpond.runtime.task import codec
from millpond.runtime.task.codec import BlobKind
from millpond.runtime.task.frames import Frame, Row, decode_frame, merge
from millpond.runtime.task.labels import split_label
from millpond.runtime.task.operators import user_error


class OutputDelivery:
    """`collect` receives the values of collecting sinks, batch by batch."""

    def __init__(self, plan: JobPlan, collect: Callable[[list[Any]], None] | None = None) -> None:
        self._plan = plan
        self._collect = collect

    def deliver(self, epoch: int, rows: list[Row], prepared: list[tuple[int, int, Any]]) -> None:
        frames: dict[int, list[Frame]] = {}
        subtasks: dict[int, int] = {}
        for _, label, blob in rows:
            if codec.kind_of(blob) == BlobKind.FRAME:
                frame = decode_frame(blob)
                frames.setdefault(frame.target, []).append(frame)
                subtasks[id(frame)] = split_label(label)[1]
        for sink in self._plan.sinks.values():
            own = frames.get(sink.id, [])
            if sink.kind is SinkKind.PRINT:
                self._print(sink, own, subtasks)
            elif sink.kind is SinkKind.COLLECT and self._collect is not None:
                self._collect([record.value for record in merge(own)])
            elif sink.kind is SinkKind.TWO_PHASE:
                messages = [message for sink_id, _, message in prepared if sink_id == sink.id]
                self._commit(sink, epoch, messages)

    @staticmethod
    def _print(sink: SinkPlan, frames: list[Frame], subtasks: dict[int, int]) -> None:
        lines = []
        for record in merge(frames):
            prefix = sink.identifier or ""
            if sink.parallelism > 1:
                number = f"{subtasks[id(record.frame)] + 1}"
                prefix = f"{prefix}:{number}" if prefix else number
            lines.append((f"{prefix}> " if prefix else "") + record_to_text(record.value))
        if lines:
            sys.stdout.write("\n".join(lines) + "\n")
            sys.stdout.flush()

    @staticmethod
    def _commit(sink: SinkPlan, epoch: int, messages: list[Any]) -> None:
        assert isinstance(sink.function, TwoPhaseSink)
        try:
            sink.function.commit(epoch, messages)
        except MillpondError:
            raise
        except Exception as problem:
            action = f"committing epoch {epoch}"
            raise user_error(problem, sink.name, 0, action, None) from None
