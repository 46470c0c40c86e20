"""Maps each kind of operator in a plan to the class that runs it."""

from __future__ import annotations

from collections.abc import Callable

from millpond.datastream.stream_graph import OperatorKind
from millpond.engine.context import TaskClock
from millpond.engine.operators.base import Operator
from millpond.engine.operators.broadcast import (
    BroadcastProcessOperator,
    KeyedBroadcastProcessOperator,
)
from millpond.engine.operators.keyed import (
    CoFlatMapOperator,
    CoMapOperator,
    CoProcessOperator,
    KeyedColumnsOperator,
    KeyedCoProcessOperator,
    KeyedProcessOperator,
)
from millpond.engine.operators.reduce import ReduceOperator
from millpond.engine.operators.sink import SinkFunctionOperator
from millpond.engine.operators.transforms import (
    FilterOperator,
    FlatMapOperator,
    MapOperator,
    ProcessOperator,
    SourceOperator,
)
from millpond.engine.time.watermark_operator import WatermarkOperator
from millpond.engine.windows.choice import window_operator
from millpond.plan.physical import OperatorPlan

OPERATORS: dict[OperatorKind, Callable[[OperatorPlan, TaskClock, int], Operator]] = {
    OperatorKind.SOURCE: SourceOperator,
    OperatorKind.MAP: MapOperator,
    OperatorKind.FLAT_MAP: FlatMapOperator,
    OperatorKind.FILTER: FilterOperator,
    OperatorKind.PROCESS: ProcessOperator,
    OperatorKind.KEYED_PROCESS: KeyedProcessOperator,
    OperatorKind.KEYED_COLUMNS: KeyedColumnsOperator,
    OperatorKind.WINDOW: window_operator,
    OperatorKind.REDUCE: ReduceOperator,
    OperatorKind.CO_MAP: CoMapOperator,
    OperatorKind.CO_FLAT_MAP: CoFlatMapOperator,
    OperatorKind.CO_PROCESS: CoProcessOperator,
    OperatorKind.KEYED_CO_PROCESS: KeyedCoProcessOperator,
    OperatorKind.BROADCAST_PROCESS: BroadcastProcessOperator,
    OperatorKind.KEYED_BROADCAST_PROCESS: KeyedBroadcastProcessOperator,
    OperatorKind.ASSIGN_WATERMARKS: WatermarkOperator,
    OperatorKind.SINK_FUNCTION: SinkFunctionOperator,
}
