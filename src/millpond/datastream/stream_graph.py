"""The dataflow graph that a program builds: nodes are operators, edges say how records travel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from millpond.common.typeinfo import PickledBytesTypeInfo, TypeInformation
from millpond.datastream.operator_state import keeps_operator_state


class OperatorKind(Enum):
    """What an operator does with a record. The engine has a class for each."""

    SOURCE = "source"
    MAP = "map"
    FLAT_MAP = "flat_map"
    FILTER = "filter"
    PROCESS = "process"
    KEYED_PROCESS = "keyed_process"
    KEYED_COLUMNS = "keyed_columns"
    WINDOW = "window"
    REDUCE = "reduce"
    CO_MAP = "co_map"
    CO_FLAT_MAP = "co_flat_map"
    CO_PROCESS = "co_process"
    KEYED_CO_PROCESS = "keyed_co_process"
    BROADCAST_PROCESS = "broadcast_process"
    KEYED_BROADCAST_PROCESS = "keyed_broadcast_process"
    ASSIGN_WATERMARKS = "assign_watermarks"
    SINK = "sink"
    SINK_FUNCTION = "sink_function"  # one that keeps state: an operator without output


class SinkKind(Enum):
    """How records leave a job: printed or collected by the driver, written by a SinkFunction or by a
    two-phase sink."""

    PRINT = "print"
    COLLECT = "collect"
    FUNCTION = "function"
    TWO_PHASE = "two_phase"


class ExchangeKind(Enum):
    """How records get from one operator to the next (E4). The value is Flink's ship strategy."""

    FORWARD = "FORWARD"
    KEY = "HASH"
    REBALANCE = "REBALANCE"
    RESCALE = "RESCALE"
    SHUFFLE = "SHUFFLE"
    BROADCAST = "BROADCAST"
    GLOBAL = "GLOBAL"
    CUSTOM = "CUSTOM"


@dataclass(frozen=True)
class Exchange:
    """How records travel along an edge. `explicit` means that the program asked for it."""

    kind: ExchangeKind = ExchangeKind.FORWARD
    key_selector: Any = None
    partitioner: Any = None
    key_type: TypeInformation | None = None
    explicit: bool = False


class Chaining(Enum):
    """Where an operator may stand in a chain of the plan that is shown."""

    ALWAYS = "always"
    HEAD = "head"  # may have followers, but starts a chain
    NEVER = "never"


@dataclass
class Edge:
    """An input of a node: the id of the node it comes from, and how records travel.

    `tag` is the id of a side output, None for the main output; `input_index` is 0, or 1 for the second input.
    """

    source: int
    exchange: Exchange
    tag: str | None = None
    input_index: int = 0


@dataclass
class Node:
    """An operator. `parallelism` is None where the program did not set it."""

    id: int
    kind: OperatorKind
    name: str
    function: Any = None
    inputs: list[Edge] = field(default_factory=list)
    output_type: TypeInformation = field(default_factory=PickledBytesTypeInfo)
    tag_types: dict[str, TypeInformation] = field(default_factory=dict)
    uid: str | None = None
    uid_hash: str | None = None
    parallelism: int | None = None
    max_parallelism: int | None = None
    chaining: Chaining = Chaining.ALWAYS
    slot_sharing_group: str | None = None
    description: str | None = None
    sink_kind: SinkKind | None = None
    sink_identifier: str | None = None

    @property
    def is_keyed(self) -> bool:
        """True if an input is partitioned by key."""
        return any(edge.exchange.kind is ExchangeKind.KEY for edge in self.inputs)

    @property
    def is_sink(self) -> bool:
        """True where a stream may end; an operator that only keeps state for look-ups is an end, too."""
        ends = self.kind in (OperatorKind.SINK, OperatorKind.SINK_FUNCTION)
        return ends or getattr(self.function, "is_sink", False)

    @property
    def has_state(self) -> bool:
        """True if the operator keeps state: keyed, broadcast or operator state."""
        is_broadcast = self.kind is OperatorKind.BROADCAST_PROCESS
        return self.is_keyed or is_broadcast or keeps_operator_state(self.function)


@dataclass
class StreamGraph:
    """All nodes of a program, in the order in which they were added, which is a topological order."""

    nodes: dict[int, Node] = field(default_factory=dict)
    _next_id: int = 1

    def add(self, kind: OperatorKind, name: str, **attributes: Any) -> Node:
        """Add a node with the next id and return it; `attributes` are fields of `Node`."""
        node = Node(self._next_id, kind, name, **attributes)
        self._next_id += 1
        self.nodes[node.id] = node
        return node

    def outputs(self, node_id: int) -> list[tuple[Node, Edge]]:
        """Return the nodes that read from a node, each with the edge between them."""
        return [
            (node, edge)
            for node in self.nodes.values()
            for edge in node.inputs
            if edge.source == node_id
        ]

    def select(self, wanted: Callable[[Node], bool]) -> StreamGraph:
        """Return the part of the graph that the wanted nodes depend on."""
        keep: set[int] = set()
        pending = [node.id for node in self.nodes.values() if wanted(node)]
        while pending:
            node_id = pending.pop()
            if node_id not in keep:
                keep.add(node_id)
                pending.extend(edge.source for edge in self.nodes[node_id].inputs)
        return StreamGraph({i: n for i, n in self.nodes.items() if i in keep}, self._next_id)
