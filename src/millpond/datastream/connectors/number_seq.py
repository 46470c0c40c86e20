"""PyFlink's module name for NumberSequenceSource."""

from millpond.datastream.connectors.collection import NumberSequenceSource

__all__ = ["NumberSequenceSource"]
