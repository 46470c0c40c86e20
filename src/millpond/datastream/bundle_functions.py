"""Functions that take many records at once, beyond PyFlink."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from millpond.datastream.functions import MapFunction


class BundleMapFunction(MapFunction):
    """For `map`: gets the records of a bundle together, so that a call to another system is one for many.
    How many there are in a bundle depends on the source, the batch and the keys: results must not."""

    @abstractmethod
    def map_many(self, values: list[Any]) -> list[Any]:
        """One result for each value, in their order."""

    def map(self, value: Any) -> Any:
        return self.map_many([value])[0]
