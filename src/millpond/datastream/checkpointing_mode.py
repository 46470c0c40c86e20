"""How often a record may count after a failure."""

from enum import Enum


class CheckpointingMode(Enum):
    """The guarantee a program asks for. Millpond's state is exactly-once in both modes."""

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1
