"""E48: broadcast state, lists, timers, times to live and sources are read, bootstrapped and mended, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow
import pytest

from millpond.common import Time, Types
from millpond.datastream import BroadcastProcessFunction, DataStream, KeyedProcessFunction
from millpond.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from millpond.errors import ProgramError, SavepointError, TypeMismatchError
from millpond.savepoint import Savepoint
from millpond.savepoint.reader import SavepointReader
from tests.conformance.test_operator_state import elements, pairs
from tests.unit.datastream.test_source_state import COUNT, Counting, plan_of, save
from tests.unit.datastream.test_source_state import go_on as go_on_with
from tests.unit.savepoint.test_savepoint import (
    CUT_RECORDS,
    go_on,
    remember,
    run_and_save,
)
from tests.unit.savepoint.test_state_processor import RULES, Rules


def with_rules(stream: DataStream) -> DataStream:
    nothing = stream.get_execution_environment().from_collection([], Types.INT()).uid("none")
    keyed = stream.key_by(lambda record: record[0])
    return keyed.connect(nothing.broadcast(RULES)).process(Rules()).uid("rules")


class Unkeyed(BroadcastProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield ctx.get_broadcast_state(RULES).get("limit")

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any: ...


def with_rules_without_keys(stream: DataStream) -> DataStream:
    nothing = stream.get_execution_environment().from_collection([], Types.INT()).uid("none")
    spread = stream.rebalance().connect(nothing.broadcast(RULES))
    return spread.process(Unkeyed()).uid("rules")


RECORDS = [(name, 0, 0) for name in "abcdef"]


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize(("build", "keyed"), [(with_rules, True), (with_rules_without_keys, False)])
def test_broadcast_state_is_bootstrapped_and_mended(
    build: Any, keyed: bool, parallelism: int, tmp_path: Path
) -> None:
    made = Savepoint.new().with_broadcast_state("rules", RULES, {"limit": 3}, keyed=keyed)
    path = made.write(tmp_path / "made")
    settings = {"parallelism.default": parallelism}
    assert go_on(build, RECORDS, path, **settings) == [3] * 6
    mended = Savepoint.load(path).with_broadcast_state("rules", RULES, {"limit": 4})
    path = mended.write(tmp_path / "mended")
    assert go_on(build, RECORDS, path, **settings) == [4] * 6
    assert Savepoint.load(path).broadcast_state("rules", "rules") == {"limit": 4}


@pytest.mark.parametrize("parallelism", [1, 2])
def test_lists_are_read_bootstrapped_and_mended(parallelism: int, tmp_path: Path) -> None:
    waiting = ListStateDescriptor("waiting", Types.STRING())
    _, taken = run_and_save(pairs, elements("abc|d"), tmp_path / "taken", batches=0)
    assert Savepoint.load(taken).list_state("pairs", "waiting") == ["c"]
    mended = Savepoint.load(taken).with_list_state("pairs", waiting, ["z"])
    path = mended.write(tmp_path / "mended")
    assert go_on(pairs, elements("abc|d"), path) == ["zd"]
    made = Savepoint.new().with_list_state("pairs", waiting, ["x"]).write(tmp_path / "made")
    settings = {"parallelism.default": parallelism}
    assert "xa" in go_on(pairs, elements("a|b|c"), made, **settings)


def test_lists_are_dealt_out_and_union_lists_are_not(tmp_path: Path) -> None:
    letters = ListStateDescriptor("letters", Types.STRING())
    made = (
        Savepoint.new()
        .with_list_state("x", letters, list("abcde"), parallelism=2)
        .with_list_state("x", ListStateDescriptor("all", Types.STRING()), ["f"], union=True)
        .write(tmp_path / "made")
    )
    reader = SavepointReader(made)
    rows = Savepoint.load(made).rows("x", "_operator.letters")
    assert [(row["key_group"], row["value"]) for row in rows] == [
        (0, "a"), (0, "b"), (0, "c"), (1, "d"), (1, "e"),
    ]  # fmt: skip
    assert Savepoint.load(made).list_state("x", "letters") == list("abcde")
    assert Savepoint.load(made).list_state("x", "all") == ["f"]
    for subtask in range(3):
        content = reader.subtask_content("x", subtask, 3)
        assert content is not None and "_union.all" in content["states"]


def test_list_of_a_source_is_read(tmp_path: Path) -> None:
    before, path = save(plan_of(Counting(), None), tmp_path)
    assert Savepoint.load(path).list_state("numbers", "next") == [len(before)]
    next_number = ListStateDescriptor("next", Types.INT())
    with pytest.raises(SavepointError, match="'numbers' is a source"):
        Savepoint.load(path).with_list_state("numbers", next_number, [1])


class Remind(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        return None

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield ctx.get_current_key(), timestamp


def remind(stream: DataStream) -> DataStream:
    return stream.key_by(lambda record: record[0]).process(Remind()).uid("remind")


def test_timers_are_bootstrapped_and_mended(tmp_path: Path) -> None:
    timers = [
        {"domain": "event", "time": 5, "key": "ann"},
        {"domain": "event", "time": 7, "key": "bob"},
        {"domain": "processing", "time": 3, "key": "cid"},
    ]
    made = Savepoint.new().with_timers("remind", timers).write(tmp_path / "made")
    assert sorted(go_on(remind, RECORDS, made)) == [("ann", 5), ("bob", 7), ("cid", 3)]
    found = Savepoint.load(made).timers("remind")
    later = [timer | {"time": timer["time"] + 100} for timer in found]
    mended = Savepoint.load(made).with_timers("remind", later).write(tmp_path / "mended")
    assert sorted(go_on(remind, RECORDS, mended)) == [("ann", 105), ("bob", 107), ("cid", 103)]
    without = Savepoint.load(made).with_timers("remind", []).write(tmp_path / "without")
    assert go_on(remind, RECORDS, without) == []
    with pytest.raises(SavepointError, match="must be 'event' or 'processing', not 'other'"):
        Savepoint.new().with_timers("x", [{"domain": "other", "time": 1, "key": "a"}])


SEEN = MapStateDescriptor("seen", Types.STRING(), Types.PICKLED_BYTE_ARRAY())
SEEN.enable_time_to_live(StateTtlConfig.new_builder(Time.days(400_000)).build())


def times(path: str) -> dict[Any, int]:
    found = Savepoint.load(path).rows("remember", "seen")
    return {(row["key"], row["entry"]): row["time"] for row in found}


def test_entries_keep_their_age_when_they_are_mended(tmp_path: Path) -> None:
    """E33."""
    _, path = run_and_save(remember, CUT_RECORDS, tmp_path / "taken")
    before = times(path)
    content: dict[Any, dict[Any, Any]] = {}
    for row in Savepoint.load(path).rows("remember", "seen"):
        content.setdefault(row["key"], {})[row["entry"]] = {"at": 0}
    content["new"] = {"x": {"at": 0}}
    mended = Savepoint.load(path).with_state("remember", SEEN, content).write(tmp_path / "mended")
    after = times(mended)
    assert {place: after[place] for place in before} == before
    assert after["new", "x"] == max(before.values())
    kinds = {own.name: own.kind for own in SavepointReader(mended).manifest.operators[0].states}
    assert kinds["seen"] == "map+ttl"
    assert go_on(remember, CUT_RECORDS, mended)


def test_ages_are_taken_from_frames(tmp_path: Path) -> None:
    count = ValueStateDescriptor("count", Types.INT())
    count.enable_time_to_live(StateTtlConfig.new_builder(Time.days(1)).build())
    table = pyarrow.table({"key": ["a", "b"], "value": [1, 2], "time": [100, 200]})
    made = Savepoint.new().with_state("x", count, table).write(tmp_path / "made")
    rows = Savepoint.load(made).rows("x", "count")
    assert {row["key"]: row["time"] for row in rows} == {"a": 100, "b": 200}


def test_sources_are_renamed_and_dropped(tmp_path: Path) -> None:
    before, path = save(plan_of(Counting(), None), tmp_path / "taken")

    def named(uid: str, path: str) -> Any:
        plan = plan_of(Counting(), None, **{"execution.state-recovery.path": path}, uid=uid)
        return go_on_with(plan)

    savepoint = Savepoint.load(path)
    assert savepoint.sources() == ["numbers"]
    renamed = savepoint.renamed("numbers", "others").write(tmp_path / "renamed")
    assert before + named("others", renamed) == list(range(COUNT))
    dropped = savepoint.without_operator("numbers").write(tmp_path / "dropped")
    assert named("numbers", dropped) == list(range(COUNT))


def test_renamed_operator_keeps_its_clock(tmp_path: Path) -> None:
    """Else records that are late would not be."""
    _, path = run_and_save(remember, CUT_RECORDS, tmp_path / "taken")
    renamed = Savepoint.load(path).renamed("remember", "other").write(tmp_path / "renamed")
    clocks = SavepointReader(renamed).job_state.clocks
    assert clocks == {"other": SavepointReader(path).job_state.clocks["remember"]}


def test_wrong_kinds_of_state_are_refused(tmp_path: Path) -> None:
    def unkeyed(stream: DataStream) -> DataStream:
        return pairs(stream)

    _, path = run_and_save(unkeyed, elements("abc|d"), tmp_path / "taken", batches=0)
    savepoint = Savepoint.load(path)
    count = ValueStateDescriptor("count", Types.INT())
    with pytest.raises(SavepointError, match="'pairs' has no keys: use with_list_state"):
        savepoint.with_state("pairs", count, {"a": 1})
    with pytest.raises(SavepointError, match="'pairs' has no keys"):
        savepoint.with_timers("pairs", [{"domain": "event", "time": 1, "key": "a"}])
    made = Savepoint.new().with_broadcast_state("rules", RULES, {"limit": 3})
    with pytest.raises(SavepointError, match=r"broadcast state 'rules'.*with_broadcast_state"):
        made.with_state("rules", RULES, {"a": {"limit": 3}})
    with pytest.raises(SavepointError, match="'rules' has keys: use with_state"):
        made.with_list_state("rules", ListStateDescriptor("x", Types.INT()), [1])
    with pytest.raises(TypeMismatchError, match="State 'rules'"):
        made.with_broadcast_state("rules", RULES, {"limit": "three"})
    timed = ListStateDescriptor("x", Types.INT())
    timed.enable_time_to_live(StateTtlConfig.new_builder(Time.days(1)).build())
    with pytest.raises(ProgramError, match="time to live"):
        Savepoint.new().with_list_state("x", timed, [1])
