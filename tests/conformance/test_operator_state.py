"""C37, E31: lists of functions without keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millpond.common import RestartStrategies, Types
from millpond.datastream import (
    CheckpointedFunction,
    CheckpointListener,
    DataStream,
    KeyedProcessFunction,
    ProcessFunction,
    SinkFunction,
)
from millpond.datastream.state import ListStateDescriptor
from millpond.driver.planning import plan_job
from millpond.engine.host import JobHost
from millpond.engine.passes import Passes, run_batch
from millpond.engine.sink_pass import SinkHost
from millpond.errors import ProgramError, UserFunctionError
from millpond.executors.direct.executor import DirectExecutor
from millpond.plan.physical import JobPlan
from millpond.state.operator_lists import deal_out
from millpond.testing import CUT, FAIL, Harness, MarkedSource, direct_environment
from tests.unit.driver.test_recovery import Crash, StandInForSpark
from tests.unit.savepoint.test_savepoint import go_on, run_and_save


@pytest.mark.parametrize(
    ("lists", "parallelism", "dealt"),
    [
        (["abc", "de"], 3, ["ab", "cd", "e"]),
        (["a", "b"], 4, ["a", "b", "", ""]),
        (["abcd", "efgh", "ijkl"], 2, ["abcdef", "ghijkl"]),
        (["abc", "d"], 2, ["abc", "d"]),
        (["", ""], 3, ["", "", ""]),
    ],
)
def test_lists_are_dealt_out_in_order(lists: list[str], parallelism: int, dealt: list[str]) -> None:
    """C37."""
    found = deal_out([list(own) for own in lists], parallelism)
    assert ["".join(own) for own in found] == dealt


class Pairs(ProcessFunction, CheckpointedFunction):
    """Emits records two by two; one that waits is in its list."""

    def __init__(self, union: bool = False) -> None:
        self._union = union

    def initialize_state(self, context: Any) -> None:
        store = context.get_operator_state_store()
        get = store.get_union_list_state if self._union else store.get_list_state
        self._list = get(ListStateDescriptor("waiting", Types.STRING()))
        self._waiting = list(self._list.get())
        self._restored = context.is_restored()

    def snapshot_state(self, context: Any) -> None:
        assert context.get_checkpoint_id() >= 0
        self._list.update(self._waiting)

    def process_element(self, value: Any, ctx: Any) -> Any:
        self._waiting.append(value[0])
        if len(self._waiting) >= 2:
            yield "".join(self._waiting)
            self._waiting = []


def pairs(stream: DataStream) -> DataStream:
    return stream.process(Pairs()).uid("pairs")


def elements(text: str) -> list[Any]:
    return [CUT if letter == "|" else (letter, 0, 0) for letter in text]


def test_function_goes_on_with_its_list() -> None:
    first = Harness(pairs)
    for letter in "abc":
        first.process_element((letter,))
    second = Harness(pairs, restore=first.snapshot())
    second.process_element(("d",))
    assert first.values() + second.values() == ["ab", "cd"]


def test_batches_make_no_difference() -> None:
    environment = direct_environment()
    stream = environment._source(MarkedSource(elements("a|b|c|d")), "letters", None)
    assert list(pairs(stream).execute_and_collect()) == ["ab", "cd"]


@pytest.mark.usefixtures("needs_log")
def test_failed_batch_is_forgotten(tmp_path: Path) -> None:
    """What a function remembers in attributes goes back with its list."""
    environment = direct_environment()
    environment.get_config().set_restart_strategy(RestartStrategies.fixed_delay_restart(2, 0))
    records = elements("a|bc|d")
    records.insert(5, FAIL)
    stream = environment._source(MarkedSource(records, tmp_path), "letters", None)
    assert list(pairs(stream).execute_and_collect()) == ["ab", "cd"]


def in_turns(monkeypatch: pytest.MonkeyPatch, lost: int | None = None) -> None:
    """Batches run in two slots by turns; what the first made of batch `lost` does not count."""
    run_one = DirectExecutor._run_batch

    def run(self: Any) -> None:
        job = self._job
        if not hasattr(self, "slots"):
            host = JobHost(job._blob, job.storage, "other")
            self.slots = [self._passes, Passes(host, SinkHost(job._blob))]
        epoch = job.coordinator.epoch
        if epoch == lost:
            job.lanes = job.coordinator.plan()
            run_batch(self.slots[(epoch + 1) % 2], self._plan, job.lanes)
        self._passes = self.slots[epoch % 2]
        run_one(self)

    monkeypatch.setattr(DirectExecutor, "_run_batch", run)


@pytest.mark.usefixtures("needs_log")
@pytest.mark.parametrize("lost", [None, 1, 2])
def test_function_that_others_have_run_for_meanwhile_starts_anew(
    lost: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition that comes back to a worker: the attributes there are of an older batch."""
    in_turns(monkeypatch, lost)
    environment = direct_environment()
    stream = environment._source(MarkedSource(elements("a|b|c|d|e|f")), "letters", None)
    assert list(pairs(stream).execute_and_collect()) == ["ab", "cd", "ef"]


@pytest.mark.usefixtures("needs_log")
def test_failure_downstream_is_forgotten(tmp_path: Path) -> None:
    mark = tmp_path / "failed"

    def fail_once(value: str) -> str:
        if not mark.exists():
            mark.touch()
            raise ValueError("once")
        return value

    environment = direct_environment()
    environment.get_config().set_restart_strategy(RestartStrategies.fixed_delay_restart(2, 0))
    stream = environment._source(MarkedSource(elements("a|bc|d")), "letters", None)
    found = list(pairs(stream).map(fail_once).execute_and_collect())
    assert found == ["ab", "cd"]


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_lists_go_with_savepoints(parallelism: int, tmp_path: Path) -> None:
    records = elements("abc|d")
    before, path = run_and_save(pairs, records, tmp_path, batches=0)
    after = go_on(pairs, records, path, **{"parallelism.default": parallelism})
    assert before + after == ["ab", "cd"]


class ToFile(SinkFunction):
    def __init__(self, path: Path) -> None:
        self._path = path

    def invoke(self, value: Any, context: Any) -> None:
        with self._path.open("a") as file:
            file.write(f"{value}\n")


class Known(ProcessFunction, CheckpointedFunction):
    """Every subtask knows its number, and learns those of all when it starts."""

    def __init__(self, element_type: Any) -> None:
        self._type = element_type

    def open(self, runtime_context: Any) -> None:
        self._own = runtime_context.get_index_of_this_subtask()

    def initialize_state(self, context: Any) -> None:
        descriptor = ListStateDescriptor("known", self._type)
        self._list = context.get_operator_state_store().get_union_list_state(descriptor)
        self._known = sorted(self._list.get())
        assert context.is_restored() == bool(self._known)

    def snapshot_state(self, context: Any) -> None:
        self._list.update([self._own])

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield (self._own, self._known)


def known(stream: DataStream, element_type: Any = None) -> DataStream:
    return stream.rebalance().process(Known(element_type or Types.INT())).uid("known")


@pytest.mark.usefixtures("needs_log")
def test_union_list_goes_to_everyone_after_a_failure(tmp_path: Path) -> None:
    """As in Flink, where a restart is a restore."""
    environment = direct_environment({"parallelism.default": 2})
    environment.get_config().set_restart_strategy(RestartStrategies.fixed_delay_restart(2, 0))
    records = elements("ab|cd|ef")
    records.insert(4, FAIL)
    stream = environment._source(MarkedSource(records, tmp_path), "letters", None)
    found = list(known(stream).execute_and_collect())
    assert [sorted(found[i : i + 2]) for i in (0, 2, 4)] == [
        [(0, []), (1, [])],
        [(0, [0, 1]), (1, [0, 1])],
        [(0, [0, 1]), (1, [0, 1])],
    ]


@pytest.mark.usefixtures("needs_log")
def test_union_list_changes_its_type_with_the_program(tmp_path: Path) -> None:
    """As any other state, when a changed program goes on in its job folder."""

    def plan(element_type: Any) -> JobPlan:
        environment = direct_environment({"parallelism.default": 2})
        stream = environment._source(MarkedSource(elements("ab|cd|ef")), "letters", None)
        known(stream, element_type).add_sink(ToFile(tmp_path / "found")).uid("out")
        graph, config = environment._pending_graph(), environment.get_config()
        return plan_job(graph, environment._configuration, config, None)

    spark = StandInForSpark()
    with pytest.raises(Crash):
        spark.run(plan(Types.INT()), tmp_path / "jobs", (1, "committed"))
    (tmp_path / "found").unlink()
    spark.run(plan(Types.DOUBLE()), tmp_path / "jobs", None)
    assert sorted((tmp_path / "found").read_text().splitlines()) == [
        "(0, [0.0, 1.0])",
        "(1, [0.0, 1.0])",
    ]


@pytest.mark.parametrize("parallelism", [1, 3])
def test_union_list_goes_to_everyone(parallelism: int, tmp_path: Path) -> None:
    records = elements("abcdef|ghijkl")
    _, path = run_and_save(known, records, tmp_path, batches=0, **{"parallelism.default": 2})
    found = go_on(known, records, path, **{"parallelism.default": parallelism})
    assert {tuple(result[1]) for result in found} == {(0, 1)}
    assert {result[0] for result in found} == set(range(parallelism))


def test_wrong_programs_are_refused() -> None:
    class Keyed(KeyedProcessFunction, CheckpointedFunction):
        def process_element(self, value: Any, ctx: Any) -> Any:
            return None

        def initialize_state(self, context: Any) -> None: ...

        def snapshot_state(self, context: Any) -> None: ...

    environment = direct_environment()
    environment.from_collection([1]).key_by(lambda n: n).process(Keyed()).print()
    with pytest.raises(ProgramError, match="it has keys: use keyed state"):
        environment.execute()


class PairsToFile(Pairs, SinkFunction):
    """The same as a sink."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def invoke(self, value: Any, context: Any) -> None:
        for pair in self.process_element(value, context):
            with self._path.open("a") as file:
                file.write(f"{pair} {context.epoch()}\n")


def test_sink_goes_on_with_its_list(tmp_path: Path) -> None:
    environment = direct_environment()
    stream = environment._source(MarkedSource(elements("a|b|c|d")), "letters", None)
    stream.add_sink(PairsToFile(tmp_path / "pairs")).uid("pairs")
    environment.execute()
    assert (tmp_path / "pairs").read_text() == "ab 1\ncd 3\n"


@pytest.mark.usefixtures("needs_log")
def test_sink_forgets_a_failed_batch(tmp_path: Path) -> None:
    environment = direct_environment()
    environment.get_config().set_restart_strategy(RestartStrategies.fixed_delay_restart(2, 0))
    records = elements("a|bc|d")
    records.insert(5, FAIL)
    stream = environment._source(MarkedSource(records, tmp_path), "letters", None)
    stream.add_sink(PairsToFile(tmp_path / "pairs")).uid("pairs")
    environment.execute()
    assert [line[:2] for line in (tmp_path / "pairs").read_text().splitlines()] == ["ab", "cd"]


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_lists_of_sinks_go_with_savepoints(parallelism: int, tmp_path: Path) -> None:
    def to_file(stream: DataStream) -> DataStream:
        stream.add_sink(PairsToFile(tmp_path / "pairs")).uid("pairs")
        return stream

    records = elements("abc|d")
    _, path = run_and_save(to_file, records, tmp_path, batches=0)
    environment = direct_environment(
        {"parallelism.default": parallelism, "execution.state-recovery.path": path}
    )
    to_file(environment._source(MarkedSource(records), "records", None).uid("records"))
    environment.execute()
    assert [line[:2] for line in (tmp_path / "pairs").read_text().splitlines()] == ["ab", "cd"]


@pytest.mark.parametrize("with_state", [False, True])
def test_sink_of_a_keyed_stream_has_a_key_in_one_place(with_state: bool, tmp_path: Path) -> None:
    class Where(SinkFunction):
        def open(self, runtime_context: Any) -> None:
            self._own = runtime_context.get_index_of_this_subtask()

        def invoke(self, value: Any, context: Any) -> None:
            with (tmp_path / "where").open("a") as file:
                file.write(f"{value} {self._own}\n")

    class WithState(Where, CheckpointedFunction):
        def initialize_state(self, context: Any) -> None: ...

        def snapshot_state(self, context: Any) -> None: ...

    environment = direct_environment({"parallelism.default": 2})
    numbers = environment.from_collection([1, 2, 3, 4] * 3)
    numbers.rebalance().key_by(lambda n: n).add_sink(WithState() if with_state else Where())
    environment.execute()
    found = (tmp_path / "where").read_text().splitlines()
    assert len(found) == 12
    assert len(set(found)) == 4, "each number has one subtask"
    assert len({line.split()[1] for line in found}) == 2


def test_sink_is_told_about_checkpoints(tmp_path: Path) -> None:
    class Told(SinkFunction, CheckpointListener):
        def invoke(self, value: Any, context: Any) -> None:
            self._note(value[0])

        def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
            self._note(str(checkpoint_id))

        def _note(self, text: str) -> None:
            with (tmp_path / "told").open("a") as file:
                file.write(text)

    environment = direct_environment()
    stream = environment._source(MarkedSource(elements("a|b|c")), "letters", None)
    stream.add_sink(Told())
    environment.execute()
    assert (tmp_path / "told").read_text() == "a0b1c"


def test_failures_name_the_method() -> None:
    class Failing(Pairs):
        def snapshot_state(self, context: Any) -> None:
            raise ValueError("cannot")

    environment = direct_environment()
    stream = environment._source(MarkedSource(elements("a")), "letters", None)
    with pytest.raises(UserFunctionError, match="snapshot_state"):
        list(stream.process(Failing()).execute_and_collect())
