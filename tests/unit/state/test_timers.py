"""Timers against an obvious model: a list in the order of registration."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.state.timers import TimerQueue

SPAN = 1 << 20
TIMES = st.one_of(
    st.integers(-3, 6), st.integers(-2, 4).map(lambda n: n * SPAN // 2), st.just(1 << 62)
)
KEYS = st.sampled_from("abc")
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("register"), TIMES, KEYS),
        st.tuples(st.just("delete"), TIMES, KEYS),
        st.tuples(st.just("fire"), TIMES),
        st.tuples(st.just("restore")),
        st.tuples(st.just("next")),
    ),
    max_size=40,
)


def restored(queue: TimerQueue) -> TimerQueue:
    copy = TimerQueue()
    copy.apply(queue.snapshot().encode())
    return copy


@settings(max_examples=1000, deadline=None)
@given(OPERATIONS)
def test_timers_fire_by_time_and_then_in_the_order_of_registration(
    operations: list[tuple[object, ...]],
) -> None:
    """C12, C13, C52: a set; the earliest first; equal times in order, also after a restore."""
    queue, model = TimerQueue(), []
    for name, *rest in operations:
        if name == "register":
            queue.register(*rest)
            if tuple(rest) not in model:
                model.append(tuple(rest))
        elif name == "delete":
            queue.delete(*rest)
            model = [timer for timer in model if timer != tuple(rest)]
        elif name == "fire":
            fired = []
            while (timer := queue.pop_due(rest[0])) is not None:
                fired.append(timer[:2])
            due = sorted((t for t in model if t[0] <= rest[0]), key=lambda timer: timer[0])
            assert fired == due
            model = [timer for timer in model if timer not in due]
        elif name == "restore":
            queue = restored(queue)
        else:
            assert queue.next_time_ms() == min((t[0] for t in model), default=None)
        assert len(queue) == len(model)
        assert queue.next_ms <= min((t[0] for t in model), default=1 << 63)


def test_deleting_and_setting_a_timer_again_and_again_keeps_it_small() -> None:
    """What a session window does with every record."""
    queue = TimerQueue()
    queue.register(0, "a")
    assert queue.pop_due(0) is not None
    for time_ms in range(1, 5000):
        queue.register(time_ms, "a")
        queue.delete(time_ms - 1, "a")
    assert len(queue) == 1
    assert len(queue._late) < 200
