"""Functions that take many records at once. Beyond PyFlink."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from millpond.datastream.functions import MapFunction


class BundleMapFunction(MapFunction):
    """A map function that gets the records of a bundle together, so that one call to another system serves
    many.

    How many records a bundle has depends on the source, the batch and the keys; results must not depend on
    it.
    """

    @abstractmethod
    def map_many(self, values: list[Any]) -> list[Any]:
        """Return one result for each value, in their order."""

    def map(self, value: object) -> Any:
        """Return the result for a single value."""
        return self.map_many([value])[0]
