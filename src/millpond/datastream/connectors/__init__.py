"""Sources and sinks."""

from millpond.datastream.connectors.base import (
    DeliveryGuarantee,
    Sink,
    SinkWriter,
    Source,
    SplitEnumerator,
    SplitWork,
    TwoPhaseSink,
)

__all__ = [
    "DeliveryGuarantee",
    "Sink",
    "SinkWriter",
    "Source",
    "SplitEnumerator",
    "SplitWork",
    "TwoPhaseSink",
]
