"""A job as it is sent to workers, once."""

from __future__ import annotations

from dataclasses import dataclass

from millpond.executors.slot.settings import SlotSettings


@dataclass(frozen=True)
class JobRef:
    """Everything that a worker needs to know about a job: the pickled plan, the number of the attempt at the
    job, and the settings of its slots."""

    blob: bytes
    attempt: int
    slots: SlotSettings
