"""Row: a record with fields by position and, optionally, by name."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any


class RowKind(Enum):
    """The meaning of a row in a changelog; `str` gives Flink's short form, such as +I."""

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3

    def __str__(self) -> str:
        return {0: "+I", 1: "-U", 2: "+U", 3: "-D"}[self.value]


_SLOTS = ("_values", "_fields", "_row_kind")


class Row:
    """A record whose fields are read by position (``row[0]``) or by name (``row["name"]``, ``row.name``).

    ``Row(1, "a")`` has positions only; ``Row(id=1, name="a")`` has names; ``Person = Row("id", "name")`` is a
    template: ``Person(1, "a")``.
    """

    __slots__ = _SLOTS
    _values: list[Any]
    _fields: list[str] | None
    _row_kind: RowKind

    def __init__(self, *args: object, **kwargs: object) -> None:
        if args and kwargs:
            raise ValueError("A Row takes either positional or named values, not both.")
        set_slot = object.__setattr__
        set_slot(self, "_fields", list(kwargs) if kwargs else None)
        set_slot(self, "_values", list(kwargs.values()) if kwargs else list(args))
        set_slot(self, "_row_kind", RowKind.INSERT)

    @staticmethod
    def of_kind(row_kind: RowKind, *args: object, **kwargs: object) -> Row:
        """Return a new row of the given kind."""
        row = Row(*args, **kwargs)
        row.set_row_kind(row_kind)
        return row

    def get_row_kind(self) -> RowKind:
        """Return the kind of the row; INSERT unless set."""
        return self._row_kind

    def set_row_kind(self, row_kind: RowKind) -> None:
        """Set the kind of the row."""
        object.__setattr__(self, "_row_kind", row_kind)

    def set_field_names(self, field_names: list[str]) -> None:
        """Name the fields, in order."""
        object.__setattr__(self, "_fields", list(field_names))

    def get_fields_by_names(self, names: list[str]) -> list[Any]:
        """Return the values of the named fields, in the order of `names`. Without field names, return all
        values.

        Raise KeyError if a name does not exist.
        """
        if self._fields is None or names == self._fields:
            return self._values
        missing = sorted(set(names) - set(self._fields))
        if missing:
            raise KeyError(f"The row has no fields {missing}, only {self._fields}.")
        return [self._values[self._fields.index(name)] for name in names]

    def as_dict(self, recursive: bool = False) -> dict[str, Any]:
        """Return the fields as a dictionary; with `recursive`, also rows inside fields. Raise TypeError
        without field names."""
        if self._fields is None:
            raise TypeError("A Row without field names cannot become a dictionary.")
        values = [_plain(v) for v in self._values] if recursive else self._values
        return dict(zip(self._fields, values, strict=False))

    def _index(self, name: str) -> int:
        if self._fields is None or name not in self._fields:
            raise KeyError(name)
        return self._fields.index(name)

    def __getitem__(self, item: int | slice | str) -> Any:
        if isinstance(item, str):
            return self._values[self._index(item)]
        return self._values[item]

    def __setitem__(self, item: int | slice | str, value: Any) -> None:
        if isinstance(item, str):
            self._values[self._index(item)] = value
        else:
            self._values[item] = value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self._values[self._index(name)]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _SLOTS:
            raise AttributeError(
                f"Set a field of a Row with row['{name}'] = value, not row.{name}."
            )
        object.__setattr__(self, name, value)

    def __call__(self, *args: object) -> Row:
        """Return a new row whose field names are this row's values."""
        if len(args) > len(self._values):
            raise ValueError(
                f"The Row template {self!r} takes {len(self)} values, but got {len(args)}."
            )
        return _create_row(list(self._values), tuple(args), self._row_kind)

    def __contains__(self, item: object) -> bool:
        return item in (self._fields if self._fields is not None else self._values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Row) or self._row_kind != other._row_kind:
            return False
        if self._fields is None or other._fields is None:
            return self._fields is other._fields and self._values == other._values
        return self.as_dict() == other.as_dict()

    def __hash__(self) -> int:
        return hash(tuple(self.in_order_of_names()))

    def in_order_of_names(self) -> list[Any]:
        """Return the values in the order of the fields' names, so that equal rows give equal lists."""
        if self._fields is None:
            return self._values
        named = zip(self._fields, self._values, strict=False)
        return [value for _, value in sorted(named, key=lambda pair: pair[0])]

    def __repr__(self) -> str:
        if self._fields is None:
            return f"<Row({', '.join(map(repr, self._values))})>"
        pairs = zip(self._fields, self._values, strict=False)
        return f"Row({', '.join(f'{name}={value!r}' for name, value in pairs)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _create_row, (self._fields, tuple(self._values), self._row_kind)


def _create_row(
    fields: list[str] | None, values: tuple[Any, ...], row_kind: RowKind = RowKind.INSERT
) -> Row:
    row = Row(*values)
    if fields is not None:
        row.set_field_names(fields)
    row.set_row_kind(row_kind)
    return row


_set_values, _set_fields, _set_kind = (vars(Row)[name].__set__ for name in _SLOTS)


def named_row(fields: list[str], values: list[Any]) -> Row:
    """Return a Row that holds these very lists, without copying: the caller must not change them
    afterwards."""
    row = object.__new__(Row)
    _set_values(row, values)
    _set_fields(row, fields)
    _set_kind(row, RowKind.INSERT)
    return row


def _plain(value: object) -> object:
    if isinstance(value, Row):
        return value.as_dict(True)
    if isinstance(value, list):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return value
