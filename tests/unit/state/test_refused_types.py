"""Refused changes of types are refused before anything is read (E47), and keys never change theirs (C40)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millpond.common import Types
from millpond.datastream import DataStream, KeyedBroadcastProcessFunction
from millpond.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from millpond.datastream.stream_graph import SinkKind
from millpond.driver.planning import plan_job
from millpond.errors import IncompatibleCheckpointError, SavepointError
from millpond.plan.physical import JobPlan
from millpond.savepoint import Savepoint
from millpond.testing import CUT
from tests.unit.driver.test_recovery import Crash, StandInForSpark
from tests.unit.savepoint.test_savepoint import go_on, job, run_and_save
from tests.unit.state.test_evolution import Keep

RECORDS = [("ann", 1, 0), CUT, ("bob", 2, 1), CUT, ("ann", 3, 2)]
seen: list[Any] = []  # what the program has read


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    seen.clear()


def read(record: Any) -> Any:
    seen.append(record)
    return record


def keeping(descriptor: StateDescriptor, first: Any = None, parallelism: int = 2) -> Any:
    """Two tasks, one after the other: the second one has the state in question."""

    def build(stream: DataStream) -> DataStream:
        first_task = stream.map(read).rebalance().map(read).set_parallelism(parallelism)
        return first_task.key_by(lambda r: r[0]).process(Keep(descriptor, first)).uid("keep")

    return build


LIMITS = MapStateDescriptor("limits", Types.STRING(), Types.INT())


class Limited(KeyedBroadcastProcessFunction):
    def __init__(self, descriptor: MapStateDescriptor) -> None:
        self._descriptor = descriptor

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield ctx.get_broadcast_state(self._descriptor).get("limit")

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        ctx.get_broadcast_state(self._descriptor).put("limit", value)


def limited(descriptor: MapStateDescriptor, limit: Any) -> Any:
    def build(stream: DataStream) -> DataStream:
        environment = stream.get_execution_environment()
        limits = environment.from_collection([limit]).uid("limits").broadcast(descriptor)
        keyed = stream.map(read).key_by(lambda r: r[0])
        return keyed.connect(limits).process(Limited(descriptor)).uid("keep")

    return build


INT, STRING = Types.INT(), Types.STRING()
CHANGES: dict[str, tuple[Any, Any, str]] = {
    "another type": (
        keeping(ValueStateDescriptor("state", INT), 7),
        keeping(ValueStateDescriptor("state", STRING)),
        r"'KEYED PROCESS' \(uid 'keep'\).*'state' was written as int and is declared as string",
    ),
    "another kind": (
        keeping(ValueStateDescriptor("state", INT), 7),
        keeping(ListStateDescriptor("state", INT)),
        r"'keep'.*'state' is stored as value state but declared as list state",
    ),
    "other entries": (
        keeping(MapStateDescriptor("state", INT, INT), {1: 1}),
        keeping(MapStateDescriptor("state", STRING, INT)),
        r"'keep'.*'state' was written as int -> int and is declared as string -> int",
    ),
    "broadcast": (
        limited(LIMITS, 7),
        limited(MapStateDescriptor("limits", STRING, STRING), "7"),
        r"'keep'.*'limits' was written as string -> int and is declared as string -> string",
    ),
}


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("change", CHANGES)
def test_savepoint_is_refused_before_anything_is_read(
    change: str, parallelism: int, tmp_path: Path
) -> None:
    before, after, message = CHANGES[change]
    _, path = run_and_save(before, RECORDS, tmp_path, batches=0)
    seen.clear()
    with pytest.raises(IncompatibleCheckpointError, match=message):
        go_on(after, RECORDS, path, **{"parallelism.default": parallelism})
    assert seen == []


def plan_of(build: Any, **settings: Any) -> JobPlan:
    environment, results = job(build, RECORDS, settings)
    results._sink("results", SinkKind.PRINT, None)
    configuration, config = environment._configuration, environment.get_config()
    return plan_job(environment._pending_graph(), configuration, config, None)


@pytest.mark.parametrize("change", CHANGES)
def test_job_folder_is_refused_before_anything_is_read(change: str, tmp_path: Path) -> None:
    before, after, message = CHANGES[change]
    spark = StandInForSpark()
    with pytest.raises(Crash):
        spark.run(plan_of(before), tmp_path, (1, "committed"))
    seen.clear()
    with pytest.raises(IncompatibleCheckpointError, match=message):
        spark.run(plan_of(after), tmp_path, None)
    assert seen == []


def test_job_folder_goes_on_with_a_type_that_fits(tmp_path: Path) -> None:
    spark = StandInForSpark()
    with pytest.raises(Crash):
        spark.run(
            plan_of(keeping(ValueStateDescriptor("state", INT), 7)), tmp_path, (1, "committed")
        )
    spark.run(plan_of(keeping(ValueStateDescriptor("state", Types.LONG()))), tmp_path, None)


# --- keys --------------------------------------------------------------------------------------------


def by_key(selector: Any, key_type: Any) -> Any:
    def build(stream: DataStream) -> DataStream:
        keep = Keep(ValueStateDescriptor("state", INT), 7)
        return stream.map(read).key_by(selector, key_type).process(keep).uid("keep")

    return build


def name(record: Any) -> Any:
    return record[0]


def number(record: Any) -> Any:
    return record[1]


def both(record: Any) -> Any:
    return record[0], record[1]


KEY_CHANGES = {
    "declared": (by_key(name, STRING), by_key(number, INT), "keys are int, .* string"),
    "declared now": (by_key(name, None), by_key(number, INT), "keys are int, .* string"),
    "field of a tuple": (
        by_key(both, Types.TUPLE([STRING, INT])),
        by_key(both, Types.TUPLE([STRING, STRING])),
        r"keys are Tuple \(f0 string, f1 string\), .* Tuple \(f0 string, f1 int\)",
    ),
}


@pytest.mark.parametrize("change", KEY_CHANGES)
def test_keys_of_a_savepoint_cannot_change_their_type(change: str, tmp_path: Path) -> None:
    before, after, message = KEY_CHANGES[change]
    _, path = run_and_save(before, RECORDS, tmp_path, batches=0)
    seen.clear()
    with pytest.raises(SavepointError, match=rf"'KEYED PROCESS' \(uid 'keep'\).*{message}"):
        go_on(after, RECORDS, path)
    assert seen == []


def test_keys_of_a_job_folder_cannot_change_their_type(tmp_path: Path) -> None:
    spark = StandInForSpark()
    with pytest.raises(Crash):
        spark.run(plan_of(by_key(name, STRING)), tmp_path, (0, "committed"))
    seen.clear()
    with pytest.raises(IncompatibleCheckpointError, match=r"uid 'keep'.*keys are int, .* string"):
        spark.run(plan_of(by_key(number, INT)), tmp_path, None)
    assert seen == []


@pytest.mark.parametrize("before", [None, INT])
@pytest.mark.parametrize("after", [None, INT])
def test_keys_that_are_the_same_are_found(before: Any, after: Any, tmp_path: Path) -> None:
    _, path = run_and_save(by_key(number, before), RECORDS, tmp_path, batches=0)
    assert go_on(by_key(number, after), RECORDS, path) == [7, 7]


def test_declared_keys_are_columns_that_others_can_read(tmp_path: Path) -> None:
    """E48: a tuple is no pickle if its type is declared."""
    build = by_key(both, Types.TUPLE([STRING, INT]))
    _, path = run_and_save(build, RECORDS, tmp_path, batches=0)
    keys = Savepoint.load(path).arrow("keep", "state").column("key").to_pylist()
    assert keys == [{"f0": "ann", "f1": 1}]
    assert go_on(build, RECORDS, path) == [7, 7]
