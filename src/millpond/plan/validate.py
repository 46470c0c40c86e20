"""Refuses a program before anything runs, in words that say what to do."""

from __future__ import annotations

from typing import Any

import cloudpickle

from millpond.core.key_groups import UPPER_BOUND_MAX_PARALLELISM
from millpond.datastream.operator_state import keeps_operator_state
from millpond.datastream.stream_graph import ExchangeKind, Node, OperatorKind, StreamGraph
from millpond.errors import ProgramError, UnsupportedFeatureError


def validate(
    graph: StreamGraph, parallelism: int, max_parallelism: int | None, auto_uids: bool
) -> None:
    """Raise ProgramError, naming the operator, if a graph cannot run as it is."""
    if not any(node.is_sink for node in graph.nodes.values()):
        raise ProgramError(
            "The program has no sink, so it would do nothing. Add print(), sink_to(), add_sink() "
            "or use execute_and_collect()."
        )
    _check_uids(graph, auto_uids)
    _check_queryable_names(graph)
    for node in graph.nodes.values():
        _check_parallelism(node, parallelism, max_parallelism)
        _check_pickling(node)
        _check_operator_state(node)
        for edge in node.inputs:
            forward = edge.exchange.kind is ExchangeKind.FORWARD and edge.exchange.explicit
            upstream = graph.nodes[edge.source]
            if forward and (node.parallelism or parallelism) != (
                upstream.parallelism or parallelism
            ):
                raise ProgramError(
                    f"forward() needs the same parallelism on both sides: {_title(upstream)} has "
                    f"{upstream.parallelism or parallelism}, {_title(node)} has "
                    f"{node.parallelism or parallelism}. Use rebalance() or rescale()."
                )


def _title(node: Node) -> str:
    return f"operator '{node.name}'"


def _check_uids(graph: StreamGraph, auto_uids: bool) -> None:
    owners: dict[str, Node] = {}
    for node in graph.nodes.values():
        if node.uid is not None:
            if node.uid in owners:
                raise ProgramError(
                    f"The uid '{node.uid}' is used by {_title(owners[node.uid])} and by "
                    f"{_title(node)}. A uid must be unique within a job."
                )
            owners[node.uid] = node
        elif node.has_state and not auto_uids and node.uid_hash is None:
            raise ProgramError(
                f"{_title(node)} keeps state but has no uid, and generated uids are switched off "
                "(pipeline.auto-generate-uids). Call .uid('...') on it."
            )


def _check_queryable_names(graph: StreamGraph) -> None:
    """Those of as_queryable_state. Other functions name theirs when they are opened (state_views.py)."""
    owners: dict[str, Node] = {}
    for node in graph.nodes.values():
        name = getattr(node.function, "queryable_name", None)
        if name is not None and owners.setdefault(name, node) is not node:
            raise ProgramError(
                f"The queryable state '{name}' is declared by {_title(owners[name])} and by "
                f"{_title(node)}. Such a name must be unique within a job."
            )


def _check_parallelism(node: Node, parallelism: int, max_parallelism: int | None) -> None:
    effective = node.parallelism or parallelism
    maximum = node.max_parallelism or max_parallelism
    if effective < 1:
        raise ProgramError(f"{_title(node)}: the parallelism must be at least 1, not {effective}.")
    if maximum is not None and not 1 <= maximum <= UPPER_BOUND_MAX_PARALLELISM:
        raise ProgramError(
            f"{_title(node)}: the max parallelism must be 1 to {UPPER_BOUND_MAX_PARALLELISM}, "
            f"not {maximum}."
        )
    if maximum is not None and effective > maximum:
        raise ProgramError(
            f"{_title(node)}: the parallelism {effective} is above the max parallelism {maximum}. "
            "Lower it, or raise pipeline.max-parallelism, which cannot change once the job has started."
        )


_WITH_OPERATOR_STATE = (
    OperatorKind.MAP,
    OperatorKind.FLAT_MAP,
    OperatorKind.FILTER,
    OperatorKind.PROCESS,
    OperatorKind.CO_MAP,
    OperatorKind.CO_FLAT_MAP,
    OperatorKind.CO_PROCESS,
    OperatorKind.BROADCAST_PROCESS,
    OperatorKind.SINK_FUNCTION,
)


def _check_operator_state(node: Node) -> None:
    if not keeps_operator_state(node.function):
        return
    if node.is_keyed:
        raise ProgramError(
            f"The function of {_title(node)} is a CheckpointedFunction, but it has keys: use keyed state "
            "(runtime_context.get_state(...) and such)."
        )
    if node.kind not in _WITH_OPERATOR_STATE:
        raise UnsupportedFeatureError(
            f"CheckpointedFunction: {_title(node)} cannot have operator state. map, flat_map, filter and "
            "process functions (on one or two streams), and those of add_source and add_sink, can. "
            "Other sources resume from their position()."
        )


def _check_pickling(node: Node) -> None:
    carried: list[tuple[str, Any]] = [("function", node.function)]
    for edge in node.inputs:
        carried.append(("key selector", edge.exchange.key_selector))
        carried.append(("partitioner", edge.exchange.partitioner))
    for what, value in carried:
        if value is None:
            continue
        try:
            cloudpickle.dumps(value)
        except Exception as problem:  # whatever a user's __reduce__ raises
            raise ProgramError(
                f"The {what} of {_title(node)} cannot be sent to workers: {problem}. It holds "
                "something that cannot be pickled (a connection, a lock, an open file, a Spark "
                "object): create that in open() instead."
            ) from None
