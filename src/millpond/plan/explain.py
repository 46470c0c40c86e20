"""Shows a plan: as Flink's JSON, and as a drawing for the terminal (E2)."""

from __future__ import annotations

from typing import Any

from millpond.datastream.stream_graph import (
    Chaining,
    Exchange,
    ExchangeKind,
    Node,
    OperatorKind,
    StreamGraph,
)
from millpond.plan.physical import JobPlan


def chains(graph: StreamGraph, plan: JobPlan, chaining: bool = True) -> dict[int, int]:
    """node -> first node of its chain (E7): forward, same parallelism, same slot sharing group,
    one input, and nobody asked for a new chain."""
    first: dict[int, int] = {}
    for node in graph.nodes.values():
        first[node.id] = node.id
        if len(node.inputs) != 1 or node.chaining is not Chaining.ALWAYS or not chaining:
            continue
        edge = node.inputs[0]
        before = graph.nodes[edge.source]
        continues = (
            edge.exchange.kind is ExchangeKind.FORWARD
            and node.id not in plan.tasks
            and before.chaining is not Chaining.NEVER
            and (node.slot_sharing_group or before.slot_sharing_group) == before.slot_sharing_group
            and _parallelism(plan, node) == _parallelism(plan, before)
        )
        if continues:
            first[node.id] = first[before.id]
    return first


def _parallelism(plan: JobPlan, node: Node) -> int:
    planned = plan.sinks.get(node.id) or plan.operators.get(node.id)
    assert planned is not None
    return planned.parallelism


def _title(node: Node) -> str:
    if node.kind is OperatorKind.SOURCE and not node.name.startswith("Source"):
        return f"Source: {node.name}"
    if node.is_sink and not node.name.startswith("Sink"):
        return f"Sink: {node.name}"
    return node.name


def _pact(node: Node) -> str:
    if node.is_sink:
        return "Data Sink"
    return "Data Source" if node.kind is OperatorKind.SOURCE else "Operator"


def _strategy(exchange: Exchange) -> str:
    return exchange.kind.value


def to_json(graph: StreamGraph, plan: JobPlan, chaining: bool = True) -> dict[str, Any]:
    """The plan with Flink's field names, plus each node's level, chain, uid and state."""
    chain_of = chains(graph, plan, chaining)
    nodes = []
    for node in graph.nodes.values():
        planned = plan.sinks.get(node.id) or plan.operators[node.id]
        entry: dict[str, Any] = {
            "id": node.id,
            "type": _title(node),
            "pact": _pact(node),
            "contents": node.description or _title(node),
            "parallelism": _parallelism(plan, node),
            "uid": planned.uid,
            "chain": chain_of[node.id],
        }
        owners = [task for task in plan.tasks.values() if node.id in task.operators]
        if owners:
            entry["level"] = owners[0].level
        if node.has_state:
            entry["max_parallelism"] = plan.operators[node.id].max_parallelism
        if node.slot_sharing_group:
            entry["slot_sharing_group"] = node.slot_sharing_group
        if node.inputs:
            entry["predecessors"] = [
                {"id": edge.source, "ship_strategy": _strategy(edge.exchange), "side": "second"}
                | ({"output_tag": edge.tag} if edge.tag else {})
                for edge in node.inputs
            ]
        nodes.append(entry)
    return {"nodes": nodes, "levels": plan.levels, "name": plan.name}


def draw(graph: StreamGraph, plan: JobPlan, chaining: bool = True) -> str:
    """One box per pass; inside, the chains; beside each, where records go."""
    chain_of = chains(graph, plan, chaining)
    boxes: list[tuple[str, list[str]]] = []
    for level in range(plan.levels + 1):
        tasks = plan.tasks_at(level)
        kind = "read" if level == 0 else "keyed state" if any(t.keyed for t in tasks) else "work"
        lines = [
            line for task in tasks for line in _task_lines(task.operators, graph, plan, chain_of)
        ]
        boxes.append((f"pass {level}: {kind}", lines))
    sinks = [
        f"[{sink.id}] {_title(graph.nodes[sink.id])} x{sink.parallelism}"
        for sink in plan.sinks.values()
    ]
    boxes.append(("output: one epoch per batch", sinks))
    width = max(len(line) for title, lines in boxes for line in [title, *lines])
    drawn = [_box(title, lines, width) for title, lines in boxes]
    arrow = "\n" + " " * 8 + "|\n"
    return f"Job '{plan.name}': one Spark job per batch, {plan.levels + 1} passes\n" + arrow.join(
        drawn
    )


def _task_lines(
    operators: list[int], graph: StreamGraph, plan: JobPlan, chain_of: dict[int, int]
) -> list[str]:
    lines = []
    for first in dict.fromkeys(chain_of[op] for op in operators):
        members = [op for op in operators if chain_of[op] == first]
        if not members:
            continue
        names = " -> ".join(f"[{op}] {_title(graph.nodes[op])}" for op in members)
        lines.append(f"{names} x{_parallelism(plan, graph.nodes[members[0]])}")
        for op in members:
            for node, edge in graph.outputs(op):
                if node.id in plan.tasks or node.kind is OperatorKind.SINK:
                    tag = f" (side output {edge.tag})" if edge.tag else ""
                    lines.append(f"    {_strategy(edge.exchange)} to [{node.id}]{tag}")
    return lines


def _box(title: str, lines: list[str], width: int) -> str:
    top = f"+-- {title} " + "-" * (width - len(title)) + "+"
    bottom = "+" + "-" * (len(top) - 2) + "+"
    return "\n".join([top, *(f"|  {line.ljust(width)}  |" for line in lines), bottom])
