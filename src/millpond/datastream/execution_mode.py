"""Streaming or batch."""

from enum import Enum


class RuntimeExecutionMode(Enum):
    """How a job treats its input. AUTOMATIC means BATCH if every source is bounded, else STREAMING.

    In BATCH mode, keyed aggregations emit only their final results, and event time jumps from its start to
    its end.
    """

    STREAMING = 0
    BATCH = 1
    AUTOMATIC = 2
