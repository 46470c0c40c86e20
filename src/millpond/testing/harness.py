"""A harness that drives one operator by hand, without Spark: records, watermarks, processing time, snapshots.

It runs the same operator, state and timer code as a job; only time and input are yours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy

from millpond.common.time import MIN_TIMESTAMP
from millpond.core import codec
from millpond.core.bundle import PHASE_RECORD, Bundle
from millpond.core.key_groups import key_group_of, key_group_range, subtask_of
from millpond.core.labels import ALL_OF_PARTITION
from millpond.datastream.data_stream import DataStream
from millpond.datastream.functions import KeyedProcessFunction, KeySelector
from millpond.datastream.output_tag import OutputTag
from millpond.datastream.stream_graph import ExchangeKind
from millpond.driver.planning import plan_job
from millpond.engine.chain import OperatorChain
from millpond.engine.exchange.frames import Producer
from millpond.engine.exchange.router import Router
from millpond.engine.tasks import make_task
from millpond.plan.physical import JobPlan
from millpond.state import change_log as changelog
from millpond.state.backends import OpenBackend
from millpond.state.change_log import MemoryLogStore
from millpond.state.grouping import Grouping
from millpond.state.shard_state import ShardState
from millpond.testing.direct import direct_environment


class Watermark(NamedTuple):
    """A watermark in the output of a harness."""

    timestamp: int


Snapshot = dict[int, MemoryLogStore]
Build = Callable[..., DataStream]


class Harness:
    """Drives an operator without a key. `build` gets one stream per input and adds the operator to test.

    `output` holds (value, timestamp) pairs and Watermarks in the order in which they were emitted, and
    `side_outputs` the values of each side output by its id.
    """

    keyed = False

    def __init__(
        self,
        build: Build,
        inputs: int = 1,
        parallelism: int = 1,
        subtask: int = 0,
        max_parallelism: int = 128,
        processing_time_ms: int = 0,
        batch_mode: bool = False,
        restore: Snapshot | None = None,
    ) -> None:
        self._parallelism = parallelism
        self._subtask = subtask
        self._max_parallelism = max_parallelism
        plan, operator = _plan(build, inputs, parallelism, max_parallelism, batch_mode)
        task_plan = next(t for t in plan.tasks.values() if operator in t.operators)
        self._task_plan = task_plan
        router = Router(plan, task_plan, 1 << 30)
        self._backend = OpenBackend(plan.settings.state_backend)
        self._chain = OperatorChain(plan, task_plan, subtask, router, backend=self._backend.backend)
        root = self._chain.operators[operator]
        root.emit = self._capture
        for tag in list(root.side_outputs):
            root.side_outputs[tag] = self._capture_side(tag)
        exchanges = [plan.exchanges[i.exchange] for i in task_plan.inputs]
        self._selectors = {e.input_index: e.key_selector for e in exchanges}
        self._broadcast_inputs = {
            e.input_index for e in exchanges if e.kind is ExchangeKind.BROADCAST
        }
        self._operator = root
        self._chain.open()
        self._task = make_task(self._chain)
        self._captured: list[tuple[tuple[int, int], Any, int | None]] = []
        self._sequence = 0
        self.output: list[tuple[Any, int | None] | Watermark] = []
        self.side_outputs: dict[str, list[Any]] = {}
        self.watermark = MIN_TIMESTAMP
        self.processing_time_ms = processing_time_ms
        self._states: dict[int, ShardState] = {}
        self._logs: dict[int, MemoryLogStore] = {}
        if restore is not None:
            self._restore(restore)
            self.set_processing_time(processing_time_ms)

    # --- driving ---------------------------------------------------------------------------------

    def process_element(self, value: object, timestamp: int | None = None, input: int = 0) -> None:  # noqa: A002
        """Give the operator a record and take its output. `input` is the number of the stream, from 0.

        In a KeyedHarness, raises ValueError if the key belongs to another subtask.
        """
        self._sequence += 1
        is_broadcast = input in self._broadcast_inputs
        key = None if is_broadcast else self._key(value, input)
        for shard in self._own_shards() if is_broadcast else [self._shard(key)]:
            self._bind(shard)
            bundle = Bundle(
                [value],
                None if timestamp is None else [timestamp],
                self.watermark,
                PHASE_RECORD,
                numpy.array([self._sequence], numpy.int64),
                [key],
                input,
            )
            self._task.run(bundle, self.watermark)
            if is_broadcast:
                self._task.finish()
        self._flush()

    def process_watermark(self, timestamp: int) -> None:
        """Advance event time: fire all timers up to `timestamp`, over all keys in the order of their
        times."""
        for shard in sorted(self._states):
            self._bind(shard)
            self._task.advance_watermark(timestamp)
            self._task.finish()
        self._flush()
        if timestamp > self.watermark:
            self.watermark = timestamp
            self.output.append(Watermark(timestamp))

    def set_processing_time(self, now_ms: int) -> None:
        """Set the processing time and fire the timers that are due."""
        self.processing_time_ms = now_ms
        for shard in sorted(self._states):
            self._bind(shard)
            self._task.advance_processing_time(now_ms)
            self._task.finish()
        self._flush()

    def close(self) -> None:
        """Close the functions and release the state."""
        self._chain.close()
        self._backend.close()

    # --- looking ---------------------------------------------------------------------------------

    def values(self) -> list[Any]:
        """Return what was emitted so far, without timestamps and watermarks."""
        return [entry[0] for entry in self.output if not isinstance(entry, Watermark)]

    def side_output(self, tag: OutputTag) -> list[Any]:
        """Return the values emitted to a side output so far."""
        return self.side_outputs.get(tag.tag_id, [])

    def event_time_timers(self) -> int:
        """Return the number of event-time timers that are registered, over all keys."""
        return sum(state.event_timer_count() for state in self._states.values())

    def processing_time_timers(self) -> int:
        """Return the number of processing-time timers that are registered, over all keys."""
        return sum(len(state.processing_timers) for state in self._states.values())

    def metric(self, name: str) -> int:
        """Return the counter or meter with this name, summed over operators."""
        counts = self._chain.metrics.counts.items()
        return sum(count.get_count() for full, count in counts if full.endswith(f".{name}"))

    def is_state_empty(self) -> bool:
        """Return True if no key has any state or timers left."""
        return all(state.is_empty() for state in self._states.values())

    # --- snapshots -------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Return the state of all key groups, as a job would write it, for `restore` of a new harness.

        The new one may have another parallelism: each subtask takes the key groups that belong to it.
        """
        self._chain.operator_state.end(self._sequence, self.processing_time_ms)
        for state in self._states.values():
            state.clean_all()  # as a job does before a savepoint
            changelog.append(self._log, state)
            state.commit()
        return codec.loads(codec.dumps(self._logs))  # type: ignore[no-any-return]

    def _log(self, number: int) -> MemoryLogStore:
        return self._logs.setdefault(number, MemoryLogStore())

    def _restore(self, snapshot: Snapshot) -> None:
        logs: Snapshot = codec.loads(codec.dumps(snapshot))
        without_key = [number for number in logs if number >= ALL_OF_PARTITION]
        if without_key:  # all subtasks have the same
            logs[ALL_OF_PARTITION + self._subtask] = logs[without_key[0]]
        own = {ALL_OF_PARTITION + self._subtask, *self._own_key_groups()}
        self._logs = {number: log for number, log in logs.items() if number in own}
        for shard in self._own_shards():
            state = self._new_state(shard)
            if not changelog.is_new(self._log, state):
                changelog.load(self._log, state)
                self._states[shard] = state

    # --- inside ----------------------------------------------------------------------------------

    def _new_state(self, shard: int) -> ShardState:
        return ShardState(shard, self._backend.backend.shard(0, shard))

    def _key(self, value: object, input_index: int) -> object:
        return None

    def _shard(self, key: object) -> int:
        return 0

    def _own_key_groups(self) -> Iterable[int]:
        return [0]

    def _own_shards(self) -> Iterable[int]:
        return [0]

    def _bind(self, shard: int) -> None:
        state = self._states.get(shard)
        if state is None:
            state = self._states[shard] = self._new_state(shard)
        self._chain.router.begin(Producer(-1, shard), self._subtask)
        self._task.bind(state, self.watermark, self.processing_time_ms)
        self._chain.operator_state.begin(self._sequence)

    def _capture(self, bundle: Bundle) -> None:
        frozen = bundle.with_values(codec.freeze_all(bundle.values))
        places = zip(  # noqa: B905 (one may be endless)
            frozen.each_watermark(), frozen.sequences.tolist()
        )
        values = zip(frozen.open_values(), frozen.each_timestamp())  # noqa: B905
        self._captured.extend(
            (place, value, timestamp)
            for place, (value, timestamp) in zip(places, values, strict=True)
        )

    def _capture_side(self, tag: str) -> Callable[[Bundle], None]:
        def capture(bundle: Bundle) -> None:
            self.side_outputs.setdefault(tag, []).extend(bundle.open_values())

        return capture

    def _flush(self) -> None:
        self._task.finish()
        # In a job the next task merges shards by place; so does the harness.
        self._captured.sort(key=lambda captured: captured[0])
        self.output.extend((value, timestamp) for _, value, timestamp in self._captured)
        self._captured.clear()


class KeyedHarness(Harness):
    """Drives an operator on a keyed stream, or on two connected ones."""

    keyed = True

    @staticmethod
    def of(
        function: KeyedProcessFunction,
        key_selector: Callable[[Any], Any] | KeySelector,
        **settings: Any,
    ) -> KeyedHarness:
        """Return a harness for a KeyedProcessFunction. `settings` are the other arguments of `Harness`."""
        return KeyedHarness(
            lambda stream: stream.key_by(key_selector).process(function), **settings
        )

    def _key(self, value: object, input_index: int) -> object:
        selector = self._selectors[input_index]
        return selector.get_key(value) if isinstance(selector, KeySelector) else selector(value)

    def _own_key_groups(self) -> range:
        return key_group_range(self._subtask, self._parallelism, self._max_parallelism)

    def _own_shards(self) -> Iterable[int]:
        return self._own_key_groups() if self._task_plan.by_key_group else [self._subtask]

    def _new_state(self, shard: int) -> ShardState:
        grouping = None
        if not self._task_plan.by_key_group:
            grouping = Grouping(self._own_key_groups(), self._max_parallelism)
        return ShardState(shard, self._backend.backend.shard(0, shard), grouping)

    def _shard(self, key: object) -> int:
        key_group = key_group_of(key, self._max_parallelism)
        owner = subtask_of(key_group, self._parallelism, self._max_parallelism)
        if owner != self._subtask:
            raise ValueError(
                f"The key {key!r} belongs to subtask {owner}, but this harness is subtask {self._subtask}."
            )
        return key_group if self._task_plan.by_key_group else self._subtask


def _plan(
    build: Build, inputs: int, parallelism: int, max_parallelism: int, batch_mode: bool
) -> tuple[JobPlan, int]:
    environment = direct_environment(
        {
            "parallelism.default": parallelism,
            "pipeline.max-parallelism": max_parallelism,
            "execution.runtime-mode": "BATCH" if batch_mode else "STREAMING",
        }
    )
    streams: Iterable[DataStream] = [environment.from_collection([]) for _ in range(inputs)]
    result = build(*streams)
    result.print()
    plan = plan_job(
        environment._pending_graph(), environment._configuration, environment.get_config(), None
    )
    return plan, result._edges[0].source


__all__ = ["Harness", "KeyedHarness", "Watermark"]
