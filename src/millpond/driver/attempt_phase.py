"""The life of one attempt at a job, as the driver sees it.

    OPENING ──> COMPLETE ──> BETWEEN ──> PLANNED ──> COMPLETE ...
       │           │            │           │
       └───────────┴────────────┴───────────┴──────> CLOSED

A batch that is COMPLETE has left its epoch behind, and counts, but its output is not visible yet.
"""

from __future__ import annotations

from enum import Enum


class AttemptPhase(Enum):
    """The phases of an attempt. `check_transition` says which may follow which."""

    OPENING = "opening"
    """Sources are not open yet."""
    BETWEEN = "between batches"
    """The output of the newest complete batch is visible."""
    PLANNED = "planned"
    """A batch is planned; it may be running."""
    COMPLETE = "complete"
    """A batch has run and left its epoch behind; its output is not visible yet."""
    CLOSED = "closed"
    """The attempt is over."""


_P = AttemptPhase
_ALLOWED = {
    _P.OPENING: {_P.COMPLETE, _P.CLOSED},
    _P.BETWEEN: {_P.PLANNED, _P.CLOSED},
    _P.PLANNED: {_P.COMPLETE, _P.CLOSED},
    _P.COMPLETE: {_P.BETWEEN, _P.CLOSED},
    _P.CLOSED: set(),
}


class JobEnd(Enum):
    """Why there is no further batch."""

    FINISHED = "finished"
    """All input has been read, and event time has reached its end."""
    STOPPED = "stopped"
    """The job was stopped by a savepoint, or because it had read all there was. It may go on from there."""


def check_transition(before: AttemptPhase, after: AttemptPhase) -> None:
    """Raise AssertionError if an attempt cannot go from one phase to the other."""
    if after not in _ALLOWED[before]:
        raise AssertionError(f"an attempt cannot go from {before.value} to {after.value}")
