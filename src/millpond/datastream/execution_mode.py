"""Streaming or batch."""

from enum import Enum


class RuntimeExecutionMode(Enum):
    """In BATCH, keyed aggregations give only their final results and event time jumps from its
    start to its end. AUTOMATIC is BATCH if every source is bounded."""

    STREAMING = 0
    BATCH = 1
    AUTOMATIC = 2
