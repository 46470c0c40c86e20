"""Windows give what a simple batch computation gives, for any order, cuts, parallelism (E22-E25)."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.common import Duration, Time, Types, WatermarkStrategy
from millpond.common.time import MIN_TIMESTAMP
from millpond.core.key_groups import key_group_of, subtask_of
from millpond.datastream import AggregateFunction, OutputTag, WindowFunction
from millpond.datastream.window import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from millpond.testing import CUT, KeyedHarness, MarkedSource, direct_environment

BOUND_MS = 20
RECORD = st.tuples(st.sampled_from("abc"), st.integers(0, 200), st.integers(1, 9))
LATE = OutputTag("late", Types.PICKLED_BYTE_ARRAY())


class Show(WindowFunction):
    def apply(self, key: Any, window: Any, inputs: Any) -> Any:
        return [(key, window.start, window.end, *inputs)]


class SumAndCountElements(WindowFunction):
    """Does on all elements what SumAndCount does one by one."""

    def apply(self, key: Any, window: Any, inputs: Any) -> Any:
        amounts = [record[2] for record in inputs]
        return [(key, window.start, window.end, (sum(amounts), len(amounts)))]


class SumAndCount(AggregateFunction):
    def create_accumulator(self) -> tuple[int, int]:
        return (0, 0)

    def add(self, value: Any, accumulator: tuple[int, int]) -> tuple[int, int]:
        return (accumulator[0] + value[2], accumulator[1] + 1)

    def get_result(self, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator

    def merge(self, acc_a: tuple[int, int], acc_b: tuple[int, int]) -> tuple[int, int]:
        return (acc_a[0] + acc_b[0], acc_a[1] + acc_b[1])


ASSIGNERS = {
    "tumbling": TumblingEventTimeWindows.of(Time.milliseconds(30), Time.milliseconds(7)),
    "sliding": SlidingEventTimeWindows.of(Time.milliseconds(30), Time.milliseconds(10)),
    "uneven": SlidingEventTimeWindows.of(Time.milliseconds(25), Time.milliseconds(10)),
    "gaps": SlidingEventTimeWindows.of(Time.milliseconds(10), Time.milliseconds(25)),
    "panes": SlidingEventTimeWindows.of(Time.milliseconds(50), Time.milliseconds(5)),
    "sessions": EventTimeSessionWindows.with_gap(Time.milliseconds(15)),
}


def windows_of(kind: str, time_ms: int) -> list[tuple[int, int]]:
    if kind == "tumbling":
        return [
            (start, start + 30) for start in range(-23, 400, 30) if start <= time_ms < start + 30
        ]
    size, slide = {"sliding": (30, 10), "uneven": (25, 10), "gaps": (10, 25), "panes": (50, 5)}[
        kind
    ]
    return [
        (start, start + size)
        for start in range(-100, 400, slide)
        if start <= time_ms < start + size
    ]


def expected(kind: str, records: list[Any], lateness: int) -> tuple[list[Any], list[Any]]:
    """(results, late records), computed record by record with plain dictionaries."""
    clock = MIN_TIMESTAMP
    open_windows: dict[tuple[str, int, int], tuple[int, int]] = {}
    fired: set[tuple[str, int, int]] = set()
    results: list[Any] = []
    late: list[Any] = []

    def advance(to: int) -> None:
        for (key, start, end), (total, count) in sorted(
            open_windows.items(), key=lambda w: w[0][2]
        ):
            if end - 1 <= to and (key, start, end) not in fired:
                fired.add((key, start, end))
                results.append((key, start, end, (total, count)))
        for window in [w for w in open_windows if w[2] - 1 + lateness <= to]:
            del open_windows[window]
            fired.discard(window)

    for key, time_ms, amount in records:
        if kind == "sessions":
            mine = [w for w in open_windows if w[0] == key]
            start, end, total, count = time_ms, time_ms + 15, amount, 1
            merged = []
            grown = True
            while grown:
                grown = False
                for window in mine:
                    if window not in merged and window[1] <= end and window[2] >= start:
                        merged.append(window)
                        start, end = min(start, window[1]), max(end, window[2])
                        total += open_windows[window][0]
                        count += open_windows[window][1]
                        grown = True
            if end - 1 + lateness <= clock:
                late.append((key, time_ms, amount))
            else:
                for window in merged:
                    del open_windows[window]
                    fired.discard(window)
                new = (key, start, end)
                open_windows[new] = (total, count)
                if end - 1 <= clock:
                    fired.add(new)
                    results.append((*new, (total, count)))
        else:
            kept = [w for w in windows_of(kind, time_ms) if w[1] - 1 + lateness > clock]
            if not kept and time_ms + lateness <= clock:
                late.append((key, time_ms, amount))
            for start, end in kept:
                window = (key, start, end)
                total, count = open_windows.get(window, (0, 0))
                open_windows[window] = (total + amount, count + 1)
                if end - 1 <= clock:
                    fired.add(window)
                    results.append((*window, open_windows[window]))
        if time_ms - BOUND_MS - 1 > clock:
            clock = time_ms - BOUND_MS - 1
            advance(clock)
    advance(10_000)
    return results, late


def run(
    kind: str,
    records: list[Any],
    parallelism: int,
    batch_records: int,
    lateness: int,
    max_parallelism: int = 128,
    keeps_elements: bool = False,
) -> tuple[list[Any], list[Any]]:
    environment = direct_environment(
        {
            "parallelism.default": parallelism,
            "millpond.batch.max-records": batch_records,
            "pipeline.max-parallelism": max_parallelism,
        }
    )
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(
        Duration.of_millis(BOUND_MS)
    ).with_timestamp_assigner(lambda record, _: record[1])
    windows = (
        environment.from_source(MarkedSource(records), strategy, "records")
        .key_by(lambda record: record[0])
        .window(ASSIGNERS[kind])
        .allowed_lateness(lateness)
        .side_output_late_data(LATE)
    )
    if keeps_elements:
        results = windows.apply(SumAndCountElements())
    else:
        results = windows.aggregate(SumAndCount(), Show())
    late = results.get_side_output(LATE).map(lambda record: ("late", record))
    found = list(results.map(lambda r: ("on time", r)).union(late).execute_and_collect())
    return (
        [value for what, value in found if what == "on time"],
        [value for what, value in found if what == "late"],
    )


@settings(max_examples=120, deadline=None)
@given(
    kind=st.sampled_from(list(ASSIGNERS)),
    records=st.lists(st.one_of(RECORD, RECORD, RECORD, st.just(CUT)), max_size=40),
    parallelism=st.integers(1, 3),
    batch_records=st.sampled_from([1, 5, 1000]),
    lateness=st.sampled_from([0, 12]),
    keeps_elements=st.booleans(),
)
def test_windows_give_what_a_simple_computation_gives(
    kind: str,
    records: list[Any],
    parallelism: int,
    batch_records: int,
    lateness: int,
    keeps_elements: bool,
) -> None:
    on_time, late = expected(kind, [r for r in records if r is not CUT], lateness)
    found_on_time, found_late = run(
        kind, records, parallelism, batch_records, lateness, keeps_elements=keeps_elements
    )
    assert sorted(found_on_time) == sorted(on_time)
    assert sorted(found_late) == sorted(late)


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(list(ASSIGNERS)),
    records=st.lists(st.one_of(RECORD, RECORD, RECORD, st.just(CUT)), max_size=40),
    batch_records=st.sampled_from([1, 3]),
    lateness=st.sampled_from([0, 12]),
    keeps_elements=st.booleans(),
)
def test_results_come_in_the_same_order_however_batches_are_cut(
    kind: str, records: list[Any], batch_records: int, lateness: int, keeps_elements: bool
) -> None:
    together = [record for record in records if record is not CUT]
    whole = run(kind, together, 1, 1000, lateness, 1, keeps_elements)
    assert run(kind, records, 1, batch_records, lateness, 1, keeps_elements) == whole


class Subtasks:
    """The window operator on several subtasks, which a restart may find changed in number."""

    def __init__(self, kind: str, parallelism: int, snapshot: Any, clock: int) -> None:
        self._parallelism = parallelism
        self._harnesses = [
            KeyedHarness(
                lambda stream: (
                    stream.key_by(lambda record: record[0])
                    .window(ASSIGNERS[kind])
                    .aggregate(SumAndCount(), Show())
                ),
                parallelism=parallelism,
                subtask=subtask,
                restore=snapshot,
            )
            for subtask in range(parallelism)
        ]
        for harness in self._harnesses:
            harness.watermark = clock

    def process(self, record: Any) -> None:
        key_group = key_group_of(record[0], 128)
        self._harnesses[subtask_of(key_group, self._parallelism, 128)].process_element(
            record, record[1]
        )

    def advance(self, clock: int) -> None:
        for harness in self._harnesses:
            harness.process_watermark(clock)

    def snapshot(self) -> Any:
        return {group: log for h in self._harnesses for group, log in h.snapshot().items()}

    def values(self) -> list[Any]:
        return [value for harness in self._harnesses for value in harness.values()]

    def is_empty(self) -> bool:
        return all(h.is_state_empty() and not h.event_time_timers() for h in self._harnesses)


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(list(ASSIGNERS)),
    records=st.lists(RECORD, max_size=30),
    restarts=st.dictionaries(st.integers(0, 30), st.integers(1, 4)),
)
def test_windows_survive_restarts_and_rescales_and_leave_nothing_behind(
    kind: str, records: list[Any], restarts: dict[int, int]
) -> None:
    clock = MIN_TIMESTAMP
    running = Subtasks(kind, 1, None, clock)
    results: list[Any] = []
    for number, record in enumerate(records):
        if number in restarts:
            results.extend(running.values())
            running = Subtasks(kind, restarts[number], running.snapshot(), clock)
        running.process(record)
        if record[1] - BOUND_MS - 1 > clock:
            clock = record[1] - BOUND_MS - 1
            running.advance(clock)
    running.advance(10_000)
    results.extend(running.values())
    assert sorted(results) == sorted(expected(kind, records, 0)[0])
    assert running.is_empty()
