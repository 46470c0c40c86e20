"""Watermark alignment: which splits are too far ahead of the others to be read on (E22)."""

from __future__ import annotations

from collections.abc import Mapping

from millpond.common.time import MIN_TIMESTAMP
from millpond.common.watermark_strategy import WatermarkStrategy
from millpond.plan.physical import JobPlan

Channels = Mapping[int, list[tuple[int, bool]]]  # origin -> (watermark, active) of each split


class Alignment:
    """Compares the watermarks that the splits of an alignment group have reached after a batch."""

    def __init__(self, plan: JobPlan) -> None:
        # group -> (source, origin, drift in ms) of its members
        self._members: dict[str, list[tuple[int, int, int]]] = {}
        for task in plan.source_tasks:
            for origin in task.origins:
                strategy = plan.operators[origin].function
                if isinstance(strategy, WatermarkStrategy) and strategy.alignment is not None:
                    group, drift_ms = strategy.alignment
                    self._members.setdefault(group, []).append((task.root, origin, drift_ms))

    def paused(self, channels: Channels, ended: Mapping[int, list[bool]]) -> dict[int, set[int]]:
        """Return, by source, the splits that must wait. The slowest split of a group never waits. Splits that
        have ended or are idle neither wait nor hold others back."""
        result: dict[int, set[int]] = {}
        for members in self._members.values():
            running = [
                (watermark, source, split, drift_ms)
                for source, origin, drift_ms in members
                for split, (watermark, active) in enumerate(channels.get(origin, ()))
                if active and not any(ended.get(source, [])[split : split + 1])
            ]
            slowest = min((watermark for watermark, *_ in running), default=MIN_TIMESTAMP)
            for watermark, source, split, drift_ms in running:
                if watermark > slowest + drift_ms:
                    result.setdefault(source, set()).add(split)
        return result
