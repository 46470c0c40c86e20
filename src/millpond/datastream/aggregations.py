"""The built-in rolling aggregations, as reduce functions."""

from __future__ import annotations

from enum import Enum
from typing import Any

from millpond.common.types import Row
from millpond.datastream.functions import ReduceFunction
from millpond.errors import ProgramError


class Aggregation(Enum):
    """The aggregations by name."""

    SUM = "sum"
    MIN = "min"
    MAX = "max"
    MIN_BY = "min_by"
    MAX_BY = "max_by"


class FieldAggregation(ReduceFunction):
    """Aggregates one field of tuples, lists or rows, or plain values.

    The other fields keep the values of the first record; MIN_BY and MAX_BY keep the whole record that has the
    smallest or largest field, the first one if several tie.
    """

    def __init__(self, aggregation: Aggregation, position: int | str) -> None:
        if not isinstance(position, (int, str)):
            raise TypeError(
                f"{aggregation.value} takes the position or name of a field, not "
                f"{type(position).__name__}."
            )
        self.aggregation = aggregation
        self.position = position

    def reduce(self, value1: Any, value2: Any) -> Any:
        old, new = self._field(value1), self._field(value2)
        aggregation = self.aggregation
        if aggregation is Aggregation.MIN_BY:
            return value2 if new < old else value1
        if aggregation is Aggregation.MAX_BY:
            return value2 if new > old else value1
        if aggregation is Aggregation.SUM:
            return self._with_field(value1, old + new)
        if aggregation is Aggregation.MIN:
            return self._with_field(value1, new if new < old else old)
        return self._with_field(value1, new if new > old else old)

    def _field(self, value: object) -> Any:
        if isinstance(value, (tuple, list, Row)):
            return value[self.position]  # type: ignore[index]
        if self.position != 0:
            raise ProgramError(
                f"{self.aggregation.value} asks for field {self.position!r}, but the records are "
                f"plain values ({type(value).__name__}). Leave the position out."
            )
        return value

    def _with_field(self, value: object, field: object) -> Any:
        if isinstance(value, tuple):
            at = int(self.position)
            return (*value[:at], field, *value[at + 1 :])
        if isinstance(value, (list, Row)):
            value[self.position] = field  # type: ignore[index]
            return value
        return field
