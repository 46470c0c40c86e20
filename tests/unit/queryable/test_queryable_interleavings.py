"""Reading state while another thread changes it: every way in which two steps can meet (O6).

Threads take turns between two instructions of the interpreter. Here one thread plays both: it traces one side
and, after each instruction in turn, lets the other side do all it has to do.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from millpond.common import Types
from millpond.datastream.state import MapStateDescriptor, StateKind
from millpond.queryable.protocol import Status
from millpond.state.handles import CurrentKey, WatchedMapStateHandle
from millpond.state.hash.backend import HashShard
from millpond.state.shard_state import ShardState
from tests.unit.queryable.queryable_slot import HandSlot

_TRACED = ("tables", "lists", "maps", "handles", "shard_state", "change_log")  # of state/
_TRACED += ("state_views", "host", "answers")


class Interrupted:
    """Runs `main`, and `other` within it: after instruction `number`, or after every one if it is None."""

    def __init__(
        self, number: int | None, other: Callable[[], None], traced: tuple[str, ...] = _TRACED
    ) -> None:
        self._number = number
        self._other = other
        self._traced = traced
        self.count = 0

    def run(self, main: Callable[[], Any]) -> Any:
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            return main()
        finally:
            sys.settrace(before)

    def _trace(self, frame: Any, event: str, _: Any) -> Any:
        name = frame.f_code.co_filename.rpartition("/")[2].removesuffix(".py")
        if name not in self._traced:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            self.count += 1
            if self._number in (None, self.count):
                sys.settrace(None)
                self._other()
                sys.settrace(self._trace)
        return self._trace


def every_way(
    begin: Callable[[], tuple[Callable[[], Any], Callable[[], None]]], expected: Any
) -> int:
    """`begin` makes (read, change). Whatever instruction of one the other comes between, what is read is as
    expected. How many ways there are."""
    number = ways = 0
    while True:  # the change comes while it is read
        number += 1
        read, change = begin()
        reading = Interrupted(number, change)
        assert reading.run(read) == expected, f"changed at instruction {number}"
        ways += 1
        if reading.count < number:
            break
    read, change = begin()  # it is read while it is changed

    def check() -> None:
        assert read() == expected

    changing = Interrupted(None, check)
    changing.run(change)
    assert changing.count
    return ways + changing.count


CHANGES: dict[str, list[Callable[[Any], None]]] = {
    "value": [
        lambda table: table.set("k", 2),
        lambda table: table.remove("k"),
        lambda table: (table.remove("k"), table.set("k", 3)),
        lambda table: table.set("new", 2),
    ],
    "list": [
        lambda table: table.extend("k", [2, 3]),
        lambda table: table.replace("k", [7]),
        lambda table: table.replace("k", []),
        lambda table: (table.extend("k", [2]), table.replace("k", [3]), table.extend("k", [4])),
        lambda table: table.extend("new", [2]),
    ],
    "map": [
        lambda table: table.put("k", "e", 2),
        lambda table: table.put("k", "other", 2),
        lambda table: table.remove("k", "e"),
        lambda table: (table.remove("k", "e"), table.put("k", "e", 3), table.put("k", "e", 4)),
        lambda table: (table.clear("k"), table.put("k", "other", 1)),
        lambda table: table.put("new", "e", 2),
    ],
}
CONTENT: dict[str, Any] = {"value": 1, "list": [1, 1], "map": {"e": 1, "f": 1}}


@pytest.mark.parametrize("kind", CHANGES)
def test_what_was_committed_is_read_while_a_table_changes(kind: str) -> None:
    for change in CHANGES[kind]:
        for key in ("k", "new"):

            def begin(key: str = key, change: Any = change) -> Any:
                table = HashShard().table(kind, StateKind(kind))
                table.watch()
                if kind == "value":
                    table.set("k", 1)
                elif kind == "list":
                    table.extend("k", [1, 1])
                else:
                    table.put("k", "e", 1)
                    table.put("k", "f", 1)
                table.commit()
                found: Callable[[], Any] = lambda: table.look_up(key, True)  # noqa: E731
                return lambda: _plain(found()), lambda: change(table)

            assert every_way(begin, CONTENT[kind] if key == "k" else None) > 10


@pytest.mark.parametrize("whole", [True, False])
def test_what_was_committed_is_read_while_a_function_changes_a_map(whole: bool) -> None:
    """Functions change maps in memory without the table's methods."""
    descriptor = MapStateDescriptor("map", Types.STRING(), Types.LONG())
    descriptor.set_queryable("map")
    changes: list[Callable[[Any], None]] = [
        lambda handle: handle.put("e", 2),
        lambda handle: handle.remove("e"),
        lambda handle: (handle.remove("e"), handle.put("e", 2), handle.remove("e")),
        lambda handle: handle.clear(),
        lambda handle: (handle.put("new", 1), handle.clear(), handle.put("e", 2)),
    ]
    for change in changes:

        def begin(change: Any = change) -> Any:
            current, state = CurrentKey(), ShardState(0)
            handle = WatchedMapStateHandle(descriptor, current)
            handle.bind(state)
            current.key = "k"
            handle.put_all({"e": 1, "f": 1})
            state.commit()
            table: Any = state.tables["map"]
            if whole:
                return lambda: _plain(table.look_up("k", True)), lambda: change(handle)
            return lambda: table.look_up_entry("k", "e", True), lambda: change(handle)

        every_way(begin, {"e": 1, "f": 1} if whole else 1)


def _plain(found: Any) -> Any:
    return found if isinstance(found, (int, list, dict)) else None


def batch(epoch: int) -> list[Any]:
    """After it, all states of a key say which batch it was."""
    return [
        record
        for key in ("a", "b")
        for record in (
            (key, "value.update", -1),
            (key, "map.put", "other", -1),
            (key, "value.update", epoch),
            (key, "list.add", epoch),
            (key, "map.remove", "other"),
            (key, "map.put", "e", epoch),
        )
    ]


def run_all(slot: HandSlot, epochs: range, commit: bool) -> None:
    for epoch in epochs:
        slot.run(epoch, batch(epoch))
        if commit:
            slot.commit(epoch)


def check(slot: HandSlot, state: str, least: int) -> str | None:
    """What is wrong with a look-up; it may say that it must wait."""
    answer = slot.answers.get({"state": f"my {state}", "keys": ["a"]})
    epoch = answer["epoch"]
    right = {"value": epoch, "list": list(range(epoch + 1)), "map": {"e": epoch}}[state]
    for status, what in answer["results"]:
        if status != Status.RETRY and (status != Status.FOUND or what != right or epoch < least):
            return f"{Status(status).name} {what} at {epoch}"
    return None


@pytest.mark.parametrize("state", ["value", "list", "map"])
def test_batches_that_come_while_state_is_read_do_not_matter(state: str) -> None:
    """One batch or two, committed or not, at any moment of a look-up."""
    number, last = 0, False
    actions: list[Callable[[HandSlot], None]] = [
        lambda slot: run_all(slot, range(3, 4), commit=False),
        lambda slot: run_all(slot, range(3, 4), commit=True),
        lambda slot: run_all(slot, range(3, 5), commit=True),
        lambda slot: (
            run_all(slot, range(3, 4), False),
            slot.roll_back(),
            run_all(slot, range(3, 4), True),
        ),
    ]
    for action in actions:
        number, last = 0, False
        while not last:
            number += 1
            slot = HandSlot()
            run_all(slot, range(3), commit=True)
            problems: list[Any] = []
            interrupt: Callable[[], None] = lambda own=slot, do=action: do(own)  # type: ignore[misc] # noqa: E731
            reading = Interrupted(number, interrupt, ("state_views", "tables"))
            reading.run(lambda own=slot, said=problems: said.append(check(own, state, 2)))
            assert problems == [None], f"at instruction {number}"
            last = reading.count < number
            slot.close()


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_state_can_be_read_after_every_instruction_of_a_batch(backend: str) -> None:
    slot = HandSlot(settings={"state.backend.type": backend})
    run_all(slot, range(2), commit=True)
    problems: list[str] = []
    answered = [0]

    def look() -> None:
        for state in ("value", "list", "map"):
            problem = check(slot, state, slot.committed)
            answered[0] += 1
            if problem is not None:
                problems.append(problem)

    running = Interrupted(None, look)
    running.run(lambda: slot.run(2, batch(2)))
    slot.roll_back()
    running.run(lambda: slot.run(2, batch(2)))
    slot.commit(2)
    running.run(lambda: slot.run(3, batch(3)))
    slot.close()
    assert problems == []
    assert answered[0] > 1000
