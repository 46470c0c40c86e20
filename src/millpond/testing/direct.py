"""Whole jobs in the calling process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millpond.common import options
from millpond.common.configuration import Configuration
from millpond.datastream.stream_execution_environment import StreamExecutionEnvironment


def direct_environment(settings: Mapping[str, Any] | None = None) -> StreamExecutionEnvironment:
    """Return an environment whose bounded jobs run in this process, without Spark, in milliseconds."""
    configuration = Configuration.from_dict(dict(settings or {}))
    configuration.set_string(options.EXECUTOR.key, "direct")
    return StreamExecutionEnvironment.get_execution_environment(configuration)
