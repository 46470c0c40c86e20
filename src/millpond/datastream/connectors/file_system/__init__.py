"""Files as sources and sinks, with PyFlink's names."""

from millpond.datastream.connectors.file_system.formats import BulkFormat, StreamFormat
from millpond.datastream.connectors.file_system.rolling import (
    DefaultRollingPolicy,
    OnCheckpointRollingPolicy,
    OutputFileConfig,
    RollingPolicy,
)
from millpond.datastream.connectors.file_system.sink import FileSink
from millpond.datastream.connectors.file_system.source import FileSource, FileSourceBuilder
from millpond.missing import module_getattr

__all__ = [
    "BulkFormat",
    "DefaultRollingPolicy",
    "FileSink",
    "FileSource",
    "FileSourceBuilder",
    "OnCheckpointRollingPolicy",
    "OutputFileConfig",
    "RollingPolicy",
    "StreamFormat",
]

__getattr__ = module_getattr(__name__)
