"""From the graph to what runs: tasks, levels, exchanges.

A *task* is an operator that needs its records brought to it (by key, by rebalance, from two
inputs), with everything that follows it without an exchange. A *source task* is the same for a source.
A task's *level* is the longest way to it, counted in exchanges; source tasks are level 0. Spark runs one
pass per level, and rows for later levels just pass through: that is how a batch of any acyclic graph, with
any number of sinks, is one linear Spark job.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from millpond.common.typeinfo import TypeInformation
from millpond.core.key_groups import default_max_parallelism, key_group_range, subtask_of
from millpond.datastream.operator_state import keeps_operator_state
from millpond.datastream.stream_graph import (
    Exchange,
    ExchangeKind,
    Node,
    OperatorKind,
    SinkKind,
    StreamGraph,
)
from millpond.plan.settings import JobSettings, JobStart
from millpond.plan.uids import operator_uids

_TWO_INPUTS = {
    OperatorKind.CO_MAP,
    OperatorKind.CO_FLAT_MAP,
    OperatorKind.CO_PROCESS,
    OperatorKind.KEYED_CO_PROCESS,
    OperatorKind.BROADCAST_PROCESS,
    OperatorKind.KEYED_BROADCAST_PROCESS,
}
_SOURCE = OperatorKind.SOURCE


@dataclass
class Route:
    """One way out of an operator: exactly one of the three targets is set."""

    tag: str | None
    operator: int | None = None
    exchange: int | None = None
    sink: int | None = None
    sink_exchange: Exchange = field(default_factory=Exchange)


@dataclass
class OperatorPlan:
    """One operator as it runs: its function, types, parallelism, and where its results go."""

    id: int
    kind: OperatorKind
    name: str
    uid: str
    function: Any
    output_type: TypeInformation
    tag_types: dict[str, TypeInformation]
    parallelism: int
    max_parallelism: int
    routes: list[Route] = field(default_factory=list)


@dataclass
class ExchangePlan:
    """Records from an operator to one input of a task."""

    id: int
    kind: ExchangeKind
    key_selector: Any
    partitioner: Any
    source_operator: int
    target_task: int
    input_index: int
    key_type: TypeInformation | None = None  # as key_by declares it


@dataclass
class TaskInput:
    """One source of records of a task: an exchange as one task or source task feeds it. `origins` are the
    sources and assigners its watermark comes from."""

    exchange: int
    origins: list[int]


@dataclass
class TaskPlan:
    """A source task (level 0) or a task. `origins`: what its operators' watermarks start from."""

    id: int
    level: int
    root: int
    operators: list[int]
    keyed: bool
    parallelism: int
    max_parallelism: int
    ordinal: int = 0
    inputs: list[TaskInput] = field(default_factory=list)
    origins: list[int] = field(default_factory=list)
    by_key_group: bool = False
    """Whether a keyed task works on one key group after the other, so that each is a shard. Otherwise a shard
    is all that a subtask has."""

    @property
    def shards(self) -> int:
        """How many shards the task has: its key groups if it works on them one by one, else its subtasks."""
        return self.max_parallelism if self.by_key_group else self.parallelism

    def subtask_of(self, shard: int) -> int:
        """Return the subtask that works on a shard."""
        if not self.by_key_group:
            return shard
        return subtask_of(shard, self.parallelism, self.max_parallelism)

    def key_groups_of(self, shard: int) -> range:
        """Return the key groups in a shard of a keyed task."""
        if self.by_key_group:
            return range(shard, shard + 1)
        return key_group_range(shard, self.parallelism, self.max_parallelism)


@dataclass
class SinkPlan:
    """One sink: printed or collected on the driver, or written by workers."""

    id: int
    name: str
    uid: str
    kind: SinkKind
    function: Any
    identifier: str | None
    parallelism: int


@dataclass
class JobPlan:
    """Everything that drivers and workers need to run a job. Workers get a pickled copy."""

    name: str
    batch_mode: bool
    parallelism: int
    operators: dict[int, OperatorPlan]
    tasks: dict[int, TaskPlan]
    exchanges: dict[int, ExchangePlan]
    sinks: dict[int, SinkPlan]
    settings: JobSettings
    start: JobStart
    job_parameters: dict[str, str] = field(default_factory=dict)

    def starting_from(self, start: JobStart) -> JobPlan:
        """Return the same plan for an attempt that starts from something else."""
        return replace(self, start=start)

    @property
    def levels(self) -> int:
        """The highest level; source tasks are at level 0."""
        return max(task.level for task in self.tasks.values())

    @property
    def source_tasks(self) -> list[TaskPlan]:
        """The tasks that read sources."""
        return [task for task in self.tasks.values() if task.level == 0]

    def tasks_at(self, level: int) -> list[TaskPlan]:
        """Return the tasks of a level, in the order of their ordinals."""
        at_level = [task for task in self.tasks.values() if task.level == level]
        return sorted(at_level, key=lambda task: task.ordinal)

    def shards_in(self, task: TaskPlan, partition: int) -> tuple[int, ...]:
        """Return the shards of a task that are in a partition."""
        return self._shards_by_partition(task).get(partition, ())

    def partitions_of(self, task: TaskPlan) -> Iterable[int]:
        """Return the partitions in which a task has shards."""
        return self._shards_by_partition(task)

    def _shards_by_partition(self, task: TaskPlan) -> dict[int, tuple[int, ...]]:
        return shards_by_partition(
            task.shards, task.by_key_group, task.parallelism, self.parallelism
        )

    def listeners(self, origin: int) -> list[TaskPlan]:
        """The tasks whose event-time clock depends on a watermark origin."""
        return [
            task
            for task in self.tasks.values()
            if any(origin in task_input.origins for task_input in task.inputs)
        ]


@lru_cache(maxsize=1000)
def shards_by_partition(
    shards: int, by_key_group: bool, parallelism: int, partitions: int
) -> dict[int, tuple[int, ...]]:
    """Return, for each partition in which a task has any, its shards. A subtask is in the partition of the
    same number, as long as there are so many."""
    found: dict[int, tuple[int, ...]] = {}
    for shard in range(shards):
        subtask = subtask_of(shard, parallelism, shards) if by_key_group else shard
        partition = subtask % partitions
        found[partition] = (*found.get(partition, ()), shard)
    return found


def needs_own_task(node: Node, graph: StreamGraph, parallelism: int) -> bool:
    """True if records must be brought to this operator; false if it can follow its input.

    An operator whose parallelism the program did not set follows a source as it is: spreading
    records before a stateless operator would cost a shuffle and gain nothing."""
    if node.kind in (_SOURCE, OperatorKind.SINK):
        return node.kind is _SOURCE
    if node.kind in _TWO_INPUTS or keeps_operator_state(node.function):
        return True
    if any(edge.exchange.kind is not ExchangeKind.FORWARD for edge in node.inputs):
        return True
    for edge in node.inputs:
        before = graph.nodes[edge.source]
        asked_for = node.parallelism or (before.parallelism and before.kind is not _SOURCE)
        if asked_for and (node.parallelism or parallelism) != (before.parallelism or parallelism):
            return True
    return node.kind is OperatorKind.ASSIGN_WATERMARKS and not _follows_source(
        node, graph, parallelism
    )


def _follows_source(node: Node, graph: StreamGraph, parallelism: int) -> bool:
    """True if there is no exchange between the sources and this operator."""
    return all(
        graph.nodes[edge.source].kind is _SOURCE
        or (
            not needs_own_task(graph.nodes[edge.source], graph, parallelism)
            and _follows_source(graph.nodes[edge.source], graph, parallelism)
        )
        for edge in node.inputs
    )


def build_plan(
    graph: StreamGraph,
    name: str,
    parallelism: int,
    settings: JobSettings,
    start: JobStart,
    max_parallelism: int | None = None,
    batch_mode: bool = False,
    saved_maxima: dict[str, int] | None = None,
) -> JobPlan:
    """Return the physical plan of a validated graph. `saved_maxima`: uid -> the max parallelism that a
    savepoint has; it counts where the program sets none."""
    uids = operator_uids(graph)
    plan = JobPlan(name, batch_mode, parallelism, {}, {}, {}, {}, settings, start)
    for node in graph.nodes.values():
        uid, subtasks = uids[node.id], node.parallelism or parallelism
        if node.kind is OperatorKind.SINK:
            plan.sinks[node.id] = _sink_plan(node, uid, subtasks)
        else:
            saved = (saved_maxima or {}).get(uid)
            default = max_parallelism or saved or default_max_parallelism(subtasks)
            plan.operators[node.id] = _operator_plan(
                node, uid, subtasks, node.max_parallelism or default
            )
    for node in graph.nodes.values():
        if needs_own_task(node, graph, parallelism):
            plan.tasks[node.id] = _task_plan(
                node,
                plan.operators[node.id],
                _followers(node, graph, parallelism),
                settings.keeps_order_across_keys,
            )
    _connect(graph, plan)
    _place_on_levels(plan)
    _find_origins(graph, plan)
    return plan


def _sink_plan(node: Node, uid: str, parallelism: int) -> SinkPlan:
    assert node.sink_kind is not None
    return SinkPlan(
        node.id,
        node.name,
        uid,
        node.sink_kind,
        node.function,
        node.sink_identifier,
        parallelism,
    )


def _operator_plan(node: Node, uid: str, parallelism: int, max_parallelism: int) -> OperatorPlan:
    return OperatorPlan(
        node.id,
        node.kind,
        node.name,
        uid,
        node.function,
        node.output_type,
        node.tag_types,
        parallelism,
        max_parallelism,
    )


def _task_plan(
    root: Node, operator: OperatorPlan, followers: list[int], keeps_order_across_keys: bool
) -> TaskPlan:
    # A function on columns gets the events of many keys at once, so their order across keys says nothing.
    by_columns = root.kind is OperatorKind.KEYED_COLUMNS
    return TaskPlan(
        id=root.id,
        level=0,
        root=root.id,
        operators=followers,
        keyed=root.is_keyed,
        parallelism=operator.parallelism,
        max_parallelism=operator.max_parallelism,
        by_key_group=root.is_keyed and (by_columns or not keeps_order_across_keys),
    )


def _followers(root: Node, graph: StreamGraph, parallelism: int) -> list[int]:
    """The root and every operator that follows it without an exchange."""
    found = [root.id]
    for node_id in found:
        for node, _ in graph.outputs(node_id):
            follows = node.kind is not OperatorKind.SINK and not needs_own_task(
                node, graph, parallelism
            )
            if follows and node.id not in found:
                found.append(node.id)
    return found


def _connect(graph: StreamGraph, plan: JobPlan) -> None:
    """Give every operator its routes, and every pair of tasks its exchanges."""
    for operator in plan.operators.values():
        for node, edge in graph.outputs(operator.id):
            if node.kind is OperatorKind.SINK:
                route = Route(edge.tag, sink=node.id, sink_exchange=edge.exchange)
                operator.routes.append(route)
            elif node.id not in plan.tasks:
                operator.routes.append(Route(edge.tag, operator=node.id))
            else:
                exchange_id = len(plan.exchanges)
                operator.routes.append(Route(edge.tag, exchange=exchange_id))
                plan.exchanges[exchange_id] = ExchangePlan(
                    exchange_id,
                    _effective_kind(edge.exchange, plan.operators[node.id], operator),
                    edge.exchange.key_selector,
                    edge.exchange.partitioner,
                    operator.id,
                    node.id,
                    edge.input_index,
                    edge.exchange.key_type,
                )


def _effective_kind(exchange: Exchange, target: OperatorPlan, source: OperatorPlan) -> ExchangeKind:
    """Records that nobody asked to forward are spread where the parallelism changes."""
    implicit = exchange.kind is ExchangeKind.FORWARD and not exchange.explicit
    if implicit and target.parallelism != source.parallelism:
        return ExchangeKind.REBALANCE
    return exchange.kind


def _place_on_levels(plan: JobPlan) -> None:
    changed = True
    while changed:  # the graph is acyclic, so this ends after as many rounds as there are levels
        changed = False
        for exchange in plan.exchanges.values():
            target = plan.tasks[exchange.target_task]
            for task in plan.tasks.values():
                if exchange.source_operator in task.operators and target.level <= task.level:
                    target.level = task.level + 1
                    changed = True
    counts: dict[int, int] = {}
    for task in plan.tasks.values():
        task.ordinal = counts.get(task.level, 0)
        counts[task.level] = task.ordinal + 1


def _find_origins(graph: StreamGraph, plan: JobPlan) -> None:
    """A watermark origin is a source or an assigner; find those behind each input of each task."""
    makers = (OperatorKind.SOURCE, OperatorKind.ASSIGN_WATERMARKS)
    for task in sorted(plan.tasks.values(), key=lambda task: task.level):
        task.origins = [op for op in task.operators if plan.operators[op].kind in makers]
        behind_root = {origin for task_input in task.inputs for origin in task_input.origins}
        behind: dict[int, set[int]] = {}
        for op in task.operators:  # the root first, every other one after its inputs
            if op in task.origins:
                behind[op] = {op}
            elif op == task.root:
                behind[op] = behind_root
            else:
                inputs = [edge.source for edge in graph.nodes[op].inputs]
                behind[op] = set().union(*(behind[i] for i in inputs if i in behind))
        for exchange in plan.exchanges.values():
            if exchange.source_operator in behind:
                plan.tasks[exchange.target_task].inputs.append(
                    TaskInput(exchange.id, sorted(behind[exchange.source_operator]))
                )
