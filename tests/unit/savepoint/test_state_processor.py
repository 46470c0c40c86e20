"""Savepoints as tables: read, changed, made anew, with no job running (E48)."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from millpond.common import Types
from millpond.datastream import (
    DataStream,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    RuntimeContext,
)
from millpond.datastream.columns import ColumnStateDescriptor
from millpond.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)
from millpond.errors import ProgramError, SavepointError, TypeMismatchError
from millpond.savepoint import Savepoint
from millpond.testing import CUT
from tests.unit.savepoint.test_savepoint import CUT_RECORDS, go_on, remember, run_and_save

COUNT = ValueStateDescriptor("count", Types.INT())
NAMES = ListStateDescriptor("names", Types.STRING())


@pytest.fixture
def path(tmp_path: Path) -> str:
    return run_and_save(remember, CUT_RECORDS, tmp_path / "taken")[1]


def by_key(rows: list[dict[str, Any]]) -> dict[Any, list[Any]]:
    found: dict[Any, list[Any]] = {}
    for row in rows:
        found.setdefault(row["key"], []).append(row["value"])
    return found


def test_states_are_tables(path: str) -> None:
    savepoint = Savepoint.load(path)
    assert savepoint.operators() == ["remember"]
    assert savepoint.states("remember") == ["(timers)", "count", "names", "seen"]
    assert by_key(savepoint.rows("remember", "count")) == {"ann": [2], "bob": [1], "cid": [1]}
    assert by_key(savepoint.rows("remember", "names"))["ann"] == ["a", "c"]
    seen = savepoint.rows("remember", "seen")
    assert {(row["key"], row["entry"], row["value"]["at"]) for row in seen} == {
        ("ann", "a", 100),
        ("ann", "c", 300),
        ("bob", "b", 200),
        ("cid", "d", 5000),
    }
    (timer,) = savepoint.timers("remember")
    assert (timer["domain"], timer["time"], timer["key"]) == ("event", 6000, "cid")


def test_states_are_arrow_and_pandas_tables(path: str) -> None:
    savepoint = Savepoint.load(path)
    table = savepoint.arrow("remember", "count")
    assert table.schema.field("value").type == pyarrow.int32()
    frame = savepoint.pandas("remember", "names")
    assert sorted(frame["value"]) == ["a", "b", "c", "d"]
    seen = savepoint.arrow("remember", "seen")  # pickles of dictionaries
    assert sorted(value["at"] for value in seen.column("value").to_pylist()) == [
        100,
        200,
        300,
        5000,
    ]


def test_values_that_arrow_has_no_type_for_stay_pickles(tmp_path: Path) -> None:
    anything = ValueStateDescriptor("numbers", Types.PICKLED_BYTE_ARRAY())
    made = Savepoint.new().with_state("x", anything, {"a": 1j}).write(tmp_path / "made")
    (data,) = Savepoint.load(made).arrow("x", "numbers").column("value").to_pylist()
    assert pickle.loads(data) == 1j


def test_values_can_be_mended(path: str, tmp_path: Path) -> None:
    savepoint = Savepoint.load(path)
    counts = {row["key"]: row["value"] + 100 for row in savepoint.rows("remember", "count")}
    mended = savepoint.with_state("remember", COUNT, counts).write(tmp_path / "mended")
    assert by_key(Savepoint.load(mended).rows("remember", "count"))["ann"] == [102]
    results = go_on(remember, CUT_RECORDS, mended)
    assert [result[:3] for result in results if result[0] == "ann"] == [
        ("ann", 103, ["a", "c", "e"])
    ]
    assert by_key(Savepoint.load(path).rows("remember", "count"))["ann"] == [2]  # as it was


def test_frames_can_be_written(path: str, tmp_path: Path) -> None:
    savepoint = Savepoint.load(path)
    frame = savepoint.pandas("remember", "names")
    frame["value"] = frame["value"].str.upper()
    table = pyarrow.table({"key": ["ann"], "value": pyarrow.array([7], pyarrow.int32())})
    written = (
        savepoint.with_state("remember", NAMES, frame)
        .with_state("remember", COUNT, table)
        .write(tmp_path / "upper")
    )
    found = Savepoint.load(written)
    assert by_key(found.rows("remember", "names"))["ann"] == ["A", "C"]
    assert by_key(found.rows("remember", "count")) == {"ann": [7]}


def test_operators_can_be_renamed_and_dropped(path: str, tmp_path: Path) -> None:
    savepoint = Savepoint.load(path)

    def renamed(stream: DataStream) -> DataStream:
        return remember(stream).uid("another name")

    other = savepoint.renamed("remember", "another name").write(tmp_path / "renamed")
    assert any(result[:2] == ("ann", 3) for result in go_on(renamed, CUT_RECORDS, other))
    without = savepoint.without_operator("remember").write(tmp_path / "without")
    assert any(result[:2] == ("ann", 1) for result in go_on(remember, CUT_RECORDS, without))
    no_counts = savepoint.without_state("remember", "count").write(tmp_path / "no counts")
    assert any(
        result[:3] == ("ann", 1, ["a", "c", "e"])
        for result in go_on(remember, CUT_RECORDS, no_counts)
    )


class Lookup(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(COUNT)
        prices = MapStateDescriptor("prices", Types.STRING(), Types.DOUBLE())
        self.prices = runtime_context.get_map_state(prices)

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield (value[0], self.count.value(), dict(self.prices.items()))


def lookup(stream: DataStream) -> DataStream:
    return stream.key_by(lambda record: record[0]).process(Lookup()).uid("lookup")


@pytest.mark.parametrize("parallelism", [1, 3])
def test_job_starts_from_a_savepoint_that_no_job_has_written(
    parallelism: int, tmp_path: Path
) -> None:
    prices = MapStateDescriptor("prices", Types.STRING(), Types.DOUBLE())
    made = (
        Savepoint.new()
        .with_state("lookup", COUNT, {"ann": 5, "bob": 6})
        .with_state("lookup", prices, {"ann": {"a": 1.5, "b": 2.5}})
        .write(tmp_path / "made")
    )
    found = go_on(lookup, [("ann", 0, 0), ("bob", 0, 0), ("cid", 0, 0)], made,
                  **{"parallelism.default": parallelism})  # fmt: skip
    assert sorted(found, key=repr) == [
        ("ann", 5, {"a": 1.5, "b": 2.5}),
        ("bob", 6, {}),
        ("cid", None, {}),
    ]


RULES = MapStateDescriptor("rules", Types.STRING(), Types.INT())


class Rules(KeyedBroadcastProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield ctx.get_broadcast_state(RULES).get("limit")

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        ctx.get_broadcast_state(RULES).put(*value)


def test_broadcast_state_is_a_dict_and_is_restored(tmp_path: Path) -> None:
    def with_rules(rules: list[Any]) -> Any:
        def build(stream: DataStream) -> DataStream:
            limits = stream.get_execution_environment().from_collection(rules).uid("rules")
            keyed = stream.key_by(lambda record: record[0])
            return keyed.connect(limits.broadcast(RULES)).process(Rules()).uid("limits")

        return build

    elements = [("ann", 0, 0), CUT, ("bob", 0, 0)]
    first, path = run_and_save(with_rules([("limit", 3)]), elements, tmp_path, batches=0)
    assert Savepoint.load(path).broadcast_state("limits", "rules") == {"limit": 3}
    assert first == [3]
    assert go_on(with_rules([("limit", 3)]), elements, path, **{"parallelism.default": 3}) == [3]


def test_mistakes_are_named(path: str, tmp_path: Path) -> None:
    savepoint = Savepoint.load(path)
    with pytest.raises(SavepointError, match="no operator with uid 'x'; there are"):
        savepoint.rows("x", "count")
    with pytest.raises(SavepointError, match="no state 'x'"):
        savepoint.rows("remember", "x")
    with pytest.raises(SavepointError, match="no state 'x'"):
        savepoint.without_state("remember", "x")
    with pytest.raises(SavepointError, match="exists already"):
        savepoint.write(path)
    with pytest.raises(SavepointError, match="already an operator with uid 'remember'"):
        savepoint.renamed("remember", "remember")
    with pytest.raises(SavepointError, match="max parallelism 128, which cannot change to 64"):
        savepoint.with_state("remember", COUNT, {}, max_parallelism=64)
    with pytest.raises(TypeMismatchError, match="State 'count', key 'ann'"):
        savepoint.with_state("remember", COUNT, {"ann": "many"})
    with pytest.raises(TypeError, match="takes a dict, a DataFrame or an Arrow table"):
        savepoint.with_state("remember", COUNT, 5)
    with pytest.raises(ProgramError, match="Column state 'sum'"):
        savepoint.with_state("remember", ColumnStateDescriptor("sum", Types.LONG()), {})
    with pytest.raises(SavepointError, match="not written yet"):
        savepoint.with_state("remember", COUNT, {"a": 1}).arrow("remember", "count")
