"""What look-ups in a slot are answered: every kind of state, expiry, and all that can be wrong (O6)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from millpond.common import Time, Types
from millpond.core.journal import Journal, Record, RecordKind
from millpond.core.key_groups import key_group_of
from millpond.core.storage import FileStorage
from millpond.datastream import KeyedProcessFunction, ProcessWindowFunction, RuntimeContext
from millpond.datastream.columns import ColumnStateDescriptor
from millpond.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from millpond.datastream.state_ttl import StateTtlConfig
from millpond.datastream.window import CountTumblingWindowAssigner
from millpond.errors import (
    MillpondError,
    ProgramError,
    QueryableStateError,
    RetryLaterError,
    UnknownStateError,
    UnsupportedFeatureError,
)
from millpond.queryable import files, locations, states_of
from millpond.queryable.desk import KnownStates, QueryableDesk
from millpond.queryable.files import Location
from millpond.queryable.protocol import MAX_KEYS, Status
from millpond.queryable.read_only_states import read_only_state
from millpond.testing import direct_environment
from tests.unit.queryable.queryable_slot import Do, HandSlot, descriptors


def filled(**settings: Any) -> HandSlot:
    slot = HandSlot(settings=settings)
    slot.run(
        0,
        [
            ("a", "value.update", 7),
            ("a", "list.add_all", [1, 2]),
            ("a", "map.put", "x", 1),
            ("a", "map.put", "y", 2),
            ("a", "reducing.add", 3),
            ("a", "reducing.add", 4),
            ("a", "aggregating.add", 1),
            ("a", "aggregating.add", 2),
        ],
    )
    slot.commit(0)
    return slot


def test_every_kind_of_state_has_its_answer() -> None:
    slot = filled()
    assert slot.get("value", "a", "b") == [[Status.FOUND, 7], [Status.NOT_FOUND, None]]
    assert slot.get("list", "a") == [[Status.FOUND, [1, 2]]]
    assert slot.get("map", "a") == [[Status.FOUND, {"x": 1, "y": 2}]]
    assert slot.get("map", "a", entry="y") == [[Status.FOUND, 2]]
    assert slot.get("map", "a", entry="z") == [[Status.NOT_FOUND, None]]
    assert slot.get("reducing", "a") == [[Status.FOUND, 7]]
    assert slot.get("aggregating", "a") == [[Status.FOUND, 1.5]]
    slot.close()


def test_answers_name_the_batch_they_are_of() -> None:
    slot = filled()
    assert slot.answers.get({"state": "my value", "keys": ["a"]})["epoch"] == 0
    slot.run(1, [("a", "value.update", 8)])
    assert slot.answers.get({"state": "my value", "keys": ["a"]}) == {
        "epoch": 0,
        "results": [[0, 7]],
    }
    slot.commit(1)
    assert slot.answers.get({"state": "my value", "keys": ["a"]}) == {
        "epoch": 1,
        "results": [[0, 8]],
    }
    slot.close()


def test_a_batch_that_begins_shows_that_the_one_before_was_committed() -> None:
    """The driver's word may come later, on a shared folder."""
    slot = filled()
    slot.run(1, [("a", "value.update", 8)])
    slot.commit(1)
    slot.run(2, [("a", "value.update", 9)])
    slot.committed = -1
    assert slot.answers.get({"state": "my value", "keys": ["a"]}) == {
        "epoch": 1,
        "results": [[0, 8]],
    }
    slot.close()


def test_wrong_look_ups_are_told_what_is_wrong() -> None:
    slot = filled()
    ((status, what),) = slot.get("value", 1)
    assert (
        status is Status.FAILED
        and "1 is not a string" in what
        and "operator 'KEYED PROCESS'" in what
    )
    ((status, what),) = slot.get("value", "a", entry="x")
    assert status is Status.FAILED and "value state, which has no entries" in what
    ((status, what),) = slot.get("nothing", "a")
    assert status is Status.UNKNOWN_STATE and "there are: my aggregating, my list" in what
    for content in (None, [], {"state": "my value"}, {"state": "my value", "keys": "a"}):
        with pytest.raises(ValueError):
            slot.answers.get(content)
    with pytest.raises(ValueError, match="at most"):
        slot.answers.get({"state": "my value", "keys": ["a"] * (MAX_KEYS + 1)})
    assert (
        slot.answers.get({"state": ["x"], "keys": ["a"]})["results"][0][0] == Status.UNKNOWN_STATE
    )
    slot.close()


def test_keys_of_other_partitions_are_elsewhere() -> None:
    slot = filled()
    slot.answers._partitions = 2
    name = "my value"
    slot.views.states[name] = replace(slot.views.states[name], parallelism=2)
    slot.answers._readers.clear()
    keys = ["a", "b", "c", "d", "e"]
    found = slot.get("value", *keys)
    assert {status for status, _ in found} >= {Status.ELSEWHERE}
    for key, (status, _) in zip(keys, found, strict=True):
        assert (status is Status.ELSEWHERE) == (key_group_of(key, 2) % 2 == 1)
    slot.close()


def test_slot_that_has_not_loaded_the_key_group_says_so_and_asks_for_a_batch() -> None:
    slot = filled()
    slot.start()
    slot.host._tasks.get(
        next(t for t in slot.plan.tasks.values() if t.level == 1), 0
    )  # opened, not run
    ((status, what),) = slot.get("value", "a")
    assert status is Status.RETRY and "not loaded" in what
    assert slot.wanted_batches == 1
    slot.run(1, [])
    assert slot.get("value", "a") == [[Status.FOUND, 7]]
    slot.close()


def test_slot_whose_partition_has_moved_does_not_answer_with_old_values() -> None:
    """Batches have been committed that did not run here."""
    slot = filled()
    slot.committed = 1
    ((status, what),) = slot.get("value", "a")
    assert status is Status.ELSEWHERE and "elsewhere" in what
    slot.close()


def ttl(by_event_time: bool) -> Any:
    config = StateTtlConfig.new_builder(Time.seconds(1))
    if by_event_time:
        config.set_ttl_time_characteristic(StateTtlConfig.TtlTimeCharacteristic.EventTime)

    def change(descriptor: StateDescriptor) -> None:
        descriptor.enable_time_to_live(config.build())

    return change


def test_expired_values_are_not_found_even_if_no_batch_comes() -> None:
    """E33: processing time goes on in an idle job."""
    slot = HandSlot(Do(ttl(by_event_time=False)))
    slot.now_ms = 1000
    slot.run(0, [("a", "aggregating.add", 4)])
    slot.commit(0)
    slot.now_ms = 1500
    slot.run(1, [("a", "value.update", 7), ("a", "list.add", 1), ("a", "map.put", "x", 1)])
    slot.commit(1)
    slot.run(2, [("a", "list.add", 2), ("a", "map.put", "y", 2)])
    slot.commit(2)
    slot.now_ms = 2499
    assert slot.get("value", "a") == [[Status.FOUND, 7]]
    assert slot.get("list", "a") == [[Status.FOUND, [1, 2]]]
    slot.now_ms = 2500
    for state in ("value", "list", "map", "reducing", "aggregating"):
        assert slot.get(state, "a") == [[Status.NOT_FOUND, None]]
    assert slot.get("map", "a", entry="x") == [[Status.NOT_FOUND, None]]
    slot.close()


def test_values_expire_by_the_event_time_of_the_batch_that_is_read() -> None:
    slot = HandSlot(Do(ttl(by_event_time=True)))
    slot.run(0, [("a", "value.update", 7)], clocks=(0, 0))
    slot.commit(0)
    assert slot.get("value", "a") == [[Status.FOUND, 7]]
    slot.run(1, [], clocks=(5000, 5000))
    assert slot.get("value", "a") == [[Status.NOT_FOUND, None]]
    slot.close()


class Odd(KeyedProcessFunction):
    """Keeps what JSON does not have."""

    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = ValueStateDescriptor("odd", None)
        descriptor.set_queryable("my odd")
        self.state = runtime_context.get_state(descriptor)

    def process_element(self, value: Any, ctx: Any) -> None:
        self.state.update(Path if value[1] == "class" else {"when": value[1]})


def test_values_that_are_not_json_are_an_error_that_names_state_and_type() -> None:
    slot = HandSlot(Odd())
    slot.run(0, [("a", "class"), ("b", "now")])
    slot.commit(0)
    (status, what), fine = slot.get("odd", "a", "b")
    assert status is Status.FAILED
    assert "'my odd' (state 'odd' of operator 'KEYED PROCESS'), key 'a': a builtins.type" in what
    assert fine == [Status.FOUND, {"when": "now"}]
    slot.close()


class Twice(KeyedProcessFunction):
    def __init__(self, state: str) -> None:
        self._state = state

    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = ValueStateDescriptor(self._state, None)
        descriptor.set_queryable("same")
        self.state = runtime_context.get_state(descriptor)

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value


def test_the_same_name_twice_is_refused_and_both_operators_are_named() -> None:
    environment = direct_environment({})
    first = environment.from_collection(["a"]).key_by(lambda v: v).process(Twice("one")).name("One")
    first.key_by(lambda v: v).process(Twice("two")).name("Two").print()
    with pytest.raises(ProgramError, match=r"'same'.*'One' \(state 'one'\).*'Two' \(state 'two'\)"):
        environment.execute("job")


def test_the_same_name_of_two_streams_is_refused_before_the_job_starts() -> None:
    environment = direct_environment({})
    keyed = environment.from_collection(["a"]).key_by(lambda v: v)
    keyed.as_queryable_state("same").name("One")
    keyed.as_queryable_state("same").name("Two")
    with pytest.raises(ProgramError, match=r"'same' is declared by operator 'One' and by .* 'Two'"):
        environment.execute("job")


def test_stream_is_kept_as_state() -> None:
    """Flink's as_queryable_state: the newest value, or all of them put together."""
    environment = direct_environment({"parallelism.default": 1})
    keyed = environment.from_collection([("a", 1), ("b", 2), ("a", 3)]).key_by(lambda r: r[0])
    total = ReducingStateDescriptor("t", lambda x, y: (x[0], x[1] + y[1]), None)
    newest, summed = keyed.as_queryable_state("newest"), keyed.as_queryable_state("total", total)
    assert newest.get_queryable_state_name() == "newest"
    assert summed.get_state_descriptor().get_queryable_state_name() == "total"
    assert total.get_queryable_state_name() is None, "it may be used elsewhere"
    environment.execute("job")  # a queryable state is an end of a stream


@pytest.mark.parametrize(
    "descriptor", [ListStateDescriptor("l", None), MapStateDescriptor("m", None, None)]
)
def test_streams_are_not_kept_in_states_that_only_grow(descriptor: StateDescriptor) -> None:
    keyed = direct_environment({}).from_collection([1]).key_by(lambda v: v)
    with pytest.raises(ProgramError, match="would grow without limit"):
        keyed.as_queryable_state("x", descriptor)


def test_state_without_a_key_cannot_be_queryable() -> None:
    environment = direct_environment({})
    stream = environment.from_collection([1])
    with pytest.raises(ProgramError, match="needs a keyed stream"):
        stream.as_queryable_state("x")
    rules = MapStateDescriptor("rules", None, None)
    rules.set_queryable("x")
    with pytest.raises(ProgramError, match="Broadcast state 'rules' cannot be queryable"):
        stream.broadcast(rules)
    with pytest.raises(UnsupportedFeatureError, match="Column state"):
        ColumnStateDescriptor("c", Types.LONG()).set_queryable("x")


class OfWindow(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        descriptor = ValueStateDescriptor("w", None)
        descriptor.set_queryable("x")
        context.window_state().get_state(descriptor)
        return []


def test_state_of_a_window_cannot_be_queryable() -> None:
    environment = direct_environment({})
    keyed = environment.from_collection([1]).key_by(lambda v: v)
    keyed.window(CountTumblingWindowAssigner(1)).process(OfWindow()).print()
    with pytest.raises(MillpondError, match="State of a window or trigger 'w' cannot be queryable"):
        environment.execute("job")


@pytest.mark.parametrize("name", ["", None, 1])
def test_queryable_names_are_text(name: Any) -> None:
    descriptor = ValueStateDescriptor("x", None)
    with pytest.raises(ProgramError, match="takes a non-empty string"):
        descriptor.set_queryable(name)
    descriptor.set_queryable("a")
    with pytest.raises(ProgramError, match="already"):
        descriptor.set_queryable("b")


def test_states_for_readers_have_flinks_methods_and_declared_types() -> None:
    own = descriptors()
    value: Any = read_only_state(own["value"], 7)
    assert value.value() == 7
    with pytest.raises(QueryableStateError, match="can only be read"):
        value.update(1)
    with pytest.raises(QueryableStateError, match="can only be read"):
        value.clear()
    assert list(read_only_state(own["list"], [1, 2])) == [1, 2]  # type: ignore[call-overload]
    days = MapStateDescriptor("days", Types.SQL_DATE(), Types.TUPLE([Types.INT()]))
    found: Any = read_only_state(days, {"2026-11-17": [1]})
    ((day, content),) = found.items()
    assert day.year == 2026 and content == (1,) and found.contains(day) and not found.is_empty()
    reduced: Any = read_only_state(own["reducing"], 3)
    result: Any = read_only_state(own["aggregating"], 1.5)
    assert (reduced.get(), result.get()) == (3, 1.5)


# --- the job folder ----------------------------------------------------------------------------------


def location(partition: int, generation: int = 2, **changes: Any) -> Location:
    state = {
        "operator": "Count",
        "uid": "count",
        "state": "c",
        "kind": "value",
        "task": 2,
        "key-type": "string",
        "entry-type": None,
        "max-parallelism": 128,
        "parallelism": 1,
    }
    values: dict[str, Any] = {
        "generation": generation,
        "partition": partition,
        "partitions": 2,
        "host": "127.0.0.1",
        "port": 1000 + partition,
        "token": "t",
        "machine": "elsewhere",
        "pid": 1,
        "states": {"counts": state},
    }
    return Location(**{**values, **changes})


def job_folder(path: Path, generation: int = 2, state: str = "running") -> Path:
    (path / "run").write_text(f"{generation} {state}")
    return path


def test_addresses_of_this_run_are_found_and_older_ones_are_not(tmp_path: Path) -> None:
    folder = job_folder(tmp_path)
    files.write_location(folder, location(0))
    files.write_location(folder, location(1, generation=1))
    found = locations.describe(folder, "counts")
    assert found["addresses"] == {"0": {"host": "127.0.0.1", "port": 1000, "token": "t"}}
    assert (found["missing"], found["generation"], found["partitions"]) == ([1], 2, 2)
    assert files.is_batch_wanted(folder), "with a batch the other slot will come"
    assert {path.stat().st_mode & 0o777 for path in (folder / "queryable").iterdir()} == {0o600}
    assert (folder / "queryable").stat().st_mode & 0o777 == 0o700


def test_dead_slot_is_noticed_on_the_same_machine(tmp_path: Path) -> None:
    import os

    folder = job_folder(tmp_path)
    machine = os.uname().nodename
    files.write_location(folder, location(0, machine=machine, pid=os.getpid()))
    files.write_location(folder, location(1, machine=machine, pid=(1 << 22) + 1))
    assert list(locations.describe(folder, "counts")["addresses"]) == ["0"]


def test_slot_that_somebody_could_not_reach_makes_the_job_run_a_batch(tmp_path: Path) -> None:
    folder = job_folder(tmp_path)
    files.write_location(folder, location(0))
    files.write_location(folder, location(1))
    locations.describe(folder, "counts")
    assert not files.is_batch_wanted(folder)
    locations.describe(folder, "counts", lost=[1])
    assert files.is_batch_wanted(folder)


def test_who_asks_too_early_or_for_what_is_not_there_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(RetryLaterError, match="has not started yet"):
        locations.describe(tmp_path, "counts")
    folder = job_folder(tmp_path)
    with pytest.raises(RetryLaterError, match="has not run a batch yet"):
        locations.describe(folder, "counts")
    own = Journal(FileStorage(folder), 2)
    own.append(Record(RecordKind.PLAN, 0, b"plan"))
    with pytest.raises(RetryLaterError, match="has not run a batch yet"):
        locations.describe(folder, "counts")
    own.append(Record(RecordKind.EPOCH, 0, b"epoch"))
    with pytest.raises(UnknownStateError, match="there are: none"):
        locations.describe(folder, "counts")
    files.write_location(folder, location(0, generation=1))
    files.write_states(folder, 1, location(0).states)
    with pytest.raises(RetryLaterError, match="have not loaded their state yet"):
        locations.describe(folder, "counts")
    files.write_states(folder, 2, location(0).states)
    with pytest.raises(RetryLaterError, match="have not loaded their state yet"):
        locations.describe(folder, "counts")  # the next run has just begun
    files.write_location(folder, location(0))
    with pytest.raises(UnknownStateError, match="no queryable state 'x'; there are: counts"):
        locations.describe(folder, "x")
    assert list(locations.states(folder)) == ["counts"]
    job_folder(tmp_path, state="ended")
    with pytest.raises(QueryableStateError, match="is not running"):
        locations.describe(folder, "counts")


def test_files_that_somebody_has_spoiled_are_left_alone(tmp_path: Path) -> None:
    folder = job_folder(tmp_path)
    files.write_location(folder, location(0))
    (folder / "queryable" / "1.json").write_text('{"format": 1, "generation": 2}')
    (folder / "queryable" / "2.json").write_text("{")
    assert list(locations.describe(folder, "counts")["addresses"]) == ["0"]


def test_committed_epoch_is_that_of_the_own_run(tmp_path: Path) -> None:
    committed = files.CommittedEpoch(tmp_path, 2)
    assert committed.read() == -1
    files.write_committed(tmp_path, 1, 9)
    assert committed.read() == -1
    files.write_committed(tmp_path, 2, 5)
    assert (committed.read(), committed.is_outdated) == (5, False)
    (tmp_path / "committed").unlink()
    assert committed.read() == 5, "what was known still holds"
    files.write_committed(tmp_path, 3, 6)
    assert (committed.read(), committed.is_outdated) == (5, True)


def desk(folder: Path, generation: int = 2) -> tuple[QueryableDesk, Any, list[float]]:
    known, clock = KnownStates(), [0.0]
    return QueryableDesk(known, folder, generation, lambda: clock[0]), known, clock


def test_driver_learns_the_states_from_its_slots(tmp_path: Path) -> None:
    own, plan, _ = desk(job_folder(tmp_path))
    own.committed(-1)
    own.learn()
    assert not (tmp_path / "committed").exists() and states_of(plan) == {}
    files.write_location(tmp_path, location(0))
    own.learn()
    assert states_of(plan, lambda uid: f"id of {uid}") == {
        "counts": {"vertex": "id of count", "operator": "Count", "state": "c", "kind": "value"}
    }
    own.committed(0)
    assert (tmp_path / "committed").read_text() == "2 0"
    assert files.read_states(tmp_path)[0] == 2


def test_driver_does_not_forget_states_of_slots_that_have_not_opened_them_again(
    tmp_path: Path,
) -> None:
    own, plan, _ = desk(job_folder(tmp_path))
    both = {**location(0).states, "pairs": {**location(0).states["counts"], "state": "p"}}
    files.write_location(tmp_path, location(0, states=both))
    own.learn()
    files.write_location(tmp_path, location(0, states={"pairs": both["pairs"]}))
    own.learn()
    assert set(files.read_states(tmp_path)[1]) == set(states_of(plan)) == {"counts", "pairs"}


def test_driver_refuses_a_name_that_two_operators_have(tmp_path: Path) -> None:
    own, _, _ = desk(job_folder(tmp_path))
    files.write_location(tmp_path, location(0))
    other = {**location(1).states["counts"], "uid": "other", "operator": "Other"}
    files.write_location(tmp_path, location(1, states={"counts": other}))
    with pytest.raises(ProgramError, match=r"'counts'.*'Count'.*'Other'"):
        own.learn()


def test_idle_job_runs_a_batch_when_somebody_waits_for_it_but_not_all_the_time(
    tmp_path: Path,
) -> None:
    own, _, clock = desk(job_folder(tmp_path))
    assert not own.wants_batch()
    files.write_location(tmp_path, location(0))
    own.learn()
    assert not own.wants_batch()
    files.want_batch(tmp_path)
    assert own.wants_batch()
    own.batch_planned()
    assert not own.wants_batch()
    files.want_batch(tmp_path)
    assert not own.wants_batch(), "there was one just now"
    clock[0] += 1.0
    assert own.wants_batch()


def test_new_run_of_a_job_begins_with_a_batch_and_without_old_addresses(tmp_path: Path) -> None:
    files.write_location(job_folder(tmp_path), location(0, generation=1))
    files.write_states(tmp_path, 1, location(0).states)
    own, plan, _ = desk(tmp_path)
    assert own.wants_batch() and own.has_states
    assert list(states_of(plan)) == ["counts"]
    assert not list((tmp_path / "queryable").iterdir())
    own.batch_planned()
    assert not own.wants_batch()


@pytest.mark.parametrize(
    ("text", "ports"), [("0", [0]), ("9067", [9067]), ("9067-9069, 80", [9067, 9068, 9069, 80])]
)
def test_ports_may_be_a_range(text: str, ports: list[int]) -> None:
    assert files.parse_ports(text) == ports


@pytest.mark.parametrize("text", ["", "x", "2-1", "70000", "1-", "-1"])
def test_ports_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ProgramError, match=r"queryable-state\.server\.ports must be"):
        files.parse_ports(text)
