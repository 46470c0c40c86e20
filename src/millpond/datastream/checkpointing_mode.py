"""What a recovery may show."""

from enum import Enum


class CheckpointingMode(Enum):
    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1
