"""States that get another type or time to live, in a shard that has a log per key group (E33, E47)."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import pytest

from millpond.common import Time, Types
from millpond.core.key_groups import key_group_of
from millpond.datastream import KeyedProcessFunction, RuntimeContext
from millpond.datastream.state import (
    MapStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from millpond.engine.context import TaskClock
from millpond.errors import UserFunctionError
from millpond.state import change_log as changelog
from millpond.state.change_log import MemoryLogStore
from millpond.state.grouping import Grouping
from millpond.state.shard_state import ShardState
from millpond.state.ttl.expiry import Expiry
from millpond.testing import direct_environment

GROUPING = Grouping(range(128), 128)
# The log of the second one is read last.
FIRST, LAST = "k15", "k7"
STRING = ValueStateDescriptor("v", Types.STRING())
BYTES = ValueStateDescriptor("v", Types.PRIMITIVE_ARRAY(Types.BYTE()))


class Logs:
    """The logs of one shard, over several runs of a job."""

    def __init__(self) -> None:
        self._stores: dict[int, MemoryLogStore] = defaultdict(MemoryLogStore)
        self.state = ShardState(0, None, GROUPING)

    def append(self) -> None:
        changelog.append(self._stores.__getitem__, self.state)
        self.state.commit()

    def load(self) -> None:
        self.state = ShardState(0, None, GROUPING)
        changelog.load(self._stores.__getitem__, self.state)


@pytest.fixture
def logs() -> Logs:
    """Return logs in which the key that is read last has been removed."""
    assert key_group_of(FIRST, 128) < key_group_of(LAST, 128)
    logs = Logs()
    table = logs.state.state(STRING)
    table.set(FIRST, "A")
    table.set(LAST, "B")
    logs.append()
    table.remove(LAST)
    logs.append()
    return logs


def expiry() -> Expiry:
    clock = TaskClock()
    clock.processing_time_ms = 1000
    return Expiry(StateTtlConfig.new_builder(Time.hours(1)).build(), clock)


def test_state_gets_a_time_to_live_once(logs: Logs) -> None:
    for _ in range(3):
        logs.load()
        assert logs.state.state(STRING, expiry=expiry()).data == {FIRST: (1000, "A")}
        logs.append()


def test_state_loses_its_time_to_live_once(logs: Logs) -> None:
    logs.load()
    logs.state.state(STRING, expiry=expiry())
    logs.append()
    for _ in range(3):
        logs.load()
        assert logs.state.state(STRING).data == {FIRST: "A"}
        logs.state.clean_all()
        logs.append()


def test_state_gets_another_type_once(logs: Logs) -> None:
    for _ in range(3):
        logs.load()
        assert logs.state.state(BYTES).data == {FIRST: b"A"}
        logs.append()


def test_state_that_a_program_no_longer_lets_expire_stays() -> None:
    """Also if the process, and so the state in memory, is the same."""
    state = ShardState(0)
    state.state(STRING, expiry=expiry()).set("key", (1000, (3, "a value that looks timed")))
    state.commit()
    state.forget_program()
    table = state.state(STRING)
    state.clean_all()
    assert table.data == {"key": (3, "a value that looks timed")}


def two_forms() -> ShardState:
    """Return a shard that has got a state with and without a time to live, from two key groups."""
    plain, timed = ShardState(0), ShardState(1)
    plain.state(STRING).set(FIRST, "A")
    timed.state(STRING, expiry=expiry()).set(LAST, (1000, "B"))
    state = ShardState(0, None, GROUPING)
    state.apply(plain.snapshot(), key_group_of(FIRST, 128))
    state.apply(timed.snapshot(), key_group_of(LAST, 128))
    state.is_restored = True
    return state


@pytest.mark.parametrize("is_loaded", [True, False])
def test_two_forms_become_one_when_a_function_asks_for_the_state(is_loaded: bool) -> None:
    """A savepoint may have them: key groups that no function has asked for have a state as it was."""
    logs = Logs()
    logs.state = two_forms()
    if is_loaded:
        logs.append()
        logs.load()
    assert logs.state.state(STRING).data == {FIRST: "A", LAST: "B"}
    logs.append()
    logs.load()
    assert logs.state.state(STRING).data == {FIRST: "A", LAST: "B"}


def test_two_forms_are_both_saved_if_no_function_asks_for_the_state() -> None:
    contents = list(two_forms().snapshot_parts())
    kinds = [content["states"]["v"][0] for content in contents if content["states"]]
    assert kinds == ["value", "value+ttl"]


def test_type_is_logged_even_if_nothing_is_left_of_the_first_batch() -> None:
    logs, descriptor = Logs(), MapStateDescriptor("m", Types.STRING(), Types.STRING())
    table = logs.state.state(descriptor)
    table.put("key", "entry", "value")
    table.remove("key", "entry")
    logs.append()
    table.put("key", "entry", "value")
    logs.append()
    logs.load()
    assert "m" in logs.state.types


@dataclass(frozen=True)
class Person:
    name: str
    seen_at_ms: int = field(compare=False)


def test_equal_keys_belong_to_the_same_key_group() -> None:
    ann, also_ann = Person("ann", 1), Person("ann", 2)
    assert ann == also_ann
    assert key_group_of(ann, 128) == key_group_of(also_ann, 128)


@pytest.mark.parametrize("name", ["_panes", "_window.x", "_broadcast.x", "_watermark"])
def test_names_of_millponds_own_states_are_refused(name: str) -> None:
    class Own(KeyedProcessFunction):
        def open(self, runtime_context: RuntimeContext) -> None:
            runtime_context.get_state(ValueStateDescriptor(name, Types.INT()))

        def process_element(self, value: Any, ctx: Any) -> Any:
            return []

    stream = direct_environment({}).from_collection([1]).key_by(lambda v: v).process(Own())
    with pytest.raises(UserFunctionError, match="are Millpond's own"):
        list(stream.execute_and_collect())
