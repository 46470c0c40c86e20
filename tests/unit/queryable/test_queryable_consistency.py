"""Look-ups see what committed batches left, exactly that, whatever happens meanwhile (O6)."""

from __future__ import annotations

import copy
import sys
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.engine import kept_states
from millpond.errors import UserFunctionError
from millpond.queryable.protocol import Status
from tests.unit.queryable.queryable_slot import PROBES, HandSlot

BACKENDS = ["hashmap", "rocksdb", "tests.sqlite_backend.SqliteBackend"]
KEYS = ["a", "b", "c", "d"]
ENTRIES = ["x", "y", "z"]
_KEY, _NUMBER, _ENTRY = st.sampled_from(KEYS), st.integers(0, 9), st.sampled_from(ENTRIES)
RECORD = st.one_of(
    st.tuples(_KEY, st.just("value.update"), _NUMBER),
    st.tuples(_KEY, st.just("value.clear")),
    st.tuples(_KEY, st.just("list.add"), _NUMBER),
    st.tuples(_KEY, st.just("list.update"), st.lists(_NUMBER, max_size=3)),
    st.tuples(_KEY, st.just("list.clear")),
    st.tuples(_KEY, st.just("map.put"), _ENTRY, _NUMBER),
    st.tuples(_KEY, st.just("map.remove"), _ENTRY),
    st.tuples(_KEY, st.just("map.clear")),
    st.tuples(_KEY, st.just("reducing.add"), _NUMBER),
    st.tuples(_KEY, st.just("reducing.clear")),
    st.tuples(_KEY, st.just("aggregating.add"), _NUMBER),
)
FATE = st.sampled_from(["commit", "commit", "lost", "fail", "new slot", "wake"])


class Model:
    """state -> key -> content, with plain Python."""

    def __init__(self) -> None:
        self.content: dict[str, dict[str, Any]] = {
            kind: {} for kind in ("value", "list", "map", "reducing", "aggregating")
        }

    def apply(self, record: tuple[Any, ...]) -> None:
        key, what, *arguments = record
        state, _, method = what.partition(".")
        own = self.content[state]
        if method == "clear":
            own.pop(key, None)
        elif state == "value":
            own[key] = arguments[0]
        elif state == "list":
            own[key] = arguments[0] if method == "update" else [*own.get(key, []), arguments[0]]
        elif state == "map" and method == "put":
            own[key] = {**own.get(key, {}), arguments[0]: arguments[1]}
        elif state == "map":
            own[key] = {e: v for e, v in own.get(key, {}).items() if e != arguments[0]}
        elif state == "reducing":
            own[key] = own.get(key, 0) + arguments[0]
        else:
            own[key] = [*own.get(key, []), arguments[0]]

    def expected(self, state: str, key: str) -> Any:
        content = self.content[state].get(key)
        if content is None or content in ([], {}):
            return [Status.NOT_FOUND, None]
        if state == "aggregating":
            content = sum(content) / len(content)
        return [Status.FOUND, content]

    def expected_entry(self, key: str, entry: str) -> Any:
        value = self.content["map"].get(key, {}).get(entry)
        return [Status.NOT_FOUND, None] if value is None else [Status.FOUND, value]


class Checker:
    """Compares look-ups with the model of the last commit, from within batches, too."""

    def __init__(self, slot: HandSlot) -> None:
        self.slot = slot
        self.committed = Model()
        self.answered = 0
        self.is_loaded = False
        self.may_wait = False  # early commits make who asks wait for the batch

    def check(self) -> None:
        for state in self.committed.content:
            found = self.slot.get(state, *KEYS)
            for key, result in zip(KEYS, found, strict=True):
                self._compare(result, self.committed.expected(state, key), f"{state} of {key}")
        for entry in ENTRIES:
            for key, result in zip(KEYS, self.slot.get("map", *KEYS, entry=entry), strict=True):
                self._compare(result, self.committed.expected_entry(key, entry), f"{key}.{entry}")

    def _compare(self, result: Any, expected: Any, what: str) -> None:
        if result[0] is Status.RETRY and (self.may_wait or not self.is_loaded):
            return
        assert result == expected, what
        self.answered += 1


def run_history(backend: str, batches: list[tuple[list[Any], str]], may_wait: bool) -> Checker:
    slot = HandSlot(settings={"state.backend.type": backend})
    checker = Checker(slot)
    checker.may_wait = may_wait
    PROBES.append(checker.check)
    try:
        _run(slot, checker, batches)
    finally:
        PROBES.clear()
        slot.close()
    return checker


def _run(slot: HandSlot, checker: Checker, batches: list[tuple[list[Any], str]]) -> None:
    for epoch, (records, fate) in enumerate(batches):
        if fate == "new slot":
            slot.host.close()
            slot.start()
            # Nothing is said about a key before its key group is loaded, nor while others load.
            checker.is_loaded = False
            if epoch:
                assert slot.get("value", *KEYS) == [[Status.UNKNOWN_STATE, *_unknown()]] * 4
        if fate == "wake":
            records = []
        if fate == "fail" and records:
            with pytest.raises(UserFunctionError):
                slot.run(epoch, [*records[: len(records) // 2], (records[0][0], "fail")])
            slot.roll_back()
            checker.check()
        if fate == "lost":
            slot.run(epoch, records)
            checker.check()
            slot.roll_back()
            checker.check()
        slot.run(epoch, records)
        checker.is_loaded = True
        checker.check()  # done, but not committed
        after = copy.deepcopy(checker.committed)
        for record in records:
            after.apply(record)
        slot.commit(epoch)
        checker.committed, may_wait, checker.may_wait = after, checker.may_wait, False
        checker.check()
        checker.may_wait = may_wait


def _unknown() -> list[str]:
    return ["there is no queryable state 'my value'; there are: none"]


@pytest.mark.parametrize("backend", BACKENDS, ids=["hashmap", "rocksdb", "own"])
@settings(max_examples=40, deadline=None)
@given(batches=st.lists(st.tuples(st.lists(RECORD, max_size=8), FATE), min_size=1, max_size=8))
def test_look_ups_see_exactly_what_committed_batches_left(
    backend: str, batches: list[tuple[list[Any], str]]
) -> None:
    """O6: also while a batch runs, after one has failed or was lost, and in a new slot."""
    checker = run_history(backend, batches, may_wait=False)
    assert checker.answered


@settings(max_examples=30, deadline=None)
@given(batches=st.lists(st.tuples(st.lists(RECORD, max_size=8), FATE), min_size=1, max_size=8))
def test_changes_that_are_committed_early_are_not_seen_early(
    batches: list[tuple[list[Any], str]],
) -> None:
    """If too many changes wait, state is committed before its batch: then look-ups wait for the batch."""
    limits = kept_states._MAX_WAITING, kept_states._MAX_WAITING_QUERYABLE
    kept_states._MAX_WAITING = kept_states._MAX_WAITING_QUERYABLE = 2
    try:
        run_history("rocksdb", batches, may_wait=True)
    finally:
        kept_states._MAX_WAITING, kept_states._MAX_WAITING_QUERYABLE = limits


_ROUNDS = 10  # records of each key in a batch: what is seen within one is no multiple of it


@pytest.mark.parametrize("backend", BACKENDS, ids=["hashmap", "rocksdb", "own"])
def test_threads_that_read_while_batches_run_never_see_half_a_batch(backend: str) -> None:
    """O6: every answer is of one batch, and it is the one that the answer names. All keys of a message are
    of the same."""
    slot = HandSlot(settings={"state.backend.type": backend}, lock=threading.Lock())
    batch = [
        record
        for _ in range(_ROUNDS)
        for key in KEYS
        for record in (
            (key, "reducing.add", 1),
            (key, "list.add", 1),
            (key, "map.put", "x", -1),
            (key, "map.remove", "x"),
        )
    ]
    slot.run(0, batch)
    slot.commit(0)
    problems: list[str] = []
    counts = [0, 0]
    is_over = threading.Event()

    def read(number: int) -> None:
        answers = slot.new_answers()
        while not is_over.is_set():
            for state, expected in (
                ("my reducing", lambda batches: _ROUNDS * batches),
                ("my list", lambda batches: [1] * (_ROUNDS * batches)),
                ("my map", lambda batches: {"e": batches - 1}),
            ):
                answer = answers.get({"state": state, "keys": KEYS})
                for key, (status, value) in zip(KEYS, answer["results"], strict=True):
                    if status == Status.RETRY:
                        continue
                    counts[number] += 1
                    batches = answer["epoch"] + 1
                    if batches > 1 and (status, value) != (Status.FOUND, expected(batches)):
                        problems.append(f"{state} of {key} at {answer['epoch']}: {status} {value}")

    threads = [threading.Thread(target=read, args=(number,)) for number in range(2)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        epoch = 0
        while epoch < 30 or (min(counts) < 200 and epoch < 300):
            epoch += 1
            slot.run(epoch, [*batch, *((key, "map.put", "e", epoch) for key in KEYS)])
            if epoch % 3 == 0:  # lost, and run again
                slot.roll_back()
                slot.run(epoch, [*batch, *((key, "map.put", "e", epoch) for key in KEYS)])
            slot.commit(epoch)
            if problems:
                break
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(before)
        slot.close()
    assert problems == []
    assert min(counts) >= 200, "hardly anything was answered"
