"""The life of a slot.

                 started on demand, under the partition's lock, by the relay that needs it
                    │
                STARTING ── listens, has no plan yet ──────────────────────┐
                    │ first owner is let in                                │
                  READY ◄───────────────┐                                  │
                    │ a message comes   │ answered, or the owner is gone   │
                 WORKING ───────────────┘                                  │
                    │                                                      │
                  READY ── its executor is gone, or a newer run is there   │
                    │             │                                        │
                    │         ORPHANED ── adopted by a newer run ──► READY │
                    │             │                                        │
                    │ the job has ended, nobody came for a long time       │
                 CLOSING ── functions are closed ◄─────────────────────────┘
                    │
                  ENDED

An orphan keeps its state for the next run of the job, for `keep_s` (`settings.py`); `adoption.py` says which
run may have it. A slot that cannot be adopted when its executor (its JVM) dies ends at once, without CLOSING:
close() is not guaranteed to be called. State in a slot is a cache. What the journal says of the logs is the
truth, so a slot may die at any moment.
"""

from __future__ import annotations

from enum import Enum


class SlotState(Enum):
    """The states of a slot, as the picture above shows them."""

    STARTING = "starting"
    READY = "ready"
    WORKING = "working"
    ORPHANED = "orphaned"
    CLOSING = "closing"
    ENDED = "ended"


_ALLOWED = {
    SlotState.STARTING: {SlotState.READY, SlotState.CLOSING},
    SlotState.READY: {SlotState.WORKING, SlotState.ORPHANED, SlotState.CLOSING},
    SlotState.WORKING: {SlotState.READY},
    SlotState.ORPHANED: {SlotState.READY, SlotState.CLOSING},
    SlotState.CLOSING: {SlotState.ENDED},
    SlotState.ENDED: set(),
}


class SlotLife:
    """Holds the state of a slot and refuses changes that the picture does not show."""

    def __init__(self) -> None:
        self.state = SlotState.STARTING

    def go(self, state: SlotState) -> None:
        """Enter a state. Raises RuntimeError if it cannot follow the current one."""
        if state not in _ALLOWED[self.state]:
            raise RuntimeError(f"a slot cannot go from {self.state.value} to {state.value}")
        self.state = state
