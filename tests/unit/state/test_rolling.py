"""Rolling aggregations of columns against reduce, record by record."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.datastream.aggregations import Aggregation, FieldAggregation
from millpond.state import rolling
from millpond.state.hash.tables import HashValueTable as ValueTable
from millpond.state.rolling import roll

KEYS = st.sampled_from(["a", "b", "c", 1, (2, "x")])
NUMBERS = st.one_of(st.integers(-5, 5), st.integers(-(1 << 40), 1 << 40))
AGGREGATIONS = [Aggregation.SUM, Aggregation.MIN, Aggregation.MAX]


def one_by_one(
    function: FieldAggregation, records: list[tuple[Any, Any]], table: ValueTable
) -> Any:
    results = []
    for key, value in records:
        old = table.data.get(key)
        table.set(key, value if old is None else function.reduce(old, value))
        results.append(table.data[key])
    return results


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(st.tuples(KEYS, st.text(max_size=2), NUMBERS), min_size=1), max_size=4))
def test_columns_give_what_single_records_give(
    aggregation: Aggregation, batches: list[list[tuple[Any, str, int]]]
) -> None:
    function = FieldAggregation(aggregation, 1)
    expected_table, table = ValueTable(), ValueTable()
    limit, rolling._WORTH_IT = rolling._WORTH_IT, 1
    try:
        for batch in batches:
            records = [(key, (text, number)) for key, text, number in batch]
            expected = one_by_one(function, records, expected_table)
            keys, values = [key for key, _ in records], [value for _, value in records]
            assert roll(aggregation, 1, keys, values, table) == expected
            assert table.data == expected_table.data
            assert table.undo == expected_table.undo
    finally:
        rolling._WORTH_IT = limit


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_plain_numbers_are_rolled(aggregation: Aggregation) -> None:
    numbers, table, expected_table = list(range(20)), ValueTable(), ValueTable()
    function = FieldAggregation(aggregation, 0)
    expected = one_by_one(function, [(n % 3, n) for n in numbers], expected_table)
    assert roll(aggregation, 0, [n % 3 for n in numbers], numbers, table) == expected


@pytest.mark.parametrize(
    "values",
    [
        [("a", 1.5)] * 20,
        [("a", True)] * 20,
        [("a", 1)] * 19 + [("a", 1, 2)],
        [["a", 1]] * 20,
        [("a", 1 << 62)] * 20,
        [("a", 1 << 70)] * 20,
        [("a", (1 << 62) - 1)] * 20,
        [("a", 1)] * 3,
    ],
    ids=["floats", "booleans", "widths", "lists", "62 bits", "70 bits", "sum too large", "few"],
)
def test_what_would_not_be_exact_is_left_to_single_records(values: list[Any]) -> None:
    table = ValueTable()
    assert roll(Aggregation.SUM, 1, ["k"] * len(values), values, table) is None
    assert not table.data
