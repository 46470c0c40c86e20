"""The two clocks."""

from enum import Enum


class TimeDomain(Enum):
    """Which clock a timer follows."""

    EVENT_TIME = 0
    PROCESSING_TIME = 1
