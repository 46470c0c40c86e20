"""A savepoint is taken over by any backend, at any parallelism, by a program that has changed (E34, E45-E48,
C40, C41)."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from millpond.common import Types
from millpond.common.types import Row
from millpond.datastream import DataStream, KeyedProcessFunction, RuntimeContext
from millpond.datastream.state import ListStateDescriptor, ValueStateDescriptor
from millpond.errors import MillpondError
from millpond.savepoint import Savepoint
from millpond.savepoint.reader import SavepointReader
from millpond.state.ordered import tables as stored_tables
from millpond.state.ordered import timers as stored_timers
from millpond.testing import CUT
from tests.unit.savepoint.test_savepoint import go_on, remember, run_and_save

BACKENDS = ["hashmap", "rocksdb", "memory"]
INT, LONG, DOUBLE, STRING = Types.INT(), Types.LONG(), Types.DOUBLE(), Types.STRING()
KEYS = [f"user {number}" for number in range(40)]
PUTS = [(key, "put", number) for number, key in enumerate(KEYS)]
READS = [(key, "read", number) for number, key in enumerate(KEYS)]


def row(**types: Any) -> Any:
    return Types.ROW_NAMED(list(types), list(types.values()))


@dataclass
class Program:
    """What a version of the program declares. `refused`: what the error names if it cannot go on."""

    seen: Any = field(default_factory=lambda: row(ad=STRING, count=INT))
    number: Any = INT
    has_list: bool = False
    number_is_list: bool = False
    has_second: bool = True
    allow_non_restored: bool = False
    refused: tuple[str, ...] = ()

    def seen_as_read(self, number: int) -> Row:
        fields = {"ad": f"ad {number}", "count": number, "price": None}
        return Row(**{name: fields[name] for name in self.seen.get_field_names()})


PROGRAMS = {
    "same": Program(),
    "new state": Program(has_list=True),
    "operator removed": Program(has_second=False, refused=("second", "allow-non-restored-state")),
    "operator removed, allowed": Program(has_second=False, allow_non_restored=True),
    "field added": Program(seen=row(ad=STRING, count=INT, price=DOUBLE)),
    "field removed": Program(seen=row(ad=STRING)),
    "int to long": Program(number=LONG),
    "int to string": Program(number=STRING, refused=("first", "number", "int", "string")),
    "value to list": Program(
        number_is_list=True, refused=("first", "number", "value state", "list state")
    ),
}


class Keep(KeyedProcessFunction):
    def __init__(self, program: Program) -> None:
        self._program = program

    def open(self, runtime_context: RuntimeContext) -> None:
        program = self._program
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", program.seen))
        if program.number_is_list:
            self.numbers = runtime_context.get_list_state(
                ListStateDescriptor("number", program.number)
            )
        else:
            self.number = runtime_context.get_state(ValueStateDescriptor("number", program.number))
        if program.has_list:
            self.more = runtime_context.get_list_state(ListStateDescriptor("more", STRING))

    def process_element(self, value: tuple[str, str, int], ctx: Any) -> Any:
        key, what, number = value
        if what == "put":
            self.seen.update(Row(ad=f"ad {number}", count=number))
            self.number.update(number)
        else:
            more = []
            if self._program.has_list:
                self.more.add("new")
                more = list(self.more.get())
            yield (key, self.seen.value(), self.number.value(), more)


class Second(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.keys = runtime_context.get_list_state(ListStateDescriptor("keys", STRING))

    def process_element(self, value: tuple[str, str, int], ctx: Any) -> Any:
        if value[1] == "put":
            self.keys.add(value[0])
        else:
            yield ("second", list(self.keys.get()))


def build(program: Program) -> Any:
    def built(stream: DataStream) -> DataStream:
        keyed = stream.key_by(lambda record: record[0])
        results = keyed.process(Keep(program)).uid("first")
        return (
            results.union(keyed.process(Second()).uid("second")) if program.has_second else results
        )

    return built


@pytest.fixture(scope="module")
def savepoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """One that each backend has written, at parallelism 4."""
    return {
        backend: run_and_save(
            build(Program()),
            [*PUTS[:20], CUT, *PUTS[20:], CUT, *READS],
            tmp_path_factory.mktemp(backend),
            **{"state.backend.type": backend, "parallelism.default": 4},
        )[1]
        for backend in BACKENDS
    }


@pytest.mark.parametrize("change", PROGRAMS)
@pytest.mark.parametrize("parallelism", [4, 8, 2])
@pytest.mark.parametrize("reader", BACKENDS)
@pytest.mark.parametrize("writer", BACKENDS)
def test_savepoint_is_taken_over(
    savepoints: dict[str, str], writer: str, reader: str, parallelism: int, change: str
) -> None:
    program = PROGRAMS[change]
    settings = {
        "state.backend.type": reader,
        "parallelism.default": parallelism,
        "execution.state-recovery.ignore-unclaimed-state": program.allow_non_restored,
    }
    elements = [*PUTS[:20], CUT, *PUTS[20:], CUT, *READS]
    if program.refused:
        with pytest.raises(MillpondError) as refusal:
            go_on(build(program), elements, savepoints[writer], **settings)
        for word in program.refused:
            assert word in str(refusal.value)
        return
    results = go_on(build(program), elements, savepoints[writer], **settings)
    more = ["new"] if program.has_list else []
    expected = [(key, program.seen_as_read(n), n, more) for n, key in enumerate(KEYS)]
    second = [("second", [key]) for key in KEYS] if program.has_second else []
    assert sorted(results, key=repr) == sorted([*expected, *second], key=repr)


def test_files_of_rocksdb_are_gone_when_the_job_is(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "savepoints").mkdir()
    run_and_save(
        build(Program()), [*PUTS, CUT, *READS], tmp_path / "savepoints",
        **{"state.backend.type": "rocksdb"},
    )  # fmt: skip
    assert [path.name for path in tmp_path.iterdir()] == ["savepoints"]


def test_savepoint_of_a_large_key_group_is_written_and_read_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (stored_tables, stored_timers):
        monkeypatch.setattr(module, "ENTRIES_AT_ONCE", 3)
    more = [(f"user {number % 3}", f"name {number}", number) for number in range(30)]
    settings = {"state.backend.type": "rocksdb", "pipeline.max-parallelism": 2}
    elements = [*more[:20], CUT, *more[20:], CUT, ("user 0", "last", 40)]
    _, path = run_and_save(remember, elements, tmp_path, **settings)
    manifest = SavepointReader(path).manifest
    (operator,) = manifest.operators
    states = {state.name: state for state in operator.states}
    assert len(states["seen"].file.groups) > len(set(states["seen"].file.groups))
    assert (states["seen"].rows, states["seen"].keys) == (30, 3)
    assert sorted(count for _, count in states["seen"].biggest) == [10, 10, 10]
    assert {row["time"] for row in Savepoint.load(path).timers("remember")} >= {1029}
    for reader in BACKENDS:
        after = go_on(remember, elements, path, **{**settings, "state.backend.type": reader})
        (last,) = [found for found in after if found[:2] == ("user 0", 11)]
        assert sorted(last[2]) == sorted(
            ["last", *(name for user, name, _ in more if user == "user 0")]
        )
        assert len(last[3]) == 11
        assert sum(found[0] == "timer" for found in after) == 31
