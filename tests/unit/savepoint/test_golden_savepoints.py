"""Savepoints of all kinds of state that an earlier release has written must always load (E45, C40)."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy
import pytest

from millpond.common import Types
from millpond.datastream import (
    AggregateFunction,
    BroadcastProcessFunction,
    CheckpointedFunction,
    DataStream,
    KeyedProcessFunction,
    RuntimeContext,
)
from millpond.datastream.columns import ColumnStateDescriptor, KeyedColumnFunction, KeyedColumns
from millpond.datastream.formats.avro import AvroSchema, GenericRecordAvroTypeInfo
from millpond.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from millpond.savepoint import Savepoint
from millpond.savepoint.manifest import FORMAT
from tests.unit.savepoint.test_savepoint import (
    CUT_RECORDS,
    go_on,
    remember,
    run_and_save,
    run_to_the_end,
    windows,
)

GOLDEN = Path(__file__).parents[2] / "golden"

SEEN = GenericRecordAvroTypeInfo(
    AvroSchema.parse_string(
        """{"type": "record", "name": "ads.Seen", "fields": [
            {"name": "ad", "type": "string"},
            {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["VIEW", "CLICK"]}},
            {"name": "price", "type": ["null", "double"], "default": null}]}"""
    )
)


@dataclasses.dataclass(frozen=True, slots=True)
class Ad:
    name: str
    time_ms: int


@dataclasses.dataclass
class Visit:
    ad: Ad
    ads: list[Ad] = dataclasses.field(default_factory=list)


class Average(AggregateFunction):
    def create_accumulator(self) -> Any:
        return 0, 0

    def add(self, value: Any, accumulator: Any) -> Any:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: Any) -> Any:
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class All(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        state = runtime_context
        self.sum = state.get_reducing_state(
            ReducingStateDescriptor("sum", lambda a, b: a + b, Types.LONG())
        )
        self.average = state.get_aggregating_state(
            AggregatingStateDescriptor(
                "average", Average(), Types.TUPLE([Types.LONG(), Types.LONG()])
            )
        )
        self.seen = state.get_list_state(ListStateDescriptor("seen", SEEN))
        self.visit = state.get_state(ValueStateDescriptor("visit", Visit))
        self.ads = state.get_map_state(MapStateDescriptor("ads", Ad, Types.INT()))
        anything = Types.PICKLED_BYTE_ARRAY()
        self.anything = state.get_map_state(MapStateDescriptor("anything", anything, anything))

    def process_element(self, value: Any, ctx: Any) -> Any:
        _, name, time_ms = value
        ad = Ad(name, time_ms)
        self.sum.add(time_ms)
        self.average.add(time_ms)
        self.seen.add({"ad": name, "kind": "CLICK", "price": time_ms / 8})
        before = self.visit.value()
        self.visit.update(Visit(ad, [] if before is None else [*before.ads, before.ad]))
        self.ads.put(ad, time_ms)
        self.anything.put(ad, {"ad": ad})
        yield (
            ctx.get_current_key(),
            self.sum.get(),
            self.average.get(),
            list(self.seen.get()),
            self.visit.value(),
            sorted(self.ads.items(), key=repr),
            sorted(self.anything.items(), key=repr),
        )


def keyed(stream: DataStream) -> DataStream:
    key = Types.TUPLE([Types.STRING(), Types.INT()])
    return stream.key_by(lambda r: (r[0], len(r[0])), key).process(All()).uid("all")


RULES = MapStateDescriptor("rules", Types.STRING(), Types.INT())


class Lists(BroadcastProcessFunction, CheckpointedFunction):
    """A list, a union list, and broadcast state."""

    def initialize_state(self, context: Any) -> None:
        store = context.get_operator_state_store()
        self._list = store.get_list_state(ListStateDescriptor("names", Types.STRING()))
        self._union = store.get_union_list_state(ListStateDescriptor("times", Types.LONG()))
        self._names = list(self._list.get())
        self._times = list(self._union.get())

    def snapshot_state(self, context: Any) -> None:
        self._list.update(self._names)
        self._union.update(self._times)

    def process_element(self, value: Any, ctx: Any) -> Any:
        self._names.append(value[1])
        self._times.append(value[2])
        limit = ctx.get_broadcast_state(RULES).get("limit")
        yield "".join(self._names), list(self._times), limit

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        ctx.get_broadcast_state(RULES).put(*value)


def lists(stream: DataStream) -> DataStream:
    environment = stream.get_execution_environment()
    rules = environment.from_collection([("limit", 3)]).uid("rules").broadcast(RULES)
    return stream.connect(rules).process(Lists()).uid("lists")


class Sums(KeyedColumnFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.sums = runtime_context.get_column_state(ColumnStateDescriptor("sums", Types.LONG()))

    def process_columns(self, events: KeyedColumns, ctx: KeyedColumnFunction.Context) -> None:
        seen = ~events.fired
        added = numpy.where(seen, 1, 100)
        sums = self.sums.running_sum(events.rows, added)
        ctx.register_event_time_timers(seen, events.times[seen] + 1000)
        ctx.collect(numpy.ones(len(events), bool), sums)


def columns(stream: DataStream) -> DataStream:
    return stream.key_by(lambda r: r[0]).process_columns(Sums()).uid("columns")


PROGRAMS = {
    "remember": remember,
    "windows": windows,
    "keyed": keyed,
    "lists": lists,
    "columns": columns,
}
"""name -> the program whose golden savepoint is savepoint.vVERSION-NAME. To write a missing one, run
`python -m tests.unit.savepoint.test_golden_savepoints`; it never overwrites one that is there."""


def golden_folder(name: str) -> Path:
    return GOLDEN / f"savepoint.v{FORMAT}-{name}"


def write_missing(golden: Path = GOLDEN) -> list[Path]:
    """Take the savepoints that have no golden folder yet, and return their folders."""
    written = []
    for name, build in PROGRAMS.items():
        folder = golden / golden_folder(name).name
        if folder.exists():
            continue
        with tempfile.TemporaryDirectory() as scratch:
            _, path = run_and_save(build, CUT_RECORDS, Path(scratch))
            shutil.copytree(path, folder)
        written.append(folder)
    return written


def test_every_golden_savepoint_has_a_program() -> None:
    assert {path.name.partition("-")[2] for path in GOLDEN.iterdir()} == set(PROGRAMS)


def test_missing_golden_savepoint_is_written_and_loads(tmp_path: Path) -> None:
    for name in PROGRAMS:
        if name != "keyed":
            shutil.copytree(golden_folder(name), tmp_path / golden_folder(name).name)
    (written,) = write_missing(tmp_path)
    assert written.name == golden_folder("keyed").name
    assert go_on(keyed, CUT_RECORDS, str(written))
    assert write_missing(tmp_path) == []


@pytest.mark.parametrize("kept", sorted(GOLDEN.iterdir()), ids=lambda path: path.name)
def test_savepoints_of_earlier_days_still_load(kept: Path, tmp_path: Path) -> None:
    """Never regenerate the savepoint of a released format: add one for the new format."""
    build = PROGRAMS[kept.name.partition("-")[2]]
    whole = run_to_the_end(build, CUT_RECORDS)
    before, _ = run_and_save(build, CUT_RECORDS, tmp_path)
    after = go_on(build, CUT_RECORDS, str(kept))
    assert after
    assert sorted(map(repr, before + after)) == sorted(map(repr, whole))


def test_tables_of_earlier_days_are_read() -> None:
    savepoint = Savepoint.load(GOLDEN / "savepoint.v1-keyed")
    rows = {row["key"]: row["value"] for row in savepoint.rows("all", "visit")}
    assert rows["ann", 3] == Visit(Ad("c", 300), [Ad("a", 100)])
    assert {row["entry"] for row in savepoint.rows("all", "ads")} >= {Ad("a", 100), Ad("b", 200)}
    lists = Savepoint.load(GOLDEN / "savepoint.v1-lists")
    assert lists.list_state("lists", "names") == ["a", "b", "c", "d"]
    assert lists.list_state("lists", "times") == [100, 200, 300, 5000]
    assert lists.broadcast_state("lists", "rules") == {"limit": 3}


if __name__ == "__main__":
    # By its full name: the classes in a savepoint must not belong to `__main__`.
    from tests.unit.savepoint import test_golden_savepoints as module

    for folder in module.write_missing():
        print(f"wrote {folder}")
