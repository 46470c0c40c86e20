"""What the driver knows about a job between two batches: by operator id while it runs, by uid at rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from millpond.common.time import MIN_TIMESTAMP
from millpond.engine.exchange.controls import Start
from millpond.engine.exchange.reports import Generators, Split
from millpond.engine.host import origins_of
from millpond.plan.physical import JobPlan

Channels = list[tuple[int, bool]]


@dataclass
class JobState:
    """Fields mean what they mean in BatchPlan and EpochRecord."""

    positions: dict[int, Any] = field(default_factory=dict)
    ended: dict[int, list[bool]] = field(default_factory=dict)
    generators: dict[Split, Generators] = field(default_factory=dict)
    channels: dict[int, Channels] = field(default_factory=dict)
    starts: dict[int, Start] = field(default_factory=dict)
    time_ms: int = 0

    @staticmethod
    def initial(plan: JobPlan) -> JobState:
        """As before the first batch."""
        return JobState(
            channels={
                origin: [(MIN_TIMESTAMP, True)] * (splits or 0)
                for origin, splits in origins_of(plan).items()
            },
            starts={
                task.id: Start([MIN_TIMESTAMP] * len(task.inputs), {}, MIN_TIMESTAMP)
                for task in plan.tasks.values()
                if task.level > 0
            },
        )

    def by_uid(self, plan: JobPlan) -> dict[str, Any]:
        """For a savepoint."""
        uid = {operator.id: operator.uid for operator in plan.operators.values()}
        return {
            "sources": {
                uid[source]: {
                    "position": position,
                    "ended": self.ended.get(source, []),
                    "saved": {
                        split: {uid[own]: state for own, state in states.items()}
                        for (of, split), states in self.generators.items()
                        if of == source
                    },
                }
                for source, position in self.positions.items()
            },
            "channels": {uid[origin]: channels for origin, channels in self.channels.items()},
            "clocks": {
                uid[plan.tasks[task].root]: (list(start.inputs), start.clock)
                for task, start in self.starts.items()
            },
            "time_ms": self.time_ms,
        }

    @staticmethod
    def from_uids(plan: JobPlan, content: dict[str, Any]) -> JobState:
        """Of what a savepoint has for the operators of this plan."""
        state = JobState.initial(plan)
        state.time_ms = content["time_ms"]
        by_uid = {operator.uid: operator.id for operator in plan.operators.values()}
        for uid, source in content["sources"].items():
            if uid not in by_uid:
                continue
            own = by_uid[uid]
            state.positions[own] = source["position"]
            state.ended[own] = list(source["ended"])
            for split, states in source["saved"].items():
                state.generators[own, split] = {
                    by_uid[of]: saved for of, saved in states.items() if of in by_uid
                }
        for uid, channels in content["channels"].items():
            origin = by_uid.get(uid)
            if origin is not None and origin in state.channels:
                state.channels[origin] = _fitted(channels, len(state.channels[origin]))
        for task in state.starts:
            uid = plan.operators[plan.tasks[task].root].uid
            if uid in content["clocks"]:
                inputs, clock = content["clocks"][uid]
                if len(inputs) == len(state.starts[task].inputs):
                    state.starts[task] = Start(list(inputs), {}, clock)
        return state


def watermarks_of(
    plan: JobPlan, starts: Mapping[int, Start], channels: Mapping[int, Channels]
) -> dict[int, int | None]:
    """Of each task: its clock; of a head: how far the slowest active split of its assigner has come."""
    found = {task: start.clock for task, start in starts.items()}
    for head in plan.source_tasks:
        found[head.id] = max(_slowest(channels[origin]) for origin in head.origins)
    return {task: None if at == MIN_TIMESTAMP else at for task, at in found.items()}


def _slowest(channels: Channels) -> int:
    active = [watermark for watermark, is_active in channels if is_active]
    return min(active or [watermark for watermark, _ in channels])


def _fitted(channels: Channels, count: int) -> Channels:
    """Channels of as many splits as the plan fixes; 0: the source decides."""
    if count in (0, len(channels)):
        return list(channels)
    slowest = min((watermark for watermark, _ in channels), default=MIN_TIMESTAMP)
    return [(slowest, True)] * count
