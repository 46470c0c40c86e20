"""Where a program begins: creates sources, holds settings, runs jobs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

from millpond.common import options
from millpond.common.configuration import Configuration
from millpond.common.execution_config import ExecutionConfig
from millpond.common.job import JobClient, JobExecutionResult
from millpond.common.typeinfo import TypeInformation, TypeLike, Types, to_type_info
from millpond.common.watermark_strategy import WatermarkStrategy
from millpond.datastream.checkpoint_config import CheckpointConfig
from millpond.datastream.checkpointing_mode import CheckpointingMode
from millpond.datastream.connectors.base import Source
from millpond.datastream.connectors.collection import (
    CollectionSource,
    NumberSequenceSource,
)
from millpond.datastream.connectors.file_system import BulkFormat, FileSource, StreamFormat
from millpond.datastream.connectors.function_source import FunctionSource
from millpond.datastream.connectors.socket_source import SocketSource
from millpond.datastream.data_stream import CloseableIterator, DataStream
from millpond.datastream.execution import Program, execution_service
from millpond.datastream.execution_mode import RuntimeExecutionMode
from millpond.datastream.functions import SourceFunction
from millpond.datastream.stream_graph import Edge, Exchange, Node, OperatorKind, StreamGraph
from millpond.errors import ProgramError, UnsupportedFeatureError
from millpond.missing import MissingMethods

SETTINGS_VARIABLE = "MILLPOND_SETTINGS"
DEFAULTS_VARIABLE = "MILLPOND_DEFAULTS"


class StreamExecutionEnvironment(MissingMethods):
    """Builds streams and runs them with `execute`. Setters return the environment itself.

    Settings given to the constructor take precedence over a dispatcher's defaults, and those of the command
    line (`millpond run`) over both; the latter two are passed on in environment variables. Methods that only
    PyFlink has raise MissingMethodError.
    """

    def __init__(self, configuration: Configuration | None = None) -> None:
        self._configuration = _passed_on(DEFAULTS_VARIABLE)
        if configuration is not None:
            self._configuration.add_all(configuration)
        self._configuration.add_all(_passed_on(SETTINGS_VARIABLE))
        self._config = ExecutionConfig(self._configuration)
        self._graph = StreamGraph()
        self._executed: set[int] = set()
        self._chaining = True

    @staticmethod
    def get_execution_environment(
        configuration: Configuration | None = None,
    ) -> StreamExecutionEnvironment:
        """Return a new environment with these settings."""
        return StreamExecutionEnvironment(configuration)

    # --- settings ------------------------------------------------------------------------------------

    def get_config(self) -> ExecutionConfig:
        """Return a view of the settings."""
        return self._config

    def get_checkpoint_config(self) -> CheckpointConfig:
        """Return a view of the settings about checkpoints."""
        return CheckpointConfig(self._configuration)

    def configure(self, configuration: Configuration) -> None:
        """Add settings, replacing those with the same keys."""
        self._configuration.add_all(configuration)

    def set_parallelism(self, parallelism: int) -> StreamExecutionEnvironment:
        """Set the default number of subtasks per operator; raise ProgramError if it is below 1."""
        if parallelism < 1:
            raise ProgramError(f"The parallelism must be at least 1, not {parallelism}.")
        self._config.set_parallelism(parallelism)
        return self

    def get_parallelism(self) -> int:
        """Return the default parallelism, or 0 if it is not set; then it is the number of the cluster's
        cores."""
        return self._config.get_parallelism()

    def set_max_parallelism(self, max_parallelism: int) -> StreamExecutionEnvironment:
        """Set the number of key groups. It cannot change once a job has state."""
        self._config.set_max_parallelism(max_parallelism)
        return self

    def get_max_parallelism(self) -> int:
        """Return the number of key groups, or -1 if it is derived from the parallelism."""
        return self._config.get_max_parallelism()

    def set_runtime_mode(self, execution_mode: RuntimeExecutionMode) -> StreamExecutionEnvironment:
        """Set whether the job runs as STREAMING, BATCH or AUTOMATIC."""
        self._configuration.set_string(options.RUNTIME_MODE.key, execution_mode.name)
        return self

    def enable_checkpointing(
        self, interval: int, mode: CheckpointingMode | None = None
    ) -> StreamExecutionEnvironment:
        """Keep interval and mode for PyFlink programs: every batch is a checkpoint anyway.

        Set `execution.checkpointing.dir` for checkpoints that outlive the process.
        """
        config = self.get_checkpoint_config().set_checkpoint_interval(interval)
        if mode is not None:
            config.set_checkpointing_mode(mode)
        return self

    def set_default_savepoint_directory(self, directory: str) -> StreamExecutionEnvironment:
        """Set the folder for savepoints that are requested without one."""
        self._configuration.set_string(options.SAVEPOINT_DIR.key, directory)
        return self

    def get_default_savepoint_directory(self) -> str | None:
        """Return the folder for savepoints that are requested without one, or None."""
        return options.SAVEPOINT_DIR.read(self._configuration)  # type: ignore[no-any-return]

    def get_checkpoint_interval(self) -> int:
        """Return the interval that was set, in milliseconds; -1 by default."""
        return self.get_checkpoint_config().get_checkpoint_interval()

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """Return the mode that was set; EXACTLY_ONCE by default."""
        return self.get_checkpoint_config().get_checkpointing_mode()

    def disable_operator_chaining(self) -> StreamExecutionEnvironment:
        """Show operators without chains in the plan. How they run does not change."""
        self._chaining = False
        return self

    def is_chaining_enabled(self) -> bool:
        """Return False if `disable_operator_chaining` was called."""
        return self._chaining

    def add_python_file(self, file_path: str) -> None:
        """Let workers import a module (.py), the contents of a zip file, or those of a folder.

        Raise ProgramError if the path does not exist.
        """
        if not os.path.exists(file_path):
            raise ProgramError(f"add_python_file: {file_path} does not exist.")
        known = options.PYTHON_FILES.read(self._configuration)
        path = os.path.abspath(file_path)
        self._configuration.set_string(
            options.PYTHON_FILES.key, f"{known},{path}" if known else path
        )

    def add_jars(self, *jars_path: str) -> None:
        """Raise UnsupportedFeatureError: Flink's connector jars are of no use on Spark."""
        raise UnsupportedFeatureError(
            "Millpond does not have StreamExecutionEnvironment.add_jars: leave it out; Flink's connector "
            "jars are of no use on Spark."
        )

    # --- sources -------------------------------------------------------------------------------------

    def from_collection(self, collection: Iterable[Any], type_info: TypeLike = None) -> DataStream:
        """Return a stream of the elements of a collection, in order.

        If the job is restarted in a new process, the program must give the same elements again.
        """
        records = list(collection)
        return self._source(CollectionSource(records), "Collection Source", type_info)

    def from_sequence(self, start: int, end: int) -> DataStream:
        """Return a stream of the numbers from `start` to `end`, both included."""
        return self._source(NumberSequenceSource(start, end), "Sequence Source", Types.LONG())

    def from_source(
        self,
        source: Source,
        watermark_strategy: WatermarkStrategy,
        source_name: str,
        type_info: TypeLike = None,
    ) -> DataStream:
        """Return a stream of a source's records, with event time by the watermark strategy."""
        if not isinstance(source, Source):
            raise TypeError(f"from_source takes a Source, not {type(source).__name__}")
        stream = self._source(source, source_name, type_info)
        timed = stream.assign_timestamps_and_watermarks(watermark_strategy)
        timed._source = stream._node
        return timed

    def add_source(
        self,
        source_func: SourceFunction,
        source_name: str = "Custom Source",
        type_info: TypeLike = None,
    ) -> DataStream:
        """Return a stream of what a SourceFunction emits."""
        if not isinstance(source_func, SourceFunction):
            raise TypeError(f"add_source takes a SourceFunction, not {type(source_func).__name__}")
        return self._source(FunctionSource(source_func), source_name, type_info)

    def read_text_file(self, file_path: str, charset_name: str = "UTF-8") -> DataStream:
        """Return a stream of the lines of a text file, or of all files of a folder."""
        source = FileSource(StreamFormat.text_line_format(charset_name), (file_path,), None)
        return self._source(source, "Text File Source", Types.STRING())

    def create_input(
        self, input_format: Any, type_info: TypeInformation | None = None
    ) -> DataStream:
        """Return a stream of the records of an AvroInputFormat.

        Other formats raise UnsupportedFeatureError: read them with `from_source` and a FileSource.
        """
        bulk_format = getattr(input_format, "format", None)
        if not isinstance(bulk_format, BulkFormat):
            raise UnsupportedFeatureError(
                f"create_input cannot read {type(input_format).__name__}: use a FileSource."
            )
        source = FileSource.for_bulk_file_format(bulk_format, input_format.path).build()
        return self._source(source, "Input", type_info)

    def socket_text_stream(
        self, hostname: str, port: int, delimiter: str = "\n", max_retry: int = 0
    ) -> DataStream:
        """Return a stream of the lines that a TCP server sends. Beyond PyFlink, with the name of Flink's Java
        API.

        What is lost with the connection, or with the driver, does not come again. `max_retry` is in seconds.
        """
        source = SocketSource(hostname, port, delimiter, max_retry)
        return self._source(source, "Socket Stream", Types.STRING())

    def _source(self, source: Source, name: str, type_info: TypeLike) -> DataStream:
        declared = to_type_info(type_info)
        node = self._graph.add(OperatorKind.SOURCE, name, function=source, output_type=declared)
        return DataStream(self, [Edge(node.id, Exchange())], declared)

    # --- running -------------------------------------------------------------------------------------

    def execute(self, job_name: str | None = None) -> JobExecutionResult:
        """Run everything added since the last `execute`, wait for its end and return the result.

        Raise ProgramError if the program is not valid, JobExecutionError if the job fails.
        """
        return self.execute_async(job_name).get_job_execution_result().result()

    def execute_async(self, job_name: str | None = None) -> JobClient:
        """Start everything added since the last `execute` and return a client for the running job."""
        return execution_service().submit(self._program(self._next_graph(), job_name))

    def get_execution_plan(self) -> str:
        """Return the plan of the next job as JSON, with Flink's field names."""
        return execution_service().plan_as_json(self._program(self._pending_graph(), None))

    def draw_execution_plan(self) -> str:
        """Return the plan of the next job, drawn for a terminal. Beyond PyFlink."""
        return execution_service().draw_plan(self._program(self._pending_graph(), None))

    def _program(self, graph: StreamGraph, job_name: str | None) -> Program:
        return Program(graph, self._configuration, self._config, job_name, self._chaining)

    def close(self) -> None:
        """Forget the program's streams. Spark keeps running for the next environment."""
        self._graph = StreamGraph()

    def _pending_graph(self) -> StreamGraph:
        executed = self._executed
        return self._graph.select(lambda node: node.is_sink and node.id not in executed)

    def _next_graph(self) -> StreamGraph:
        graph = self._pending_graph()
        self._executed.update(node.id for node in graph.nodes.values() if node.is_sink)
        return graph

    def _execute_and_collect(
        self, sink: Node, job_name: str | None, limit: int | None
    ) -> CloseableIterator | list[Any]:
        graph = self._graph.select(lambda node: node is sink)
        self._executed.add(sink.id)
        iterator = execution_service().submit_and_collect(self._program(graph, job_name))
        if limit is None:
            return iterator
        with iterator:
            return [value for _, value in zip(range(limit), iterator, strict=False)]


def _passed_on(variable: str) -> Configuration:
    """Return the settings in an environment variable."""
    return Configuration.from_dict(json.loads(os.environ.get(variable, "{}")))
