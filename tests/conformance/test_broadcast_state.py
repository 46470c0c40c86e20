"""C38, C39, E32: broadcast state."""

from __future__ import annotations

from typing import Any

import pytest

from millpond.common import Time, Types, WatermarkStrategy
from millpond.core.key_groups import key_group_of, subtask_of
from millpond.datastream import (
    BroadcastProcessFunction,
    DataStream,
    EventTimeHorizonListener,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    RuntimeContext,
)
from millpond.datastream.state import (
    MapStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from millpond.errors import ProgramError, UserFunctionError
from millpond.testing import CUT, Harness, KeyedHarness, MarkedSource, direct_environment

RULES = MapStateDescriptor("rules", Types.STRING(), Types.INT())
COUNT = ValueStateDescriptor("count", Types.INT())


class Cap(KeyedBroadcastProcessFunction):
    """Counts per user and tells when the limit that the rules give is reached; a new rule is applied to
    those who are there."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(COUNT)

    def process_element(self, value: Any, ctx: Any) -> Any:
        limit = ctx.get_broadcast_state(RULES).get("limit")
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        if limit is not None and count == limit:
            yield ("reached", ctx.get_current_key(), count)
        if value[1] == "timer":
            ctx.timer_service().register_event_time_timer(100)

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        rules = ctx.get_broadcast_state(RULES)
        name, limit = value
        if limit is None:
            rules.remove(name)
            return
        rules.put(name, limit)
        above: list[Any] = []
        ctx.apply_to_keyed_state(
            COUNT,
            lambda key, state: above.append((key, state.value())),
        )
        for key, count in above:
            if count >= limit:
                yield ("above", key, count)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        limit = ctx.get_broadcast_state(RULES).get("limit")
        yield ("timer", ctx.get_current_key(), timestamp, limit)


def cap(views: DataStream, rules: DataStream) -> DataStream:
    return views.key_by(lambda view: view[0]).connect(rules.broadcast(RULES)).process(Cap())


def harness(**settings: Any) -> KeyedHarness:
    return KeyedHarness(cap, inputs=2, **settings)


def test_records_see_what_was_broadcast_before_them() -> None:
    job = harness()
    job.process_element(("ann", ""))
    job.process_element(("limit", 2), input=1)
    job.process_element(("ann", ""))
    job.process_element(("bob", ""))
    job.process_element(("limit", 3), input=1)
    job.process_element(("ann", ""))
    assert job.values() == [("reached", "ann", 2), ("reached", "ann", 3)]


def test_apply_to_keyed_state_meets_every_key_once() -> None:
    job = harness()
    for user in ("ann", "bob", "cid", "ann", "cid", "cid"):
        job.process_element((user, ""))
    job.process_element(("limit", 2), input=1)
    assert sorted(job.values()) == [("above", "ann", 2), ("above", "cid", 3)]


def test_timers_belong_to_records_and_see_broadcast_state() -> None:
    job = harness()
    job.process_element(("ann", "timer"))
    job.process_element(("limit", 7), input=1)
    job.process_watermark(100)
    assert ("timer", "ann", 100, 7) in job.values()


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_broadcast_state_survives_restarts_and_rescales(parallelism: int) -> None:
    """C38: every subtask has it, however many there are."""
    first = harness()
    first.process_element(("limit", 2), input=1)
    first.process_element(("gone", 5), input=1)
    first.process_element(("gone", None), input=1)
    snapshot = first.snapshot()
    for user in ("ann", "bob", "cid", "dan"):
        subtask = subtask_of(key_group_of(user, 128), parallelism, 128)
        job = harness(parallelism=parallelism, subtask=subtask, restore=snapshot)
        job.process_element((user, ""))
        job.process_element((user, ""))
        assert job.values() == [("reached", user, 2)]


class _Wrong(Cap):
    def __init__(self, element: Any = None, broadcast: Any = None) -> None:
        self._element = element or (lambda function, ctx: None)
        self._broadcast = broadcast or (lambda function, ctx: None)

    def process_element(self, value: Any, ctx: Any) -> Any:
        self._element(self, ctx)

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        self._broadcast(self, ctx)


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state.put("a", 1),
        lambda state: state.put_all({"a": 1}),
        lambda state: state.remove("a"),
        lambda state: state.clear(),
        lambda state: state.__setitem__("a", 1),
    ],
)
def test_the_other_side_only_reads(change: Any) -> None:
    """C39."""
    wrong = _Wrong(element=lambda _, ctx: change(ctx.get_broadcast_state(RULES)))
    job = KeyedHarness(
        lambda a, b: a.key_by(lambda v: v[0]).connect(b.broadcast(RULES)).process(wrong), inputs=2
    )
    with pytest.raises(UserFunctionError, match="'rules' is read-only here"):
        job.process_element(("ann", ""))


@pytest.mark.parametrize(
    ("reach", "message"),
    [
        (lambda function, ctx: function.count.value(), "has no key"),
        (lambda function, ctx: function.count.update(1), "has no key"),
        (lambda function, ctx: ctx.timer_service(), "cannot set timers"),
        (
            lambda function, ctx: ctx.get_broadcast_state(
                MapStateDescriptor("other", Types.STRING(), Types.INT())
            ),
            "'other', which was not given to broadcast",
        ),
        (
            lambda function, ctx: ctx.get_broadcast_state(RULES).put("limit", "many"),
            "broadcast state 'rules'",
        ),
    ],
)
def test_a_broadcast_record_has_no_key(reach: Any, message: str) -> None:
    """C39."""
    wrong = _Wrong(broadcast=reach)
    job = KeyedHarness(
        lambda a, b: a.key_by(lambda v: v[0]).connect(b.broadcast(RULES)).process(wrong), inputs=2
    )
    job.process_element(("ann", ""))
    with pytest.raises(UserFunctionError, match=message):
        job.process_element(("limit", 1), input=1)


class Rename(BroadcastProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        names = ctx.get_broadcast_state(RULES)
        yield (value, names[value], sorted(names))

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        ctx.get_broadcast_state(RULES)[value[0]] = value[1]


def test_stream_without_a_key_has_broadcast_state_that_survives() -> None:
    def make(**settings: Any) -> Harness:
        return Harness(
            lambda a, b: a.connect(b.broadcast(RULES)).process(Rename()), inputs=2, **settings
        )

    job = make()
    job.process_element("one")
    job.process_element(("one", 1), input=1)
    job.process_element("one")
    again = make(restore=job.snapshot())
    again.process_element("one")
    assert job.values() + again.values() == [
        ("one", None, []),
        ("one", 1, ["one"]),
        ("one", 1, ["one"]),
    ]


def test_at_the_same_instant_broadcast_records_come_first() -> None:
    environment = direct_environment({"parallelism.default": 2})
    views = environment.from_collection([(user, "") for user in ("ann", "bob", "ann")])
    rules = environment.from_collection([("limit", 2)])
    found = list(cap(views, rules).execute_and_collect())
    assert found == [("reached", "ann", 2)]


def test_two_states_may_be_broadcast() -> None:
    names = MapStateDescriptor("names", Types.STRING(), Types.STRING())

    class Two(BroadcastProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Any:
            yield (ctx.get_broadcast_state(names).get(value), ctx.get_broadcast_state(RULES)[value])

        def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
            ctx.get_broadcast_state(names).put(value, value.upper())
            ctx.get_broadcast_state(RULES).put(value, len(value))

    environment = direct_environment()
    words = environment.from_source(MarkedSource(["a", "bb"]), _no_watermarks(), "words")
    sent = environment.from_source(MarkedSource(["a", "bb"]), _no_watermarks(), "sent")
    results = words.connect(sent.broadcast(names, RULES)).process(Two())
    assert list(results.execute_and_collect()) == [("A", 1), ("BB", 2)]


def _no_watermarks() -> Any:
    return WatermarkStrategy.no_watermarks()


def test_wrong_programs_are_refused() -> None:
    environment = direct_environment()
    stream = environment.from_collection([1])
    with pytest.raises(TypeError, match="takes MapStateDescriptors, not ValueStateDescriptor"):
        stream.broadcast(COUNT)  # type: ignore[call-overload]
    with pytest.raises(ProgramError, match="same name"):
        stream.broadcast(RULES, RULES)
    timed = MapStateDescriptor("timed", Types.STRING(), Types.INT())
    timed.enable_time_to_live(StateTtlConfig.new_builder(Time.seconds(1)).build())
    with pytest.raises(ProgramError, match="'timed' cannot have a time to live"):
        stream.broadcast(timed)
    connected = stream.key_by(lambda n: n).connect(stream.broadcast(RULES))
    with pytest.raises(TypeError, match="takes a KeyedBroadcastProcessFunction, not Rename"):
        connected.process(Rename())
    with pytest.raises(TypeError, match="takes a BroadcastProcessFunction, not Cap"):
        stream.connect(stream.broadcast(RULES)).process(Cap())


def test_functions_have_type_parameters_as_in_pyflink() -> None:
    class Typed(KeyedBroadcastProcessFunction[str, Any, Any, str]):
        def process_element(self, value: Any, ctx: Any) -> Any:
            return None

        def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
            return None

    stream = direct_environment().from_collection([1])
    connected = stream.key_by(lambda n: n).connect(stream.broadcast(RULES))
    connected.process(Typed())
    assert connected.broadcast_state_descriptors == (RULES,)


def test_function_for_keyed_state_must_not_yield() -> None:
    def yields(key: Any, state: Any) -> Any:
        yield key

    wrong = _Wrong(
        element=lambda function, ctx: function.count.update(1),
        broadcast=lambda _, ctx: ctx.apply_to_keyed_state(COUNT, yields),
    )
    job = KeyedHarness(
        lambda a, b: a.key_by(lambda v: v[0]).connect(b.broadcast(RULES)).process(wrong), inputs=2
    )
    job.process_element(("ann", ""))
    with pytest.raises(UserFunctionError, match="must not yield"):
        job.process_element(("limit", 1), input=1)


class _Pass(KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        return None


def test_records_stay_in_order_behind_a_broadcast_operator() -> None:
    """Those of different keys, that meet again downstream."""
    environment = direct_environment()
    records = [f"k{number}" for number in range(6)]
    views = environment.from_source(MarkedSource(records), _no_watermarks(), "views")
    rules = environment.from_source(MarkedSource([("a", 1)] * 9), _no_watermarks(), "rules")
    passed = views.key_by(lambda v: v).connect(rules.broadcast(RULES)).process(_Pass())
    found = passed.key_by(lambda _: 0).map(lambda value: value)
    assert list(found.execute_and_collect()) == records


def test_expired_keys_are_not_met() -> None:
    count = ValueStateDescriptor("count", Types.INT())
    count.enable_time_to_live(StateTtlConfig.new_builder(Time.milliseconds(100)).build())

    class Timed(KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
        def open(self, runtime_context: RuntimeContext) -> None:
            self.count = runtime_context.get_state(count)

        def process_element(self, value: Any, ctx: Any) -> Any:
            self.count.update(1)

        def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
            met: list[Any] = []
            ctx.apply_to_keyed_state(count, lambda key, state: met.append(key))
            yield from met

    job = KeyedHarness(
        lambda a, b: a.key_by(lambda v: v).connect(b.broadcast(RULES)).process(Timed()), inputs=2
    )
    job.process_element("ann")
    job.process_element("rule", input=1)
    job.processing_time_ms = 100
    job.process_element("rule", input=1)
    assert job.values() == ["ann"]


class _Horizons(KeyedProcessFunction, EventTimeHorizonListener):
    """Emits, with each record, how far it was told that event time will go."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._until_ms = -1

    def event_time_horizon(self, until_ms: int, ctx: Any) -> None:
        self._until_ms = until_ms

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value[1], ctx.timer_service().current_watermark() <= self._until_ms


def test_keyed_function_is_told_how_far_event_time_will_go() -> None:
    environment = direct_environment()
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda record, _: record[1]
    )
    records = environment.from_source(
        MarkedSource([("a", 10), ("a", 20), CUT, ("a", 30)]), strategy, "records"
    )
    told = records.key_by(lambda record: record[0]).process(_Horizons())
    assert sorted(told.execute_and_collect()) == [(10, True), (20, True), (30, True)]


class _LooksForState(_Horizons):
    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))

    def event_time_horizon(self, until_ms: int, ctx: Any) -> None:
        self._count.value()


def test_horizon_comes_without_a_key() -> None:
    environment = direct_environment()
    stream = environment.from_collection([("a", 1)]).key_by(lambda record: record[0])
    with pytest.raises(UserFunctionError, match="no current key"):
        list(stream.process(_LooksForState()).execute_and_collect())
