"""Column state and its log against plain dictionaries; key groups of columns."""

from __future__ import annotations

from typing import Any

import numpy
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.core.key_groups import key_group_of
from millpond.datastream.columns import fields
from millpond.datastream.state import StateKind
from millpond.engine.exchange.field_keys import key_groups_in, keys_in
from millpond.errors import IncompatibleCheckpointError
from millpond.state.columns.table import ColumnTable
from millpond.state.shard_state import COLUMNS, ShardState
from tests.unit.state.test_change_log import FATE
from tests.unit.state.workers import run_batches

KEYS = st.sampled_from(["a", "b", "c", "d"])
SMALL = st.integers(0, 6)
OPERATION = st.one_of(
    st.tuples(st.just("put"), st.lists(st.tuples(KEYS, SMALL), min_size=1, max_size=4)),
    st.tuples(st.just("put and take back"), st.lists(st.tuples(KEYS, SMALL), min_size=1)),
    st.tuples(st.just("register"), st.lists(st.tuples(SMALL, KEYS), min_size=1, max_size=4)),
    st.tuples(st.just("delete"), SMALL, KEYS),
    st.tuples(st.just("fire"), SMALL),
)
END = ("end of the batch",)


class Model:
    """Values that are not 0, and timers in the order of registration."""

    def __init__(self) -> None:
        self.values: dict[str, int] = {}
        self.timers: list[tuple[int, str]] = []

    def apply(self, operation: tuple[Any, ...]) -> list[tuple[int, str]]:
        name, *rest = operation
        if name == "put":
            self.values.update(rest[0])
            self.values = {key: value for key, value in self.values.items() if value}
        elif name == "register":
            self.timers.extend(timer for timer in rest[0] if timer not in self.timers)
            self.timers = list(dict.fromkeys(self.timers))
        elif name == "delete":
            self.timers = [timer for timer in self.timers if timer != tuple(rest)]
        elif name == "fire":
            fired = sorted((t for t in self.timers if t[0] <= rest[0]), key=lambda t: t[0])
            self.timers = [timer for timer in self.timers if timer[0] > rest[0]]
            return fired
        return []


def table_of(state: ShardState) -> ColumnTable:
    table: ColumnTable = state.table(COLUMNS, StateKind.COLUMN)
    table.declare("n", numpy.dtype("int64"), numpy.int64(0))
    return table


def apply(table: ColumnTable, operation: tuple[Any, ...]) -> list[tuple[int, str]]:
    name, *rest = operation
    fired: list[tuple[int, str]] = []
    if name.startswith("put"):
        for key, value in rest[0]:
            table.put("n", table.rows_of([key]), numpy.array([value]))
        if name == "put":
            table.accept_call()
        else:
            table.undo_call()
    elif name == "register":
        rows = table.rows_of([key for _, key in rest[0]])
        table.register(numpy.array([time_ms for time_ms, _ in rest[0]]), rows)
    elif name == "delete":
        (row,) = table.rows_of([rest[1]]).tolist()
        table.remove_timers({(rest[0], row)})
    else:
        times, rows = table.timers.due(rest[0])
        fired = list(zip(times.tolist(), table.keys_of(rows), strict=True))
        if fired:
            table.remove_fired(times, rows, len(times))
    return fired


def content(table: ColumnTable) -> tuple[Any, ...]:
    used = list(table._row_of)
    values = table.get("n", table.rows_of(used)).tolist() if used else []
    times, rows = table.timers.due(1 << 40)
    timers = list(zip(times.tolist(), table.keys_of(rows), strict=True))
    return {k: v for k, v in zip(used, values, strict=True) if v}, timers


@given(st.lists(st.tuples(st.lists(OPERATION, max_size=5), FATE), max_size=12))
@settings(max_examples=150, deadline=None)
def test_state_is_what_the_log_says_whatever_happens_to_workers(batches: list[Any]) -> None:
    model = Model()

    def apply_to(state: ShardState, operation: tuple[Any, ...]) -> None:
        if operation == END:
            table_of(state).release_rows()
        else:
            apply(table_of(state), operation)

    def check(state: ShardState) -> None:
        values, timers = content(table_of(state))
        assert values == model.values
        assert timers == sorted(model.timers, key=lambda timer: timer[0])

    ended = [([*operations, END], fate) for operations, fate in batches]
    run_batches(ended, model, apply_to, check, lambda: ShardState(0))


def test_rows_are_used_again_and_keys_without_content_take_none() -> None:
    state = ShardState(0)
    table = table_of(state)
    for start in range(0, 1000, 10):
        keys = [f"key-{number}" for number in range(start, start + 10)]
        rows = table.rows_of(keys)
        table.put("n", rows, numpy.ones(10, numpy.int64))
        table.accept_call()
        table.release_rows()
        table.put("n", rows, numpy.zeros(10, numpy.int64))
        table.accept_call()
        table.rows_of(keys)
        table.release_rows()
    assert state.is_empty()
    assert len(table._keys) == 10


def test_state_of_another_type_is_refused_with_its_name() -> None:
    table = table_of(ShardState(0))
    with pytest.raises(IncompatibleCheckpointError, match=r"'n' is stored as int64 .* as float64"):
        table.declare("n", numpy.dtype("float64"), numpy.float64(0))


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.text(max_size=5), st.integers(-(1 << 63), (1 << 63) - 1)), min_size=1),
    st.sampled_from([("f0",), ("f1",), (0, 1), ("f1", "f0")]),
)
def test_key_groups_of_columns_are_those_of_the_keys(records: list[Any], names: Any) -> None:
    columns = pyarrow.record_batch(
        {"f0": [text for text, _ in records], "f1": [number for _, number in records]}
    )
    selector = fields(*names)
    groups = key_groups_in(columns, selector, 128)
    assert groups is not None
    keys = keys_in(columns, selector)
    assert groups.tolist() == [key_group_of(key, 128) for key in keys]
    rows = [{"f0": text, "f1": number} for text, number in records]
    if isinstance(names[0], str):
        assert keys == [selector.get_key(row) for row in rows]
