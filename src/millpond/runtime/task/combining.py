"""What a window's function does with elements: reduce and aggregate in one form."""

from __future__ import annotations

from typing import Any

from millpond.datastream.functions import AggregateFunction, ReduceFunction
from millpond.state.tables import MISSING


class Combining:
    """`content` is an accumulator, or for reduce the value so far."""

    def __init__(self, function: Any) -> None:
        self._aggregate = function if isinstance(function, AggregateFunction) else None
        self._reduce = function.reduce if isinstance(function, ReduceFunction) else function

    def added(self, content: Any, value: Any) -> Any:
        """The content with one more element; MISSING is that of an empty window."""
        aggregate = self._aggregate
        if aggregate is not None:
            return aggregate.add(
                value, aggregate.create_accumulator() if content is MISSING else content
            )
        return value if content is MISSING else self._reduce(content, value)

    def merged(self, first: Any, second: Any) -> Any:
        """The content of both."""
        if self._aggregate is not None:
            return self._aggregate.merge(first, second)
        return self._reduce(first, second)

    def result(self, content: Any) -> Any:
        return content if self._aggregate is None else self._aggregate.get_result(content)
