"""The DataStream API, with PyFlink's names."""

from millpond.datastream.checkpoint_config import CheckpointConfig
from millpond.datastream.checkpointing_mode import CheckpointingMode
from millpond.datastream.data_stream import (
    CloseableIterator,
    ConnectedStreams,
    DataStream,
    DataStreamSink,
    KeyedStream,
)
from millpond.datastream.execution_mode import RuntimeExecutionMode
from millpond.datastream.functions import (
    AggregateFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    FilterFunction,
    FlatMapFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    Partitioner,
    ProcessFunction,
    ReduceFunction,
    RuntimeContext,
    SinkFunction,
    SourceFunction,
)
from millpond.datastream.output_tag import OutputTag
from millpond.datastream.slot_sharing_group import SlotSharingGroup
from millpond.datastream.stream_execution_environment import StreamExecutionEnvironment
from millpond.datastream.time_domain import TimeDomain
from millpond.datastream.timerservice import TimerService
from millpond.missing import module_getattr

__all__ = [
    "AggregateFunction",
    "CheckpointConfig",
    "CheckpointingMode",
    "CloseableIterator",
    "CoFlatMapFunction",
    "CoMapFunction",
    "CoProcessFunction",
    "ConnectedStreams",
    "DataStream",
    "DataStreamSink",
    "FilterFunction",
    "FlatMapFunction",
    "KeySelector",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "KeyedStream",
    "MapFunction",
    "OutputTag",
    "Partitioner",
    "ProcessFunction",
    "ReduceFunction",
    "RuntimeContext",
    "RuntimeExecutionMode",
    "SinkFunction",
    "SlotSharingGroup",
    "SourceFunction",
    "StreamExecutionEnvironment",
    "TimeDomain",
    "TimerService",
]

__getattr__ = module_getattr(__name__)
