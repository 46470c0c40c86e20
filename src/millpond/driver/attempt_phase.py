"""The life of one attempt at a job, as the driver lives it.

    OPENING ──> BETWEEN ──> PLANNED ──> COMPLETE ──> BETWEEN ...
                   │           │           │
                   └───────────┴───────────┴──────> CLOSED

A batch that is COMPLETE has left its epoch behind, but its output is not visible yet. If whoever runs batches
loses the batch at that point, it is PLANNED again, from what was before it.
"""

from __future__ import annotations

from enum import Enum


class AttemptPhase(Enum):
    OPENING = "opening"
    """Sources are not open yet."""
    BETWEEN = "between batches"
    """The output of the newest complete batch is visible."""
    PLANNED = "planned"
    """A batch is planned; it may be running."""
    COMPLETE = "complete"
    """A batch has run and left its epoch behind; its output is not visible yet."""
    CLOSED = "closed"


_P = AttemptPhase
_ALLOWED = {
    _P.OPENING: {_P.COMPLETE, _P.CLOSED},
    _P.BETWEEN: {_P.PLANNED, _P.CLOSED},
    _P.PLANNED: {_P.COMPLETE, _P.CLOSED},
    _P.COMPLETE: {_P.BETWEEN, _P.PLANNED, _P.CLOSED},
    _P.CLOSED: set(),
}


class JobEnd(Enum):
    """Why there is no further batch."""

    FINISHED = "finished"
    """All input has been read, and event time has come to its end."""
    STOPPED = "stopped"
    """By a savepoint, or at the end of what was there to read; the job may go on from there."""


def check_transition(before: AttemptPhase, after: AttemptPhase) -> None:
    """Raise if an attempt cannot go from one phase to the other."""
    if after not in _ALLOWED[before]:
        raise AssertionError(f"an attempt cannot go from {before.value} to {after.value}")
