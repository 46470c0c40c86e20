"""C53-C56: behaviours of Flink in Java that PyFlink gets wrong. (C52 is with the timers.)"""

from __future__ import annotations

from typing import Any

from millpond.common import Duration, Types, WatermarkStrategy
from millpond.datastream import KeyedProcessFunction, RuntimeContext
from millpond.datastream.state import MapStateDescriptor
from millpond.testing import KeyedHarness


class _Map(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.entries = runtime_context.get_map_state(
            MapStateDescriptor("entries", Types.STRING(), Types.INT())
        )

    def process_element(self, value: Any, ctx: Any) -> Any:
        command, argument = value
        if command == "put":
            self.entries.put_all(argument)
        elif command == "remove":
            self.entries.remove(argument)
        yield self.entries.is_empty(), dict(self.entries.items()), ctx.timestamp()


def test_c53_map_is_empty_after_its_last_entry_is_removed() -> None:
    harness = KeyedHarness.of(_Map(), lambda value: 0)
    harness.process_element(("put", {"a": 1}))
    harness.process_element(("remove", "a"))
    assert [value[0] for value in harness.values()] == [False, True]
    assert harness.is_state_empty()


def test_c54_put_all_takes_a_dict() -> None:
    harness = KeyedHarness.of(_Map(), lambda value: 0)
    harness.process_element(("put", {"a": 1, "b": 2}))
    assert harness.values()[0][1] == {"a": 1, "b": 2}


def test_c55_idleness_and_timestamp_assigner_in_either_order() -> None:
    def assigner(value: Any, timestamp: int) -> int:
        return value

    base = WatermarkStrategy.for_monotonous_timestamps()
    idle = Duration.of_seconds(3)
    for strategy in (
        base.with_idleness(idle).with_timestamp_assigner(assigner),
        base.with_timestamp_assigner(assigner).with_idleness(idle),
    ):
        assert strategy.idle_timeout_ms == 3000
        assert strategy.timestamp_assigner is not None
        assert strategy.timestamp_assigner.extract_timestamp(7, 0) == 7
    assert base.idle_timeout_ms is None


def test_c56_without_timestamps_there_is_none() -> None:
    harness = KeyedHarness.of(_Map(), lambda value: 0)
    harness.process_element(("put", {}))
    harness.process_element(("put", {}), timestamp=5)
    assert [value[2] for value in harness.values()] == [None, 5]
