"""A state kind is one specification: a kind of a test's own does everything that built-in kinds do.

The toy is a set per key. It is defined here and registered, and nothing else in Millpond knows of it.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas
import pytest

import millpond
from millpond.common import Time, Types, options
from millpond.core.codec import freeze, thaw
from millpond.core.columns import decode_list, encode_list
from millpond.datastream import DataStream, KeyedProcessFunction, RuntimeContext
from millpond.datastream.columns import ColumnStateDescriptor
from millpond.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    State,
    StateDescriptor,
    StateKind,
    ValueStateDescriptor,
)
from millpond.datastream.state_ttl import StateTtlConfig
from millpond.datastream.window import (
    EventTimeSessionWindows,
    TimeWindow,
    Trigger,
    TriggerResult,
)
from millpond.engine.state_views import QueryableState
from millpond.errors import (
    CorruptDataError,
    IncompatibleCheckpointError,
    ProgramError,
    QueryableStateError,
    UnsupportedFeatureError,
    UserFunctionError,
)
from millpond.queryable.answers import description
from millpond.queryable.protocol import Status
from millpond.queryable.read_only_states import read_only_state
from millpond.savepoint import Savepoint
from millpond.savepoint.new_state import times_of
from millpond.savepoint.state_tables import columns_of, to_content
from millpond.state.grouping import Grouping
from millpond.state.handle_kinds import make_handle
from millpond.state.handles import CurrentKey, Handle
from millpond.state.hash.backend import HashShard
from millpond.state.hash.maps import HashMapTable
from millpond.state.kinds import registry
from millpond.state.kinds.kind import BackendFamily, Columns, StateKindSpec
from millpond.state.kinds.map import MapKind
from millpond.state.kinds.read_only import ReadOnlyView, refuse_change
from millpond.state.kinds.rows import counted, repeated
from millpond.state.ordered.maps import StoredMapTable
from millpond.state.ordered.region import TableRegion
from millpond.state.ordered.shard import StoredShard
from millpond.state.shard_state import ShardState
from millpond.state.tables import MISSING, MapTable
from millpond.state.type_check import check_types, declared_types
from millpond.state.types.declared import declared_schemas
from millpond.state.types.evolution import at_rest_converter
from millpond.testing import CUT, KeyedHarness
from tests.sqlite_backend import SqliteStore
from tests.unit.queryable.queryable_slot import HandSlot
from tests.unit.savepoint.test_savepoint import go_on, run_and_save, run_to_the_end

# --- the toy: what a module in state/kinds/ would hold ------------------------------------------------


def new_kind(name: str) -> StateKind:
    """What one more line in StateKind would give: enums cannot be extended from outside."""
    kind = object.__new__(StateKind)
    kind._name_, kind._value_ = name.upper(), name
    return kind


SET = new_kind("set")


class SetStateDescriptor(StateDescriptor):
    kind = SET

    def __init__(self, name: str, element_type: Any) -> None:
        super().__init__(name, element_type)


class SetStateHandle(Handle, State):
    """Elements are the entries of a map table."""

    _table: MapTable

    def add(self, element: Any) -> None:
        self._table.put(self._current.key, thaw(self._admit(element)), True)

    def discard(self, element: Any) -> None:
        self._table.remove(self._current.key, element)

    def get(self) -> list[Any]:
        return sorted(element for element, _ in self._table.entries(self._current.key).items())

    def clear(self) -> None:
        self._table.clear(self._current.key)


class ReadOnlySet(ReadOnlyView):
    def get(self) -> Any:
        return self._content

    def add(self, element: Any) -> None:
        refuse_change()


class SetKind(StateKindSpec[SetStateDescriptor, MapTable]):
    kind = SET

    def converters(self, written: Any, descriptor: SetStateDescriptor) -> Any:
        convert = at_rest_converter(written["value"], descriptor.type_info)
        return (lambda value: value), lambda element: thaw(convert(element))

    def hash_table(self) -> MapTable:
        return HashMapTable()

    def ordered_table(self, region: TableRegion) -> MapTable:
        return StoredMapTable(region.store, region.prefix, region.key_bytes)

    def handle(
        self, descriptor: SetStateDescriptor, current: CurrentKey, family: BackendFamily
    ) -> SetStateHandle:
        return SetStateHandle(descriptor, current)

    def split(self, changes: Any, grouping: Grouping) -> Any:
        return MapKind().split(changes, grouping)

    def to_columns(self, changes: Any, timed: bool) -> Columns:
        keys, counts, elements, *_ = map(decode_list, changes)
        return {"key": repeated(keys, counts), "value": elements}

    def to_changes(self, columns: Columns, timed: bool) -> Any:
        keys, counts = counted(columns["key"])
        elements = columns["value"]
        return tuple(map(encode_list, (keys, counts, elements, [True] * len(elements), [], [])))

    def entries(self, descriptor: SetStateDescriptor, content: Any) -> Iterable[tuple[Any, Any]]:
        return [(element, element) for element in content]

    def entry_of_row(self, row: Mapping[str, Any], before: int) -> Any:
        return row["value"]

    def look_up_value(self, descriptor: SetStateDescriptor, content: Any, opened: Any) -> Any:
        return sorted(content)

    def read_only_view(self, descriptor: SetStateDescriptor, data: Any, decode: Any) -> State:
        return ReadOnlySet(set(decode(data, None)))

    def merge(
        self,
        table: MapTable,
        descriptor: SetStateDescriptor,
        key: Any,
        into: Any,
        others: Iterable[Any],
    ) -> None:
        for other in others:
            for element in list(table.entries((key, other)).keys()):
                table.put((key, into), element, True)
            table.clear((key, other))


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_SPECS", dict(registry._SPECS))
    registry.register(SetKind())


# --- the toy at work ---------------------------------------------------------------------------------

OWN = "tests.sqlite_backend.SqliteBackend"


@pytest.fixture(params=["hashmap", "rocksdb", OWN], ids=["hashmap", "rocksdb", "own"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    default = dataclasses.replace(options.STATE_BACKEND, default=request.param)
    monkeypatch.setattr(options, "STATE_BACKEND", default)
    return str(request.param)


class Collect(KeyedProcessFunction):
    """Records are (key, element); an element with a minus is discarded."""

    def __init__(
        self, change: Callable[[StateDescriptor], None] | None = None, of: Any = None
    ) -> None:
        self._change = change
        self._of = of

    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor: Any = SetStateDescriptor("seen", self._of or Types.STRING())
        if self._change is not None:
            self._change(descriptor)
        self.seen: Any = runtime_context.get_state(descriptor)

    def process_element(self, value: Any, ctx: Any) -> Any:
        key, element, *_ = value
        if isinstance(element, str) and element.startswith("-"):
            self.seen.discard(element[1:])
        else:
            self.seen.add(element)
        yield key, self.seen.get()


def collect(stream: DataStream) -> DataStream:
    return stream.key_by(lambda record: record[0]).process(Collect()).uid("collect")


RECORDS = [("ann", "a", 1), ("bob", "a", 2), ("ann", "b", 3), ("ann", "-a", 4), ("ann", "c", 5)]
CUT_RECORDS = [*RECORDS[:2], CUT, *RECORDS[2:4], CUT, *RECORDS[4:]]
COLLECTED = [
    ("ann", ["a"]),
    ("bob", ["a"]),
    ("ann", ["a", "b"]),
    ("ann", ["b"]),
    ("ann", ["b", "c"]),
]


@pytest.mark.usefixtures("toy", "backend")
def test_new_kind_works_in_a_function_and_comes_back_from_its_change_log() -> None:
    harness = KeyedHarness(collect)
    for record in RECORDS[:3]:
        harness.process_element(record)
    harness.snapshot()
    for record in RECORDS[3:4]:
        harness.process_element(record)
    snapshot = harness.snapshot()  # of two changes
    assert harness.values() == COLLECTED[:4]
    harness.close()
    again = KeyedHarness(collect, restore=snapshot)
    for record in RECORDS[4:]:
        again.process_element(record)
    assert again.values() == COLLECTED[4:]
    again.close()


@pytest.mark.usefixtures("toy", "backend")
def test_new_kind_is_saved_and_restored_with_any_backend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, path = run_and_save(collect, CUT_RECORDS, tmp_path)
    rows = Savepoint.load(path).rows("collect", "seen")
    assert {(row["key"], row["value"]) for row in rows} == {("ann", "b"), ("bob", "a")}
    assert sorted(before + go_on(collect, CUT_RECORDS, path)) == sorted(COLLECTED)
    other = dataclasses.replace(options.STATE_BACKEND, default="hashmap")
    monkeypatch.setattr(options, "STATE_BACKEND", other)
    assert sorted(before + go_on(collect, CUT_RECORDS, path)) == sorted(COLLECTED)


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize(
    "content",
    [
        {"ann": {"x", "y"}, "bob": {"z"}},
        pandas.DataFrame({"key": ["ann", "bob", "ann", "ann"], "value": ["x", "z", "y", "x"]}),
    ],
    ids=["dict", "frame"],
)
def test_new_kind_is_written_into_a_savepoint_without_a_job(content: Any, tmp_path: Path) -> None:
    descriptor = SetStateDescriptor("seen", Types.STRING())
    path = Savepoint.new().with_state("collect", descriptor, content).write(tmp_path / "made")
    assert len(Savepoint.load(path).rows("collect", "seen")) == 3
    assert go_on(collect, [("ann", "w", 1)], path) == [("ann", ["w", "x", "y"])]


@pytest.mark.usefixtures("toy", "backend")
def test_new_kind_goes_through_changes_of_its_declared_type() -> None:
    def build(of: Any) -> Callable[[DataStream], DataStream]:
        return lambda stream: stream.key_by(lambda r: r[0]).process(Collect(of=of))

    harness = KeyedHarness(build(Types.STRING()))
    harness.process_element(("ann", "a"))
    snapshot = harness.snapshot()
    harness.close()
    changed = KeyedHarness(build(Types.PRIMITIVE_ARRAY(Types.BYTE())), restore=snapshot)
    changed.process_element(("ann", b"b"))
    assert changed.values() == [("ann", [b"a", b"b"])]
    changed.close()
    with pytest.raises(IncompatibleCheckpointError, match="string cannot become int"):
        KeyedHarness(build(Types.INT()), restore=snapshot)


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize("backend_type", ["hashmap", "rocksdb", OWN])
def test_new_kind_is_looked_up_as_json(backend_type: str) -> None:
    function = Collect(lambda descriptor: descriptor.set_queryable("my seen"))
    slot = HandSlot(function, {"state.backend.type": backend_type})
    slot.run(0, [("a", "x"), ("a", "y")])
    slot.commit(0)
    slot.run(1, [("a", "-x"), ("b", "z")])
    assert slot.get("seen", "a", "b") == [[Status.FOUND, ["x", "y"]], [Status.NOT_FOUND, None]]
    slot.commit(1)
    assert slot.get("seen", "a", "b") == [[Status.FOUND, ["y"]], [Status.FOUND, ["z"]]]
    ((status, text),) = slot.get("seen", "a", entry="x")
    assert status is Status.FAILED and "set state, which has no entries" in text
    slot.close()
    view: Any = read_only_state(SetStateDescriptor("seen", Types.STRING()), ["y", "z"])
    assert view.get() == {"y", "z"}
    with pytest.raises(QueryableStateError, match="only be read"):
        view.add("w")


@pytest.mark.usefixtures("toy")
def test_kind_without_a_time_to_live_refuses_one() -> None:
    config = StateTtlConfig.new_builder(Time.hours(1)).build()
    function = Collect(lambda descriptor: descriptor.enable_time_to_live(config))
    with pytest.raises(UserFunctionError, match="Set state 'seen' cannot have a time to live"):
        run_to_the_end(lambda s: s.key_by(lambda r: r[0]).process(function), RECORDS)


class FireOnThird(Trigger[Any, TimeWindow]):
    """Fires when the elements of all merged windows are three different ones."""

    def __init__(self) -> None:
        self._seen: Any = SetStateDescriptor("elements", Types.STRING())

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> TriggerResult:
        seen = ctx.get_partitioned_state(self._seen)
        seen.add(element[1])
        return TriggerResult.FIRE_AND_PURGE if len(seen.get()) == 3 else TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Any, ctx: Any) -> None:
        ctx.merge_partitioned_state(self._seen)

    def clear(self, window: Any, ctx: Any) -> None:
        ctx.get_partitioned_state(self._seen).clear()


@pytest.mark.usefixtures("toy", "backend")
def test_new_kind_merges_when_windows_do() -> None:
    harness = KeyedHarness(
        lambda stream: (
            stream.key_by(lambda r: r[0])
            .window(EventTimeSessionWindows.with_gap(Time.milliseconds(10)))
            .trigger(FireOnThird())
            .reduce(lambda one, other: (one[0], one[1] + other[1]))
        )
    )
    for element, timestamp in [("a", 0), ("b", 15), ("c", 8)]:  # c joins the two sessions
        harness.process_element(("ann", element), timestamp)
    (((key, elements), _),) = harness.output
    assert key == "ann" and sorted(elements) == ["a", "b", "c"]
    harness.close()


@pytest.mark.usefixtures("toy")
def test_kind_cannot_be_registered_twice() -> None:
    with pytest.raises(ValueError, match="'set' already"):
        registry.register(SetKind())


# --- kinds that nobody has registered ----------------------------------------------------------------


def unknown() -> StateDescriptor:
    return SetStateDescriptor("seen", Types.STRING())


def with_store(use: Callable[[StoredShard], Any]) -> None:
    store = SqliteStore(":memory:")
    try:
        use(StoredShard(store, 0, 0))
    finally:
        store.close()


CONTENT = {"states": {"seen": ("set+ttl", ())}, "types": {}, "event": ((), ()), "processing": ()}
DECLARED: list[tuple[str, Callable[[], Any]]] = [
    ("specification", lambda: registry.spec_of(SET)),
    ("name in the log", lambda: registry.kind_text(SET, False)),
    ("handle", lambda: make_handle(unknown(), CurrentKey(), Any, BackendFamily.HASH)),
    ("table in memory", lambda: HashShard().table("seen", SET)),
    ("table in a store", lambda: with_store(lambda group: group.table("seen", SET))),
    ("table of a key group", lambda: ShardState(0).table("seen", SET)),
    ("state of a key group", lambda: ShardState(0).state(unknown())),
    ("declared types", lambda: declared_schemas(unknown())),
    ("types of an operator", lambda: declared_types([("seen", unknown())])),
    ("read-only state", lambda: read_only_state(unknown(), [])),
    (
        "queryable state",
        lambda: description(QueryableState("n", 0, None, unknown(), None, 1, 0, False)),
    ),  # type: ignore[arg-type]
    ("new savepoint", lambda: Savepoint.new().with_state("uid", unknown(), {"ann": {"a"}})),
    ("times in a savepoint", lambda: times_of(unknown(), [])),
]
STORED: list[tuple[str, Callable[[], Any]]] = [
    ("change log", lambda: ShardState(0).apply(CONTENT)),
    ("savepoint of a state", lambda: columns_of(CONTENT)),
    ("state of a savepoint", lambda: to_content({"seen": ("set", {})}, {})),
    ("check of types", lambda: check_types("op", [("seen", unknown())], {"seen": [("set", {})]})),
]


@pytest.mark.parametrize("ask", [ask for _, ask in DECLARED], ids=[name for name, _ in DECLARED])
def test_declared_kind_that_is_not_registered_is_refused_everywhere(ask: Any) -> None:
    with pytest.raises(UnsupportedFeatureError, match="no state kind 'set'; there are value, list"):
        ask()


@pytest.mark.parametrize("ask", [ask for _, ask in STORED], ids=[name for name, _ in STORED])
def test_stored_kind_that_is_not_registered_is_refused_everywhere(ask: Any) -> None:
    with pytest.raises(CorruptDataError, match=r"unknown kind of state 'set(\+ttl)?'.*knows value"):
        ask()


def comparisons_with_kinds(path: Path) -> Iterator[int]:
    """The lines of a module that compare something with a member of StateKind."""
    for node in ast.walk(ast.parse(path.read_text())):
        for operand in ast.walk(node) if isinstance(node, ast.Compare) else ():
            if isinstance(operand, ast.Attribute) and ast.unparse(operand.value) == "StateKind":
                yield node.lineno


def test_no_code_on_kinds_decides_by_their_names() -> None:
    """A chain of ifs has an else, and what falls through there is taken for another kind."""
    root = Path(millpond.__file__).parent
    folders = ("state", "savepoint", "queryable")
    paths = [path for folder in folders for path in sorted((root / folder).rglob("*.py"))]
    assert paths
    paths.append(root / "engine" / "context.py")
    assert [(str(path), line) for path in paths for line in comparisons_with_kinds(path)] == []


# --- built-in kinds ----------------------------------------------------------------------------------

DESCRIPTORS: list[StateDescriptor] = [
    ValueStateDescriptor("s", Types.INT()),
    ListStateDescriptor("s", Types.INT()),
    MapStateDescriptor("s", Types.STRING(), Types.INT()),
    ReducingStateDescriptor("s", max, Types.INT()),
    AggregatingStateDescriptor("s", None, Types.INT()),  # type: ignore[arg-type]
    ColumnStateDescriptor("s", Types.INT()),
]


def test_every_public_kind_has_its_specification() -> None:
    assert {descriptor.kind for descriptor in DESCRIPTORS} == set(StateKind)
    for kind in StateKind:
        assert registry.spec_of(kind).kind is kind


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("kind", [kind for kind in StateKind if kind is not StateKind.COLUMN])
def test_savepoint_columns_become_the_table_they_came_from(kind: StateKind, timed: bool) -> None:
    spec = registry.spec_of(kind)
    table, copy = spec.hash_table(), spec.hash_table()
    descriptor = next(own for own in DESCRIPTORS if own.kind is kind)
    values = {StateKind.LIST: [[1], 2], StateKind.MAP: {"a": [1], "b": 2}}.get(kind, [1])
    for entry, value in spec.entries(descriptor, values):
        at_rest = (7, freeze(value)) if timed else freeze(value)
        if kind is StateKind.LIST:
            table.extend("key", [at_rest])
        elif kind is StateKind.MAP:
            table.put("key", entry, at_rest)
        else:
            table.set("key", at_rest)
    columns = spec.to_columns(table.snapshot(), timed)
    assert ("time" in columns) is timed and set(columns["key"]) == {"key"}
    copy.apply(spec.to_changes(columns, timed))
    assert copy.data == table.data


def test_column_state_is_refused_where_it_cannot_be() -> None:
    descriptor: Any = DESCRIPTORS[-1]
    spec = registry.spec_of(StateKind.COLUMN)
    with pytest.raises(ProgramError, match="Column state 's' cannot be written"):
        Savepoint.new().with_state("uid", descriptor, {})
    with pytest.raises(UnsupportedFeatureError, match="cannot be queryable"):
        spec.look_up_value(descriptor, MISSING, lambda value: value)
    with pytest.raises(UnsupportedFeatureError, match="cannot have a time to live"):
        spec.ttl_handle(descriptor, CurrentKey(), None)
    with pytest.raises(UnsupportedFeatureError, match="in_memory_only"):
        spec.ordered_table(None)
    with pytest.raises(ProgramError, match="column state"):
        spec.merge(None, descriptor, "key", 0, [1])
