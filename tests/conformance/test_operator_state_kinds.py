"""E31: all functions without keys can keep lists, also those of two streams, and the short way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millpond.common import Time, Types
from millpond.datastream import (
    BroadcastProcessFunction,
    CheckpointedFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    DataStream,
    ListCheckpointed,
    ProcessFunction,
)
from millpond.datastream.state import ListStateDescriptor, MapStateDescriptor, StateTtlConfig
from millpond.errors import UserFunctionError
from millpond.testing import Harness
from tests.conformance.test_operator_state import elements
from tests.unit.savepoint.test_savepoint import go_on, run_and_save, run_to_the_end

RULES = MapStateDescriptor("rules", Types.STRING(), Types.INT())


class Letters(CheckpointedFunction):
    """Remembers all letters it has seen."""

    def initialize_state(self, context: Any) -> None:
        store = context.get_operator_state_store()
        self._list = store.get_list_state(ListStateDescriptor("letters", Types.STRING()))
        self._letters = list(self._list.get())

    def snapshot_state(self, context: Any) -> None:
        self._list.update(self._letters)

    def with_another(self, value: Any) -> str:
        self._letters.append(value[0])
        return "".join(self._letters)


class CoMapped(CoMapFunction, Letters):
    def map1(self, value: Any) -> Any:
        return self.with_another(value)

    map2 = map1


class CoFlatMapped(CoFlatMapFunction, Letters):
    def flat_map1(self, value: Any) -> Any:
        yield self.with_another(value)

    flat_map2 = flat_map1


class CoProcessed(CoProcessFunction, Letters):
    def process_element1(self, value: Any, ctx: Any) -> Any:
        yield self.with_another(value)

    process_element2 = process_element1


class Broadcast(BroadcastProcessFunction, Letters):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield self.with_another(value) + str(ctx.get_broadcast_state(RULES).get("limit"))

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        ctx.get_broadcast_state(RULES).put("limit", value[2])


class Listed(ProcessFunction, ListCheckpointed):
    """The same with one list, the short way."""

    def __init__(self) -> None:
        self._letters: list[str] = []

    def restore_state(self, state: list[str]) -> None:
        self._letters = state

    def snapshot_state(self, checkpoint_id: int, timestamp: int) -> list[str]:
        return self._letters

    def process_element(self, value: Any, ctx: Any) -> Any:
        self._letters.append(value[0])
        yield "".join(self._letters)


def other(stream: DataStream) -> DataStream:
    return stream.get_execution_environment().from_collection([("", 0, 7)]).uid("other")


PROGRAMS: dict[str, Any] = {
    "co map": lambda stream: stream.connect(other(stream)).map(CoMapped()),
    "co flat map": lambda stream: stream.connect(other(stream)).flat_map(CoFlatMapped()),
    "co process": lambda stream: stream.connect(other(stream)).process(CoProcessed()),
    "broadcast": lambda s: s.connect(other(s).broadcast(RULES)).process(Broadcast()),
    "list checkpointed": lambda stream: stream.process(Listed()),
}


@pytest.mark.parametrize("kind", PROGRAMS)
def test_function_goes_on_with_its_list(kind: str, tmp_path: Path) -> None:
    def build(stream: DataStream) -> DataStream:
        return PROGRAMS[kind](stream).uid("letters")  # type: ignore[no-any-return]

    letters = elements("ab|c|d")
    whole = run_to_the_end(build, letters)
    before, path = run_and_save(build, letters, tmp_path)
    after = go_on(build, letters, path)
    assert before and after
    assert before + after == whole
    assert whole[-1].startswith("abcd")


def test_state_comes_before_open() -> None:
    class Order(ProcessFunction, CheckpointedFunction):
        def __init__(self) -> None:
            self.calls: list[str] = []

        def initialize_state(self, context: Any) -> None:
            self.calls.append("initialize_state")

        def open(self, runtime_context: Any) -> None:
            self.calls.append("open")

        def snapshot_state(self, context: Any) -> None: ...

        def process_element(self, value: Any, ctx: Any) -> Any:
            yield list(self.calls)

    job = Harness(lambda stream: stream.process(Order()))
    job.process_element(1)
    assert job.values() == [["initialize_state", "open"]]


def test_list_with_a_time_to_live_is_refused() -> None:
    """E33 is for keyed state."""

    class Timed(Listed, CheckpointedFunction):
        def initialize_state(self, context: Any) -> None:
            descriptor = ListStateDescriptor("timed", Types.STRING())
            descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.days(1)).build())
            context.get_operator_state_store().get_list_state(descriptor)

        def snapshot_state(self, *_: Any) -> Any: ...

    job = Harness(lambda stream: stream.process(Timed()))
    with pytest.raises(UserFunctionError, match=r"'timed' .*has a time to live"):
        job.process_element(("a",))
