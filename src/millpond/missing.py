"""Names PyFlink has and Millpond does not have yet: importing one says so, and when it comes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millpond.errors import UnsupportedFeatureError


class MissingNameError(UnsupportedFeatureError, ImportError):
    """A PyFlink name that cannot be imported from Millpond."""


_WINDOWS = "windows are not there yet: use KeyedProcessFunction with timers"
_STATE = "operator and broadcast state are not there yet: use keyed state"
_ASYNC = "asynchronous functions are not there yet: use map or process"
_BACKENDS = "state lives in memory with a durable log (hashmap): leave the backend setting out"
_FORMATS = "formats come with the connectors: decode in map()"
_CONNECTOR = "this connector is not there yet: use a file, a collection or a SourceFunction"

MISSING: dict[str, dict[str, str]] = {
    "millpond.common": {
        "ConfigOption": "use Configuration.set_string",
        "ConfigOptions": "use Configuration.set_string",
        "InputDependencyConstraint": "Flink itself no longer uses it: leave it out",
        "TypeSerializer": "declare Types instead",
        "JsonRowDeserializationSchema": _FORMATS,
        "JsonRowSerializationSchema": _FORMATS,
        "CsvRowDeserializationSchema": _FORMATS,
        "CsvRowSerializationSchema": _FORMATS,
        "AvroRowDeserializationSchema": _FORMATS,
        "AvroRowSerializationSchema": _FORMATS,
    },
    "millpond.datastream": {
        **dict.fromkeys(
            [
                "WindowedStream",
                "WindowFunction",
                "ProcessWindowFunction",
                "AllWindowFunction",
                "ProcessAllWindowFunction",
                "Window",
                "TimeWindow",
                "CountWindow",
                "GlobalWindow",
                "WindowAssigner",
                "MergingWindowAssigner",
                "TriggerResult",
                "Trigger",
            ],
            _WINDOWS,
        ),
        **dict.fromkeys(
            [
                "BroadcastStream",
                "BroadcastConnectedStream",
                "BroadcastProcessFunction",
                "KeyedBroadcastProcessFunction",
            ],
            _STATE,
        ),
        **dict.fromkeys(
            ["AsyncDataStream", "AsyncFunction", "AsyncRetryPredicate", "AsyncRetryStrategy"],
            _ASYNC,
        ),
        **dict.fromkeys(
            [
                "StateBackend",
                "HashMapStateBackend",
                "EmbeddedRocksDBStateBackend",
                "CustomStateBackend",
                "PredefinedOptions",
                "CheckpointStorage",
                "JobManagerCheckpointStorage",
                "FileSystemCheckpointStorage",
                "CustomCheckpointStorage",
            ],
            _BACKENDS,
        ),
    },
}
MISSING["millpond.datastream.functions"] = dict(MISSING["millpond.datastream"])
MISSING["millpond.datastream.connectors"] = {"*": _CONNECTOR}


def module_getattr(module: str) -> Callable[[str], Any]:
    """A module's `__getattr__` that raises MissingNameError for the names listed above."""

    def getattr_(name: str) -> Any:
        reason = MISSING.get(module, {}).get(name)
        if reason is not None:
            raise MissingNameError(f"{module}.{name} is not there yet: {reason}.")
        raise AttributeError(f"module '{module}' has no attribute '{name}'")

    return getattr_
