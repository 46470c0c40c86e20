"""What happens to the job folder when a job is cancelled."""

from __future__ import annotations

from enum import Enum


class ExternalizedCheckpointRetention(Enum):
    """Whether the job folder of a cancelled job is deleted; only DELETE_ON_CANCELLATION does so.

    The folder of a failed job is always kept.
    """

    DELETE_ON_CANCELLATION = 0
    RETAIN_ON_CANCELLATION = 1
    NO_EXTERNALIZED_CHECKPOINTS = 2
