"""A plan as its operators see it (E2, O7): vertices, with Flink's names and ids that stay the same.

A vertex is a task with all its operators. A sink belongs to the vertex that feeds it, if that is one, with
as many subtasks, and nobody asked for records to be spread; else it is a vertex of its own.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field

from millpond.core.key_groups import default_max_parallelism
from millpond.datastream.stream_graph import ExchangeKind, OperatorKind
from millpond.plan.physical import JobPlan, OperatorPlan, Route, SinkPlan, TaskPlan


@dataclass(frozen=True)
class VertexOperator:
    """One of the operators that a vertex shows as its chain."""

    id: str
    uid: str
    name: str


@dataclass
class Vertex:
    """`number` is that of its task, or of its sink; `sinks` are the numbers of those that belong to it.
    `inputs`: (id of a vertex, how records come from it)."""

    id: str
    number: int
    name: str
    parallelism: int
    max_parallelism: int
    level: int
    keyed: bool
    operators: list[VertexOperator] = field(default_factory=list)
    sinks: list[int] = field(default_factory=list)
    inputs: list[tuple[str, str]] = field(default_factory=list)


def operator_id(uid: str) -> str:
    """32 hexadecimal digits for a uid: itself, if it is made of them."""
    return (
        uid if re.fullmatch("[0-9a-f]{32}", uid) else hashlib.sha256(uid.encode()).hexdigest()[:32]
    )


def vertices_of(plan: JobPlan) -> list[Vertex]:
    """In the order of levels."""
    tasks = sorted(plan.tasks.values(), key=lambda task: (task.level, task.ordinal))
    made = {task.id: _task_vertex(plan, task) for task in tasks}
    for task in tasks:
        for task_input in task.inputs:
            exchange = plan.exchanges[task_input.exchange]
            for before in tasks:
                if exchange.source_operator in before.operators:
                    way = (made[before.id].id, exchange.kind.value)
                    if way not in made[task.id].inputs:
                        made[task.id].inputs.append(way)
    result = list(made.values())
    for sink in plan.sinks.values():
        feeding = [
            (task, route)
            for task in tasks
            for operator in task.operators
            for route in plan.operators[operator].routes
            if route.sink == sink.id
        ]
        if len(feeding) == 1 and _is_chained(sink, *feeding[0]):
            own_vertex = made[feeding[0][0].id]
            own_vertex.sinks.append(sink.id)
            own_vertex.operators.append(_sink_operator(sink))
        else:
            result.append(_sink_vertex(plan, sink, [(made[t.id], r) for t, r in feeding]))
    for vertex in result:
        vertex.name = " -> ".join(operator.name for operator in vertex.operators)
    return result


def _task_vertex(plan: JobPlan, task: TaskPlan) -> Vertex:
    operators = [plan.operators[number] for number in task.operators]
    return Vertex(
        operator_id(plan.operators[task.root].uid),
        task.id,
        "",
        task.parallelism,
        task.max_parallelism,
        task.level,
        task.keyed,
        [
            VertexOperator(operator_id(operator.uid), operator.uid, _title(operator))
            for operator in operators
        ],
    )


def _sink_vertex(plan: JobPlan, sink: SinkPlan, feeding: list[tuple[Vertex, Route]]) -> Vertex:
    ways = [(vertex.id, route.sink_exchange.kind.value) for vertex, route in feeding]
    return Vertex(
        operator_id(sink.uid),
        sink.id,
        "",
        sink.parallelism,
        default_max_parallelism(sink.parallelism),
        plan.levels + 1,
        False,
        [_sink_operator(sink)],
        [sink.id],
        list(dict.fromkeys(ways)),
    )


def _is_chained(sink: SinkPlan, task: TaskPlan, route: Route) -> bool:
    forward = route.sink_exchange.kind is ExchangeKind.FORWARD
    return forward and sink.parallelism == task.parallelism


def _title(operator: OperatorPlan) -> str:
    is_source = operator.kind is OperatorKind.SOURCE and not operator.name.startswith("Source")
    return f"Source: {operator.name}" if is_source else operator.name


def _sink_operator(sink: SinkPlan) -> VertexOperator:
    name = sink.name if sink.name.startswith("Sink") else f"Sink: {sink.name}"
    return VertexOperator(operator_id(sink.uid), sink.uid, name)
