"""Row: PyFlink's record with names."""

from __future__ import annotations

import pickle

import pytest

from millpond.common import Row, RowKind
from millpond.core.key_groups import stable_hash


def test_row_by_position_name_and_attribute() -> None:
    row = Row(name="Alice", age=11)
    assert (row[0], row["age"], row.name) == ("Alice", 11, "Alice")
    assert "name" in row
    assert "wrong" not in row
    assert repr(row) == "Row(name='Alice', age=11)"


def test_row_without_names() -> None:
    row = Row("Alice", 11)
    assert list(row) == ["Alice", 11]
    assert repr(row) == "<Row('Alice', 11)>"
    with pytest.raises(TypeError):
        row.as_dict()
    with pytest.raises(AttributeError):
        _ = row.name


def test_row_as_template() -> None:
    person = Row("name", "age")
    assert person("Alice", 11) == Row(name="Alice", age=11)


def test_row_can_be_changed_but_not_by_unknown_attributes() -> None:
    row = Row(a=1)
    row["a"] = 2
    row[0] += 1
    assert row.a == 3
    with pytest.raises(AttributeError, match=r"row\['b'\] = value"):
        row.b = 1


def test_row_survives_pickling_with_its_kind() -> None:
    row = Row.of_kind(RowKind.DELETE, a=1, b=Row(c=2))
    again = pickle.loads(pickle.dumps(row))
    assert again == row
    assert again.get_row_kind() is RowKind.DELETE
    assert again.as_dict(True) == {"a": 1, "b": {"c": 2}}


def test_rows_with_the_same_fields_in_another_order_are_equal() -> None:
    assert Row(a=1, b=2) == Row(b=2, a=1)
    assert Row(a=1) != Row(1)
    assert hash(Row(1, 2)) == hash(Row(1, 2))
    assert hash(Row(a=1, b=2)) == hash(Row(b=2, a=1))
    assert stable_hash(Row(a=1, b=2)) == stable_hash(Row(b=2, a=1)), "they are one key"
