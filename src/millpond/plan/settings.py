"""What a job is set to do, and what an attempt at it starts from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

StoredForm = tuple[str, dict[str, Any]]
"""How a state is stored: its kind, and the schema of each of its columns that has a declared type."""
StoredTypes = Mapping[str, Mapping[str, list[StoredForm]]]
"""uid -> name of a state -> the forms it is stored in, one or more"""


@dataclass(frozen=True)
class JobSettings:
    """The settings of a job, read once from its configuration. They hold for all attempts."""

    lanes: int
    """How many source passes share a batch."""
    frame_records: int
    keeps_order_across_keys: bool
    """Whether keyed functions get records in the order in which they came, whatever their keys."""
    max_batch_records: int
    target_batch_ms: int
    target_latency_ms: int | None
    batch_interval_ms: int
    min_pause_ms: int
    checkpoint_timeout_ms: int
    """0: a batch may take as long as it likes."""
    tolerated_timeouts: int
    """How many batches in a row may time out before the job fails."""
    stop_at_end: bool
    """End when everything has been read, and go on from there another day."""
    advance_at_end: bool
    """With `stop_at_end`: bring event time to the newest record before the job ends."""
    state_backend: dict[str, str]
    """The settings that begin with `state.backend.`."""
    savepoint_dir: str | None


@dataclass(frozen=True)
class JobStart:
    """What an attempt starts from. A job that goes on in its folder takes it from there."""

    job_id: str
    savepoint: str | None = None
    """The savepoint that the job's first batch starts from."""
    stored_types: StoredTypes = field(default_factory=dict)
    """The types of the states that are stored already."""
