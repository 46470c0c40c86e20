"""What the tasks and sinks of a batch tell the driver: all meta rows (frames.py) together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from millpond.core import codec
from millpond.core.codec import BlobKind
from millpond.engine.exchange.frames import Row, SplitEnd
from millpond.engine.work_meter import WorkCounts
from millpond.savepoint.parts import Part
from millpond.state.type_check import StoredTypes


@dataclass
class Messages:
    """`states`: (task, key group, bytes written, bytes of its log). `unions`: task -> subtask -> its lists.
    `prepared`: (sink, subtask, message)."""

    ends: list[SplitEnd] = field(default_factory=list)
    splits: dict[tuple[int, int], dict[int, Any]] = field(default_factory=dict)
    prepared: list[tuple[int, int, Any]] = field(default_factory=list)
    metrics: list[dict[str, tuple[str, Any]]] = field(default_factory=list)
    states: list[tuple[int, int, int, int]] = field(default_factory=list)
    unions: dict[int, dict[int, bytes]] = field(default_factory=dict)
    parts: list[Part] = field(default_factory=list)
    wakeups: list[int] = field(default_factory=list)
    works: list[WorkCounts] = field(default_factory=list)
    types: list[StoredTypes] = field(default_factory=list)

    @staticmethod
    def of(rows: Iterable[Row]) -> Messages:
        told = Messages()
        for _, _, blob in rows:
            if codec.kind_of(blob) == BlobKind.META:
                told._take(codec.decode(BlobKind.META, blob))
        return told

    def _take(self, meta: dict[str, Any]) -> None:
        self.ends.extend(SplitEnd(*end) for end in meta.get("ends", ()))
        self.prepared.extend(meta.get("prepared", ()))
        self.splits.update(meta.get("splits", {}))
        if "metrics" in meta:
            self.metrics.append(meta["metrics"])
        if "state" in meta:
            self.states.append(meta["state"])
        if "unions" in meta:
            task, subtask, lists = meta["unions"]
            self.unions.setdefault(task, {})[subtask] = lists
        if meta.get("part") is not None:
            self.parts.append(meta["part"])
        if meta.get("wakeup_ms") is not None:
            self.wakeups.append(meta["wakeup_ms"])
        if "types" in meta:
            self.types.append(meta["types"])
        if "work" in meta:
            self.works.append(WorkCounts(*meta["work"]))
