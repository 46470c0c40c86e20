"""What the driver knows about a job between two batches: by operator id while the job runs, by uid in a
savepoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from millpond.common.time import MIN_TIMESTAMP
from millpond.engine.exchange.batch import Unread, UnreadSplits
from millpond.engine.exchange.controls import Start
from millpond.engine.exchange.reports import Generators, Split
from millpond.engine.host import origins_of
from millpond.plan.physical import JobPlan
from millpond.savepoint.job_state import Channels, SavedJobState, SourceState, TaskClockState


@dataclass
class JobState:
    """The state of the driver between two batches. Its fields are those of BatchPlan and EpochRecord."""

    positions: dict[int, object] = field(default_factory=dict)
    ended: dict[int, list[bool]] = field(default_factory=dict)
    generators: dict[Split, Generators] = field(default_factory=dict)
    channels: dict[int, Channels] = field(default_factory=dict)
    starts: dict[int, Start] = field(default_factory=dict)
    time_ms: int = 0
    unread: UnreadSplits = field(default_factory=dict)

    @staticmethod
    def initial(plan: JobPlan) -> JobState:
        """Return the state before the first batch."""
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

    def by_uid(self, plan: JobPlan) -> SavedJobState:
        """Return the state in the form in which a savepoint has it."""
        uid = {operator.id: operator.uid for operator in plan.operators.values()}
        sources = {
            source: SourceState(position, self.ended.get(source, []), {})
            for source, position in self.positions.items()
        }
        for (source, split), left in self.unread.items():
            sources[source].unread[split] = (left.reads, left.skipped)
        for (source, split), generators in self.generators.items():
            if source in sources:
                by_uid = {uid[operator]: state for operator, state in generators.items()}
                sources[source].generators[split] = by_uid
        return SavedJobState(
            {uid[source]: state for source, state in sources.items()},
            {uid[origin]: channels for origin, channels in self.channels.items()},
            {
                uid[plan.tasks[task].root]: TaskClockState(list(start.inputs), start.clock)
                for task, start in self.starts.items()
            },
            self.time_ms,
        )

    @staticmethod
    def from_uids(plan: JobPlan, saved: SavedJobState) -> JobState:
        """Return what a savepoint has for the operators of this plan."""
        state = JobState.initial(plan)
        state.time_ms = saved.time_ms
        operators = {operator.uid: operator.id for operator in plan.operators.values()}
        for uid, source in saved.sources.items():
            if uid not in operators:
                continue
            number = operators[uid]
            state.positions[number] = source.position
            state.ended[number] = list(source.ended)
            for split, left in source.unread.items():
                state.unread[number, split] = Unread(*left)
            for split, generators in source.generators.items():
                state.generators[number, split] = {
                    operators[assigner]: generator
                    for assigner, generator in generators.items()
                    if assigner in operators
                }
        for uid, channels in saved.channels.items():
            origin = operators.get(uid)
            if origin is not None and origin in state.channels:
                state.channels[origin] = _fitted(channels, len(state.channels[origin]))
        for task, start in state.starts.items():
            clock = saved.clocks.get(plan.operators[plan.tasks[task].root].uid)
            if clock is not None and len(clock.inputs) == len(start.inputs):
                state.starts[task] = Start(list(clock.inputs), {}, clock.clock)
        return state


def watermarks_of(
    plan: JobPlan, starts: Mapping[int, Start], channels: Mapping[int, Channels]
) -> dict[int, int | None]:
    """Return the watermark of each task; None before there is one.

    The watermark of a task is its clock. That of a source task is how far the slowest active split of its
    watermark origin has come."""
    found = {task: start.clock for task, start in starts.items()}
    for task in plan.source_tasks:
        found[task.id] = max(_slowest(channels[origin]) for origin in task.origins)
    return {task: None if at == MIN_TIMESTAMP else at for task, at in found.items()}


def _slowest(channels: Channels) -> int:
    active = [watermark for watermark, is_active in channels if is_active]
    return min(active or [watermark for watermark, _ in channels])


def _fitted(channels: Channels, count: int) -> Channels:
    """Return channels for as many splits as the plan fixes; 0 means that the source decides."""
    if count in (0, len(channels)):
        return list(channels)
    slowest = min((watermark for watermark, _ in channels), default=MIN_TIMESTAMP)
    return [(slowest, True)] * count
