"""Sources and sinks."""

from millpond.datastream.connectors.base import (
    DeliveryGuarantee,
    Epoch,
    Sink,
    SinkWriter,
    Source,
    SplitEnumerator,
    SplitWork,
    TwoPhaseSink,
)
from millpond.datastream.connectors.two_phase_commit import TwoPhaseCommitSink

__all__ = [
    "DeliveryGuarantee",
    "Epoch",
    "Sink",
    "SinkWriter",
    "Source",
    "SplitEnumerator",
    "SplitWork",
    "TwoPhaseCommitSink",
    "TwoPhaseSink",
]
