"""Contracts shared by all APIs: types, time, configuration, jobs."""

from millpond.common.configuration import Configuration
from millpond.common.execution_config import ExecutionConfig
from millpond.common.job import CompletableFuture, JobClient, JobExecutionResult, JobID, JobStatus
from millpond.common.restart_strategy import RestartStrategies, RestartStrategyConfiguration
from millpond.common.serialization import (
    ByteArraySchema,
    DeserializationSchema,
    Encoder,
    SerializationSchema,
    SimpleStringSchema,
)
from millpond.common.time import Duration, Instant, Time
from millpond.common.typeinfo import TypeInformation, Types
from millpond.common.types import Row, RowKind
from millpond.common.watermark_strategy import (
    AssignerWithPeriodicWatermarksWrapper,
    TimestampAssigner,
    WatermarkGenerator,
    WatermarkOutput,
    WatermarkStrategy,
)
from millpond.missing import module_getattr

__all__ = [
    "AssignerWithPeriodicWatermarksWrapper",
    "ByteArraySchema",
    "CompletableFuture",
    "Configuration",
    "DeserializationSchema",
    "Duration",
    "Encoder",
    "ExecutionConfig",
    "Instant",
    "JobClient",
    "JobExecutionResult",
    "JobID",
    "JobStatus",
    "RestartStrategies",
    "RestartStrategyConfiguration",
    "Row",
    "RowKind",
    "SerializationSchema",
    "SimpleStringSchema",
    "Time",
    "TimestampAssigner",
    "TypeInformation",
    "Types",
    "WatermarkGenerator",
    "WatermarkOutput",
    "WatermarkStrategy",
]

__getattr__ = module_getattr(__name__)
