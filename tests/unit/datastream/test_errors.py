"""What is wrong is said in words, before anything runs if possible."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from millpond.common import Configuration, JobStatus, RestartStrategies, Types
from millpond.datastream import (
    DataStream,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    OutputTag,
    ProcessFunction,
    RuntimeContext,
    SinkFunction,
    StreamExecutionEnvironment,
)
from millpond.datastream.state import MapStateDescriptor, ValueStateDescriptor
from millpond.errors import (
    ProgramError,
    TypeMismatchError,
    UnsupportedFeatureError,
    UserFunctionError,
)
from millpond.missing import MissingNameError
from millpond.testing import FAIL, MarkedSource, direct_environment

Build = Callable[[StreamExecutionEnvironment], Any]


def run(build: Build, **settings: Any) -> list[Any]:
    environment = direct_environment(settings)
    stream: DataStream = build(environment)
    return list(stream.execute_and_collect())


class _StateWithoutKey(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        runtime_context.get_state(ValueStateDescriptor("s", Types.INT()))

    def map(self, value: Any) -> Any:
        return value


class _TimerWithoutKey(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        ctx.timer_service().register_event_time_timer(5)


class _Locked(MapFunction):
    def __init__(self) -> None:
        self.lock = threading.Lock()

    def map(self, value: Any) -> Any:
        return value


class _TwiceDeclared(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        runtime_context.get_state(ValueStateDescriptor("s", Types.INT()))
        runtime_context.get_map_state(MapStateDescriptor("s", Types.INT(), Types.INT()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        return []


def _one_uid_twice(env: StreamExecutionEnvironment) -> DataStream:
    numbers = env.from_collection([1]).map(lambda n: n).uid("x")
    return numbers.map(lambda n: n).uid("x")


def _no_uid(env: StreamExecutionEnvironment) -> DataStream:
    env.get_config().disable_auto_generated_uids()
    return env.from_collection([1]).key_by(lambda n: n).sum().name("the sum")


REFUSED: dict[str, tuple[Build, str]] = {
    "unpicklable function": (
        lambda env: env.from_collection([1]).map(_Locked()).name("locked"),
        "function of operator 'locked' cannot be sent to workers.*open\\(\\) instead",
    ),
    "uid twice": (_one_uid_twice, "uid 'x' is used by operator 'Map' and by operator 'Map'"),
    "missing uid": (_no_uid, r"operator 'the sum' keeps state but has no uid.*\.uid\('\.\.\.'\)"),
    "parallelism above maximum": (
        lambda env: env.from_collection([1]).map(id).set_max_parallelism(2).set_parallelism(3),
        "parallelism 3 is above the max parallelism 2",
    ),
    "forward between different parallelisms": (
        lambda env: (
            env.from_collection([1]).map(id).set_parallelism(2).forward().map(id).set_parallelism(3)
        ),
        r"forward\(\) needs the same parallelism.*Use rebalance",
    ),
    "rebalance of a keyed stream": (
        lambda env: env.from_collection([1]).key_by(id).rebalance(),
        "partitioned by its key, so rebalance is not possible",
    ),
    "uid of a keyed stream": (
        lambda env: env.from_collection([1]).key_by(id).uid("x"),
        "key_by adds no operator",
    ),
    "connect keyed with not keyed": (
        lambda env: env.from_collection([1]).key_by(id).connect(env.from_collection([1])),
        "call key_by on both",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_program_is_refused_before_it_runs(name: str) -> None:
    build, message = REFUSED[name]
    with pytest.raises(ProgramError, match=message):
        run(build)


def test_program_without_a_sink_is_refused() -> None:
    environment = direct_environment()
    environment.from_collection([1])
    with pytest.raises(ProgramError, match="has no sink"):
        environment.execute()


class _BrokenSelector(KeySelector):
    def get_key(self, value: Any) -> Any:
        return value

    def close(self) -> None:
        raise ValueError("the selector cannot be closed")


class _BrokenSink(SinkFunction):
    def invoke(self, value: Any, context: Any) -> None:
        pass

    def close(self) -> None:
        raise ValueError("the sink cannot be closed")


def _fail_on_three(value: int) -> int:
    return 1 // (3 - value)


FAILING: dict[str, tuple[Build, list[str]]] = {
    "map": (
        lambda env: env.from_collection([1, 2, 3]).map(_fail_on_three).name("risky"),
        ["ZeroDivisionError", "operator 'risky' (subtask 0)", "record: 3", "_fail_on_three"],
    ),
    "keyed process": (
        lambda env: env.from_collection([1]).key_by(lambda n: n).process(_TwiceDeclared()),
        ["declares state 's' twice, as value and as map", "operator 'KEYED PROCESS'"],
    ),
    "state without a key": (
        lambda env: env.from_collection([1]).map(_StateWithoutKey()),
        ["asks for state 's'", "call key_by(...) before it"],
    ),
    "timer without a key": (
        lambda env: env.from_collection([1]).process(_TimerWithoutKey()),
        ["timers need a keyed stream", "record: 1"],
    ),
    "type": (
        lambda env: env.from_collection([1]).map(str, output_type=Types.INT()).name("to text"),
        ["'1' (of type str) does not fit the declared type Integer", "operator 'to text'"],
    ),
    "type of the source": (
        lambda env: env.from_collection(["x"], Types.INT()).map(id),
        ["does not fit the declared type Integer", "operator 'Collection Source'"],
    ),
    "unhashable key": (
        lambda env: env.from_collection([[1]]).key_by(lambda v: v).sum(0),
        ["not hashable", "Return a tuple", "while: key_by"],
    ),
    "key of an odd type": (
        lambda env: env.from_collection([1]).key_by(lambda v: object()).sum(),
        ["A key of type object cannot be used"],
    ),
    "partitioner out of range": (
        lambda env: env.from_collection([1]).partition_custom(lambda k, n: n, lambda v: v).map(id),
        ["partition_custom", "must return 0 to 0"],
    ),
    "close of a key selector": (
        lambda env: env.from_collection([1]).map(id).name("ids").key_by(_BrokenSelector()).sum(),
        ["the selector cannot be closed", "operator 'ids' (subtask 0)", "while: close()"],
    ),
    "field of a plain value": (
        lambda env: env.from_collection([1, 1]).key_by(lambda v: v).sum(1),
        ["Leave the position out"],
    ),
}


@pytest.mark.parametrize("name", FAILING)
def test_failing_function_names_operator_record_and_cause(name: str) -> None:
    build, texts = FAILING[name]
    with pytest.raises(UserFunctionError) as error:
        run(build)
    for text in texts:
        assert text in str(error.value)
    assert "millpond/engine" not in str(error.value), "the user's trace only"


def test_sink_that_cannot_be_closed_is_named() -> None:
    environment = direct_environment()
    environment.from_collection([1]).add_sink(_BrokenSink()).name("shaky")
    with pytest.raises(UserFunctionError) as error:
        environment.execute()
    for text in ("the sink cannot be closed", "operator 'shaky' (subtask 0)", "while: close()"):
        assert text in str(error.value)


def test_record_whose_repr_fails_does_not_hide_the_error() -> None:
    class Odd:
        def __repr__(self) -> str:
            raise ValueError("no repr")

    def fail(value: Any) -> Any:
        raise KeyError("the real problem")

    with pytest.raises(UserFunctionError, match="the real problem"):
        run(lambda env: env.from_collection([1]).map(lambda _: Odd()).map(fail))


def test_wrong_function_types_are_refused() -> None:
    stream = direct_environment().from_collection([1])
    with pytest.raises(TypeError, match="map takes a MapFunction or a function, not int"):
        stream.map(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="takes a KeyedProcessFunction, not _TimerWithoutKey"):
        stream.key_by(id).process(_TimerWithoutKey())  # type: ignore[arg-type]


def test_wrong_value_for_a_state_names_the_state() -> None:
    class Wrong(KeyedProcessFunction):
        def open(self, runtime_context: RuntimeContext) -> None:
            self.s = runtime_context.get_state(ValueStateDescriptor("age", Types.INT()))

        def process_element(self, value: Any, ctx: Any) -> Any:
            self.s.update("old")
            return []

    with pytest.raises(UserFunctionError, match="state 'age': 'old'"):
        run(lambda env: env.from_collection([1]).key_by(lambda n: n).process(Wrong()))


@pytest.mark.parametrize(
    "build",
    [
        lambda env: env.from_collection([1]).cache(),
        lambda env: env.from_collection([1]).set_buffer_timeout(3),
        lambda env: env.add_jars("file:///x.jar"),
    ],
)
def test_what_is_not_there_yet_names_itself_and_the_alternative(build: Build) -> None:
    with pytest.raises(UnsupportedFeatureError, match=r"does not have \w+\.\w+: .*"):
        build(direct_environment())


def test_importing_a_missing_name_says_so() -> None:
    with pytest.raises(MissingNameError, match="AsyncFunction: use map or process"):
        from millpond.datastream import AsyncFunction  # noqa: F401
    with pytest.raises(ImportError):
        from millpond.datastream import NoSuchThing  # noqa: F401


def test_failing_job_is_restarted_as_often_as_the_strategy_says(tmp_path: Any) -> None:
    environment = direct_environment()
    strategy = RestartStrategies.fixed_delay_restart(1, 0)
    environment.get_config().set_restart_strategy(strategy)
    numbers = environment._source(MarkedSource([1, FAIL, 2], tmp_path), "numbers", None)
    assert list(numbers.execute_and_collect()) == [1, 2]


def test_job_status_of_a_failed_job() -> None:
    environment = direct_environment()
    environment.from_collection([3]).map(_fail_on_three).print()
    client = environment.execute_async()
    assert isinstance(client.get_job_execution_result().exception(), UserFunctionError)
    assert client.get_job_status().result() is JobStatus.FAILED


def test_settings_of_a_wrong_type_are_refused() -> None:
    configuration = Configuration.from_dict({"parallelism.default": "many"})
    with pytest.raises(ProgramError, match=r"'parallelism\.default' must be a number"):
        configuration.get_integer("parallelism.default", 1)
    environment = StreamExecutionEnvironment(
        Configuration.from_dict({"millpond.executor": "flink", "parallelism.default": 1})
    )
    environment.from_collection([1]).print()
    with pytest.raises(ProgramError, match="must be spark or direct"):
        environment.execute()


def test_side_output_of_a_wrong_type_names_the_tag() -> None:
    tag = OutputTag("numbers", Types.INT())

    class Send(ProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Any:
            yield tag, "text"

    with pytest.raises(UserFunctionError, match="side output 'numbers'"):
        run(lambda env: env.from_collection([1]).process(Send()).get_side_output(tag))


def test_type_mismatch_is_a_type_error() -> None:
    with pytest.raises(TypeError):
        Types.INT().conform("x")
    assert issubclass(TypeMismatchError, TypeError)
