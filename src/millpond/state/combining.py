"""Reduce and aggregate functions in one form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millpond.datastream.functions import AggregateFunction, ReduceFunction
from millpond.state.tables import MISSING


class Combining:
    """Adds elements to a content: an accumulator or, for reduce, the value so far. `check`, if there is one,
    makes sure that the content has the declared type."""

    def __init__(self, function: Any, check: Callable[[Any], Any] | None = None) -> None:
        self._aggregate = function if isinstance(function, AggregateFunction) else None
        self._reduce = function.reduce if isinstance(function, ReduceFunction) else function
        # (content or MISSING, element) -> the content with one more element
        self.added: Callable[[Any, Any], Any] = (
            self._reducer() if self._aggregate is None else self._aggregator(self._aggregate)
        )
        self.result: Callable[[Any], Any] = (
            _itself if self._aggregate is None else self._aggregate.get_result
        )
        if check is not None:
            self.added = _checked(self.added, check)

    def _reducer(self) -> Callable[[Any, Any], Any]:
        reduce = self._reduce
        return lambda content, value: value if content is MISSING else reduce(content, value)

    @staticmethod
    def _aggregator(function: AggregateFunction) -> Callable[[Any, Any], Any]:
        create, add = function.create_accumulator, function.add
        return lambda content, value: add(value, create() if content is MISSING else content)

    def merged(self, first: Any, second: Any) -> object:
        """Return the content that has the elements of both."""
        if self._aggregate is not None:
            return self._aggregate.merge(first, second)
        return self._reduce(first, second)


def _itself(content: Any) -> object:
    return content


def _checked(
    added: Callable[[Any, Any], Any], check: Callable[[Any], Any]
) -> Callable[[Any, Any], Any]:
    return lambda content, value: check(added(content, value))
