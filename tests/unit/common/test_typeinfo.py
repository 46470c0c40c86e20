"""Types: what fits, what is refused and how, type hints."""

from __future__ import annotations

import datetime
import decimal
from dataclasses import dataclass
from typing import Any, Optional

import pytest

from millpond.common import Instant, Row, Types
from millpond.common.typeinfo import to_type_info
from millpond.errors import ProgramError, TypeMismatchError


@pytest.mark.parametrize(
    ("type_info", "value"),
    [
        (Types.STRING(), "x"),
        (Types.BYTE(), -128),
        (Types.SHORT(), 32767),
        (Types.INT(), -(2**31)),
        (Types.LONG(), 2**63 - 1),
        (Types.BIG_INT(), 2**100),
        (Types.BOOLEAN(), True),
        (Types.FLOAT(), 1.5),
        (Types.DOUBLE(), 1),
        (Types.CHAR(), "c"),
        (Types.BIG_DEC(), decimal.Decimal("1.5")),
        (Types.INSTANT(), Instant(1, 2)),
        (Types.SQL_DATE(), datetime.date(2026, 1, 1)),
        (Types.SQL_TIME(), datetime.time(1, 2)),
        (Types.SQL_TIMESTAMP(), datetime.datetime(2026, 1, 1)),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), b"bytes"),
        (Types.BASIC_ARRAY(Types.INT()), [1, 2]),
        (Types.OBJECT_ARRAY(Types.STRING()), ["a"]),
        (Types.LIST(Types.INT()), [1, 2]),
        (Types.MAP(Types.STRING(), Types.INT()), {"a": 1}),
        (Types.TUPLE([Types.STRING(), Types.INT()]), ("a", 1)),
        (Types.PICKLED_BYTE_ARRAY(), object),
        (Types.STRING(), None),
    ],
    ids=str,
)
def test_value_that_fits_stays_as_it_is(type_info: Any, value: Any) -> None:
    assert type_info.conform(value) == value


@pytest.mark.parametrize(
    ("type_info", "value", "message"),
    [
        (Types.STRING(), 1, "does not fit the declared type String"),
        (Types.INT(), "1", "does not fit the declared type Integer"),
        (Types.INT(), True, "does not fit the declared type Integer"),
        (Types.INT(), 2**31, "out of range for Integer"),
        (Types.BYTE(), 128, "out of range for Byte"),
        (Types.DOUBLE(), "x", "does not fit the declared type Double"),
        (Types.LIST(Types.INT()), [1, "x"], "'x' .* does not fit"),
        (Types.LIST(Types.INT()), 7, "does not fit the declared type List<Integer>"),
        (Types.MAP(Types.STRING(), Types.INT()), {"a": "b"}, "'b' .* does not fit"),
        (Types.TUPLE([Types.STRING(), Types.INT()]), ("a",), "has 1 fields, but .* has 2"),
        (Types.TUPLE([Types.STRING(), Types.INT()]), ("a", "b"), r"a field of Tuple<String, Int"),
        (Types.TUPLE([Types.STRING()]), "a", "does not fit the declared type Tuple"),
        (
            Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.INT()]),
            {"a": 1},
            r"lacks the fields \['b'\]",
        ),
    ],
)
def test_value_that_does_not_fit_is_refused_in_words(
    type_info: Any, value: Any, message: str
) -> None:
    with pytest.raises(TypeMismatchError, match=message):
        type_info.conform(value)


def test_row_type_makes_rows_with_names() -> None:
    row_type = Types.ROW_NAMED(["id", "name"], [Types.INT(), Types.STRING()])
    for value in ((1, "x"), [1, "x"], Row(1, "x"), {"id": 1, "name": "x"}):
        row = row_type.conform(value)
        assert (row.id, row["name"], row[1], row.as_dict()) == (
            1,
            "x",
            "x",
            {"id": 1, "name": "x"},
        )


@dataclass(frozen=True)
class _Point:
    x: int


@pytest.mark.parametrize(
    ("hint", "type_info"),
    [
        (str, Types.STRING()),
        (int, Types.BIG_INT()),
        (float, Types.DOUBLE()),
        (bool, Types.BOOLEAN()),
        (tuple[str, int], Types.TUPLE([Types.STRING(), Types.BIG_INT()])),
        (list[str], Types.LIST(Types.STRING())),
        (dict[str, float], Types.MAP(Types.STRING(), Types.DOUBLE())),
        (Optional[str], Types.STRING()),  # noqa: UP045 (what users write)
        (int | None, Types.BIG_INT()),
        (Any, Types.PICKLED_BYTE_ARRAY()),
    ],
    ids=str,
)
def test_type_hints_stand_for_types(hint: Any, type_info: Any) -> None:
    assert to_type_info(hint) == type_info


def test_dataclass_is_a_type() -> None:
    point_type = to_type_info(_Point)
    assert point_type.conform(_Point(1)) == _Point(1)
    with pytest.raises(TypeMismatchError, match=r"Class<.*_Point>"):
        point_type.conform((1,))


def test_what_is_no_type_is_refused() -> None:
    with pytest.raises(ProgramError, match="is not a type that Millpond knows"):
        to_type_info("string")
