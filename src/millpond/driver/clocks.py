"""The event-time clocks of all tasks between two batches: where they stand, and what moves them."""

from __future__ import annotations

from millpond.common.time import MIN_TIMESTAMP
from millpond.driver.job_state import JobState, watermarks_of
from millpond.driver.sources import Sources
from millpond.engine.exchange.controls import SplitEnd, Start
from millpond.engine.exchange.reports import Generators, Split
from millpond.engine.time.task_valve import advance
from millpond.plan.physical import JobPlan
from millpond.savepoint.job_state import Channels


class Clocks:
    """The clocks of one attempt. `channels`, `starts` and `generators` are as in EpochRecord."""

    def __init__(self, plan: JobPlan) -> None:
        self._plan = plan
        self.channels: dict[int, Channels] = {}
        self.starts: dict[int, Start] = {}
        self.generators: dict[Split, Generators] = {}

    def set_to(
        self,
        channels: dict[int, Channels],
        starts: dict[int, Start],
        generators: dict[Split, Generators],
    ) -> None:
        """Set all clocks to what a batch has left behind. The arguments are kept, not copied."""
        self.channels, self.starts, self.generators = channels, starts, generators

    def set_to_initial(self, initial: JobState) -> None:
        """Set all clocks to where they stand before the first batch."""
        self.set_to(
            {origin: list(channels) for origin, channels in initial.channels.items()},
            dict(initial.starts),
            {split: dict(generators) for split, generators in initial.generators.items()},
        )

    def add_new_splits(self, sources: Sources) -> None:
        """Add channels for splits that are new. They hold every clock back until they have been read."""
        for task in self._plan.source_tasks:
            count = sources.split_count(task.root)
            for origin in task.origins:
                channels = self.channels.setdefault(origin, [])
                channels.extend([(MIN_TIMESTAMP, True)] * (count - len(channels)))
        for task in self._plan.tasks.values():
            if task.level > 0:
                origins = {origin for i in task.inputs for origin in i.origins}
                known = {origin: list(self.channels[origin]) for origin in sorted(origins)}
                self.starts[task.id] = self.starts[task.id]._replace(origins=known)

    def drop_old_splits(self, sources: Sources) -> None:
        """Remove the channels of splits that are gone after a restore, for nothing would ever advance them.
        The split that reads what they have left begins where the slower one was."""
        for task in self._plan.source_tasks:
            count = sources.split_count(task.root)
            for origin in task.origins:
                channels = self.channels.get(origin, [])
                for split, (watermark, _) in enumerate(channels[count:], start=count):
                    reader = split % count
                    channels[reader] = (min(channels[reader][0], watermark), True)
                del channels[count:]

    def advance(self, ends: list[SplitEnd], metrics: dict[str, object]) -> None:
        """Move the clocks as far as the splits of a batch have come, and put the watermarks into
        `metrics`."""
        for task, start in self.starts.items():
            plan = self._plan.tasks[task]
            self.starts[task] = advance(plan, start, ends)
            name = self._plan.operators[plan.root].name
            metrics[f"{name}.currentInputWatermark"] = self.starts[task].clock
        for end in ends:
            channels = self.channels[end.origin]
            channels[end.split] = (max(channels[end.split][0], end.watermark), end.active)

    def watermarks(self) -> dict[int, int | None]:
        """Return the watermark of every task, source tasks included; None before there is one."""
        return watermarks_of(self._plan, self.starts, self.channels)

    def newest_time_ms(self) -> int | None:
        """Return the event time of the newest record that was read; None if records have no event time."""
        newest = [
            generator[3]
            for generators in self.generators.values()
            for generator in generators.values()
            if generator is not None and len(generator) > 3
        ]
        return None if max(newest, default=MIN_TIMESTAMP) == MIN_TIMESTAMP else max(newest)

    def set_unions(self, task: int, unions: dict[int, bytes] | str) -> None:
        """Keep the union lists of a task's subtasks, by subtask, or the path of the file that holds them."""
        self.starts[task] = self.starts[task]._replace(unions=unions)
