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

__all__ = [
    "DeliveryGuarantee",
    "Epoch",
    "Sink",
    "SinkWriter",
    "Source",
    "SplitEnumerator",
    "SplitWork",
    "TwoPhaseSink",
]
