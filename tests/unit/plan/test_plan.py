"""Graph, uids, chains, levels, and how they are shown (E2, E3, E7, E46)."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from millpond.datastream import (
    DataStream,
    MapFunction,
    Partitioner,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from millpond.datastream.stream_graph import ExchangeKind
from millpond.driver.planning import plan_job
from millpond.errors import ProgramError
from millpond.plan.explain import chains
from millpond.plan.identity import identity_of
from millpond.plan.physical import JobPlan
from millpond.plan.uids import operator_uids
from millpond.testing import direct_environment
from tests.programs.catalogue import three_stages


def plan_of(environment: StreamExecutionEnvironment) -> JobPlan:
    return plan_job(
        environment._pending_graph(), environment._configuration, environment.get_config(), "job"
    )


def identity(value: Any) -> Any:
    return value


def test_drawing_has_a_box_per_pass() -> None:
    environment = direct_environment({"parallelism.default": 2})
    for stream in three_stages(environment):
        stream.print()
    drawing = environment.draw_execution_plan().splitlines()
    assert drawing[0] == "Job 'Millpond Streaming Job': one Spark job per batch, 4 passes"
    assert len({len(line) for line in drawing[1:] if line.startswith(("+", "|"))}) == 1
    assert sum("pass " in line for line in drawing) == 4
    assert any("[5] KEYED PROCESS x2" in line for line in drawing)


def test_plan_as_json_has_flinks_fields() -> None:
    environment = direct_environment({"parallelism.default": 3})
    numbers = environment.from_collection([1]).map(identity).name("same").uid("same")
    numbers.key_by(identity).sum().set_description("adds up").print()
    nodes = json.loads(environment.get_execution_plan())["nodes"]
    assert [node["type"] for node in nodes] == [
        "Source: Collection Source",
        "same",
        "Reduce",
        "Sink: Print to Std. Out",
    ]
    assert nodes[1]["uid"] == "same"
    assert nodes[2]["contents"] == "adds up"
    assert nodes[2]["predecessors"] == [{"id": 2, "ship_strategy": "HASH", "side": "second"}]
    assert (nodes[2]["parallelism"], nodes[2]["max_parallelism"]) == (3, 128)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda stream: stream, [1, 1, 1, 1]),
        (lambda stream: stream.start_new_chain(), [1, 2, 2, 2]),
        (lambda stream: stream.disable_chaining(), [1, 2, 3, 3]),
        (lambda stream: stream.slot_sharing_group("other"), [1, 2, 2, 2]),  # inherited
    ],
)
def test_chains_honour_what_the_program_asks_for(change: Any, expected: list[int]) -> None:
    environment = direct_environment()
    stream: DataStream = environment.from_collection([1]).map(identity)
    change(stream).filter(identity).print()
    graph = environment._pending_graph()
    assert list(chains(graph, plan_of(environment)).values()) == expected


def test_generated_uids_survive_an_unrelated_branch() -> None:
    def build(more: bool) -> dict[str, str]:
        environment = direct_environment()
        numbers = environment.from_collection([1])
        if more:
            environment.from_collection(["other"]).map(identity).print()
        numbers.map(identity).key_by(identity).sum().name("the sum").print()
        graph = environment._pending_graph()
        uids = operator_uids(graph)
        return {graph.nodes[node].name: uid for node, uid in uids.items()}

    assert build(more=False)["the sum"] == build(more=True)["the sum"]


def test_uid_hash_must_be_hexadecimal() -> None:
    stream = direct_environment().from_collection([1])
    stream.set_uid_hash("0123456789abcdef0123456789abcdef")
    with pytest.raises(ProgramError, match="32 hexadecimal digits"):
        stream.set_uid_hash("nonsense")


def test_tasks_at_the_same_depth_share_a_level() -> None:
    environment = direct_environment()
    numbers = environment.from_collection([1])
    for _ in range(3):
        numbers.key_by(identity).sum().print()
    plan = plan_of(environment)
    assert plan.levels == 1
    assert [task.ordinal for task in plan.tasks_at(1)] == [0, 1, 2]


def test_parallelism_of_an_operator_makes_an_exchange() -> None:
    """E3: other parallelism than the operator before, so records must be spread anew."""
    environment = direct_environment({"parallelism.default": 4})
    numbers = environment.from_collection(list(range(100))).map(identity).set_parallelism(3)
    numbers.map(identity).print()
    plan = plan_of(environment)
    assert [task.parallelism for level in (1, 2) for task in plan.tasks_at(level)] == [3, 4]
    assert {exchange.kind for exchange in plan.exchanges.values()} == {ExchangeKind.REBALANCE}


class _Where(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()

    def map(self, value: Any) -> int:
        return self.subtask


@pytest.mark.parametrize("way", ["rebalance", "rescale", "shuffle"])
def test_records_of_one_source_are_spread_over_all_subtasks(way: str) -> None:
    """E4"""
    environment = direct_environment({"parallelism.default": 4})
    stream = getattr(environment.from_collection(list(range(400))), way)().map(_Where())
    counts = Counter(stream.execute_and_collect())
    assert sorted(counts) == [0, 1, 2, 3]
    assert min(counts.values()) > 60


def test_exchanges_into_sinks(capsys: pytest.CaptureFixture[str]) -> None:
    environment = direct_environment({"parallelism.default": 3})
    numbers = environment.from_collection([0, 1, 2, 3])
    numbers.broadcast().print("all")
    numbers.partition_custom(lambda key, count: key % count, identity).print("own")
    environment.execute()
    lines = capsys.readouterr().out.splitlines()
    assert sorted(line for line in lines if line.startswith("own")) == [
        "own:1> 0",
        "own:1> 3",
        "own:2> 1",
        "own:3> 2",
    ]
    assert len([line for line in lines if line.startswith("all")]) == 12


class _ByParity(Partitioner):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.opened = True

    def partition(self, key: int, num_partitions: int) -> int:
        assert self.opened
        return key % 2


def test_streams_of_a_union_keep_their_own_way_to_the_sink(
    capsys: pytest.CaptureFixture[str],
) -> None:
    environment = direct_environment({"parallelism.default": 3})
    everywhere = environment.from_collection([7]).broadcast()
    chosen = environment.from_collection([2, 3]).partition_custom(_ByParity(), identity)
    everywhere.union(chosen).print()
    environment.execute()
    lines = sorted(capsys.readouterr().out.splitlines())
    assert lines == ["1> 2", "1> 7", "2> 3", "2> 7", "3> 7"]


def test_only_what_was_added_since_the_last_execute_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    environment = direct_environment()
    numbers = environment.from_collection([1, 2])
    numbers.print("first")
    environment.execute()
    numbers.map(lambda n: n * 10).print("second")
    environment.execute()
    assert capsys.readouterr().out.splitlines() == [
        "first> 1",
        "first> 2",
        "second> 10",
        "second> 20",
    ]


def test_another_parallelism_of_one_operator_is_another_job() -> None:
    """Its logs are found by partition, so a job cannot go on in the folder of the other (E35)."""

    def planned(parallelism: int) -> JobPlan:
        environment = direct_environment({"parallelism.default": 2})
        keyed = environment.from_collection([1]).key_by(lambda value: value)
        keyed.reduce(lambda a, b: a + b).uid("sum").set_parallelism(parallelism).print()
        graph, config = environment._pending_graph(), environment.get_config()
        return plan_job(graph, environment._configuration, config, None)

    same = identity_of(planned(2)).difference(identity_of(planned(2)))
    assert same is None
    other = identity_of(planned(2)).difference(identity_of(planned(1)))
    assert other is not None and other[0] == "parallelism by uid"
