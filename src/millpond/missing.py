"""PyFlink names that Millpond does not have: using one raises an error that names it and says what to use
instead.

There are three kinds: names in a module (`module_getattr`), whole modules (`MissingModuleFinder`, installed
by the package), and methods of classes that exist (`MissingMethods`, a mixin).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from millpond.errors import UnsupportedFeatureError


class MissingNameError(UnsupportedFeatureError, ImportError):
    """A PyFlink name that cannot be imported from Millpond."""


class MissingModuleError(UnsupportedFeatureError, ModuleNotFoundError):
    """A PyFlink module that Millpond does not have."""


class MissingMethodError(UnsupportedFeatureError, AttributeError):
    """A PyFlink method that a Millpond class does not have."""


_ASYNC = "use map or process; asynchronous functions are not supported yet"
_BACKENDS = "set state.backend.type to hashmap, rocksdb, memory or a class of your own"
_STORAGE = "set execution.checkpointing.dir"
_FORMATS = "import it from millpond.datastream.formats.json, csv or avro"
_OTHER_FORMAT = "use Parquet; this format is not supported yet"
_CONNECTOR = "use a file, a collection or a SourceFunction; this connector is not supported yet"
_FILES = "leave it out: a sink writes to one folder, and its rolling policy joins small files"
_TABLE = "use the DataStream API; the Table API is not supported yet"

_ASYNC_NAMES = ["AsyncDataStream", "AsyncFunction", "AsyncRetryPredicate", "AsyncRetryStrategy"]
_BACKEND_NAMES = [
    "HashMapStateBackend",
    "EmbeddedRocksDBStateBackend",
    "CustomStateBackend",
    "PredefinedOptions",
]
_STORAGE_NAMES = [
    "CheckpointStorage",
    "JobManagerCheckpointStorage",
    "FileSystemCheckpointStorage",
    "CustomCheckpointStorage",
]
_FORMAT_NAMES = [
    f"{kind}Row{way}Schema"
    for kind in ("Json", "Csv", "Avro")
    for way in ("Deserialization", "Serialization")
]
_FILE_NAMES = [
    "BucketAssigner",
    "FileCompactStrategy",
    "FileCompactor",
    "FileEnumeratorProvider",
    "FileSplitAssignerProvider",
    "StreamingFileSink",
]

_DATASTREAM = {
    **dict.fromkeys(_ASYNC_NAMES, _ASYNC),
    **dict.fromkeys(_BACKEND_NAMES, _BACKENDS),
    **dict.fromkeys(_STORAGE_NAMES, _STORAGE),
    "CachedDataStream": "write to a file sink and read it again",
    "MemorySize": "set Spark's executor memory (spark.executor.memory)",
}
_COMMON = {
    "ConfigOption": "use Configuration.set_string",
    "ConfigOptions": "use Configuration.set_string",
    "InputDependencyConstraint": "leave it out; Flink itself no longer uses it",
    "TypeSerializer": "declare Types instead",
    "InstantTypeInfo": "use Types.INSTANT()",
    "LocalTimeTypeInfo": "use Types.SQL_TIMESTAMP()",
    **dict.fromkeys(_FORMAT_NAMES, _FORMATS),
}
# Names by module prefix. The longest prefix that fits a module counts.
MISSING_NAMES = {
    "millpond.common": _COMMON,
    "millpond.datastream": _DATASTREAM,
    "millpond.datastream.connectors.file_system": dict.fromkeys(_FILE_NAMES, _FILES),
    "millpond.datastream.connectors.kafka": {
        "FlinkKafkaConsumer": "use KafkaSource",
        "FlinkKafkaProducer": "use KafkaSink",
        "Semantic": "use DeliveryGuarantee",
    },
}
MISSING_MODULES = {
    "millpond.table": _TABLE,
    "millpond.fn_execution": "do without it; it is internal to PyFlink",
    "millpond.datastream.formats.orc": _OTHER_FORMAT,
    "millpond.datastream.checkpoint_storage": _STORAGE,
    "millpond.datastream.async_data_stream": _ASYNC,
    **{
        f"millpond.datastream.connectors.{name}": _CONNECTOR
        for name in [
            "cassandra",
            "dynamic_kafka",
            "elasticsearch",
            "kinesis",
            "pulsar",
            "rabbitmq",
        ]
    },
}

_FLINK_ONLY = "leave it out; it tunes Flink's own runtime and has no meaning on Spark"
_CHECKPOINTS = "leave it out; every batch is a checkpoint"
MISSING_METHODS: dict[str, dict[str, str]] = {
    "ExecutionConfig": dict.fromkeys(
        [
            f"{way}_{what}"
            for way in ("enable", "disable")
            for what in (
                "closure_cleaner",
                "force_avro",
                "force_kryo",
                "generic_types",
                "object_reuse",
            )
        ]
        + [
            "get_default_kryo_serializer_classes",
            "get_latency_tracking_interval",
            "get_registered_kryo_types",
            "get_registered_pojo_types",
            "get_task_cancellation_interval",
            "get_task_cancellation_timeout",
            "has_generic_types_disabled",
            "is_closure_cleaner_enabled",
            "is_force_avro_enabled",
            "is_force_kryo_enabled",
            "is_object_reuse_enabled",
            "is_use_snapshot_compression",
            "set_latency_tracking_interval",
            "set_task_cancellation_interval",
            "set_task_cancellation_timeout",
            "set_use_snapshot_compression",
        ],
        _FLINK_ONLY,
    ),
    "CheckpointConfig": dict.fromkeys(
        [
            "disable_unaligned_checkpoints",
            "enable_unaligned_checkpoints",
            "is_fail_on_checkpointing_errors",
            "is_force_unaligned_checkpoints",
            "is_unaligned_checkpoints_enabled",
            "set_fail_on_checkpointing_errors",
            "set_force_unaligned_checkpoints",
        ]
        + [
            f"{way}_{what}"
            for way in ("get", "set")
            for what in (
                "aligned_checkpoint_timeout",
                "alignment_timeout",
            )
        ]
        + ["set_max_concurrent_checkpoints"],
        _CHECKPOINTS,
    ),
    "StreamExecutionEnvironment": {
        "add_classpaths": _FLINK_ONLY,
        "add_python_archive": "install the packages on the workers or use add_python_file",
        "enable_changelog_state_backend": "leave it out; state is always kept in a change log",
        "is_changelog_state_backend_enabled": "leave it out; state is always kept in a change log",
        "get_buffer_timeout": _FLINK_ONLY,
        "set_buffer_timeout": "set millpond.batch.interval-ms",
        "get_checkpointing_consistency_mode": "use get_checkpointing_mode",
        "get_default_local_parallelism": "use get_parallelism",
        "set_default_local_parallelism": "use set_parallelism",
        "is_chaining_of_operators_with_different_max_parallelism_enabled": _FLINK_ONLY,
        "is_force_unaligned_checkpoints": _CHECKPOINTS,
        "is_unaligned_checkpoints_enabled": _CHECKPOINTS,
        "register_cached_file": "open the file in open(), from a folder that all workers can reach",
        "register_slot_sharing_group": "name the group on the operator",
        "set_python_executable": "run the program with that Python; workers use the same one",
        "set_python_requirements": "install the packages on the workers",
    },
    "SlotSharingGroup": dict.fromkeys(
        [
            "get_cpu_cores",
            "get_external_resources",
            "get_managed_memory",
            "get_task_heap_memory",
            "get_task_off_heap_memory",
        ],
        "set resources on Spark's executors (spark.executor.*)",
    ),
    "CsvSchemaBuilder": dict.fromkeys(
        [
            "add_array_column",
            "add_columns_from",
            "set_allow_comments",
            "set_any_property_name",
            "set_array_element_separator",
            "set_line_separator",
            "set_reorder_columns",
            "set_strict_headers",
        ],
        "leave it out; CSV columns are strings, numbers and booleans in the order of the schema, and "
        "every record is one line",
    ),
    "FileSourceBuilder": dict.fromkeys(
        ["set_file_enumerator", "set_split_assigner"],
        "leave it out; every file is read in pieces by the workers that are free",
    ),
    **dict.fromkeys(
        ["RowFormatBuilder", "BulkFormatBuilder"],
        dict.fromkeys(["enable_compact", "disable_compact"], _FILES),
    ),
}


def module_getattr(module: str) -> Callable[[str], Any]:
    """Return a `__getattr__` for a module that raises MissingNameError for the names listed above."""
    fitting = [prefix for prefix in MISSING_NAMES if f"{module}.".startswith(f"{prefix}.")]
    names = MISSING_NAMES[max(fitting, key=len)]

    def getattr_(name: str) -> object:
        if name in names:
            raise MissingNameError(f"Millpond does not have {module}.{name}: {names[name]}.")
        raise AttributeError(f"module '{module}' has no attribute '{name}'")

    return getattr_


class MissingMethods:
    """A mixin: calling a method that only PyFlink's class has raises MissingMethodError, which names it."""

    def __getattr__(self, name: str) -> Any:
        reason = MISSING_METHODS.get(type(self).__name__, {}).get(name)
        if reason is not None:
            raise MissingMethodError(
                f"Millpond does not have {type(self).__name__}.{name}: {reason}."
            )
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")


class MissingModuleFinder:
    """An import hook that raises MissingModuleError for modules that only PyFlink has.

    It is not a subclass of importlib's finder, because importing that takes 20 ms in every process.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> None:
        """Raise MissingModuleError if the module is one of PyFlink's; otherwise leave it to other finders."""
        reason = MISSING_MODULES.get(fullname)
        if reason is not None:
            error = MissingModuleError(f"Millpond does not have {fullname}: {reason}.")
            error.name = fullname
            raise error
        return


def install_finder() -> None:
    """Install the import hook, unless it is installed already."""
    if not any(isinstance(finder, MissingModuleFinder) for finder in sys.meta_path):
        sys.meta_path.append(MissingModuleFinder())
