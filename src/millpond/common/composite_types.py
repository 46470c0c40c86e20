"""Types of values that hold other values: lists, maps, tuples, rows."""

from __future__ import annotations

from typing import Any

from millpond.common.basic_types import TypeInformation
from millpond.common.types import Row
from millpond.errors import ProgramError, TypeMismatchError


class _ElementsTypeInfo(TypeInformation):
    label = ""

    def __init__(self, element_type: TypeInformation) -> None:
        self.element_type = element_type
        self._element_check = self.element_type.check()

    def conform(self, value: Any) -> object:
        if value is None or isinstance(value, (bytes, bytearray)):
            return value
        if not isinstance(value, (list, tuple)) and type(value).__name__ not in (
            "ndarray",
            "array",
        ):
            raise self._mismatch(value)
        if self._element_check is not None:
            for element in value:
                self._element_check(element)
        return value

    def __repr__(self) -> str:
        return f"{self.label}<{self.element_type}>"


class PrimitiveArrayTypeInfo(_ElementsTypeInfo):
    """The type made by `Types.PRIMITIVE_ARRAY`."""

    label = "PrimitiveArray"


class BasicArrayTypeInfo(_ElementsTypeInfo):
    """The type made by `Types.BASIC_ARRAY`."""

    label = "BasicArray"


class ObjectArrayTypeInfo(_ElementsTypeInfo):
    """The type made by `Types.OBJECT_ARRAY`."""

    label = "ObjectArray"


class ListTypeInfo(_ElementsTypeInfo):
    """The type made by `Types.LIST`."""

    label = "List"


class MapTypeInfo(TypeInformation):
    """The type of dictionaries, made by `Types.MAP`. Every key and value is checked."""

    def __init__(self, key_type_info: TypeInformation, value_type_info: TypeInformation) -> None:
        self.key_type_info = key_type_info
        self.value_type_info = value_type_info

    def conform(self, value: object) -> object:
        if value is None:
            return value
        if not isinstance(value, dict):
            raise self._mismatch(value)
        for key, item in value.items():
            self.key_type_info.conform(key)
            self.value_type_info.conform(item)
        return value

    def __repr__(self) -> str:
        return f"Map<{self.key_type_info}, {self.value_type_info}>"


class _FieldsTypeInfo(TypeInformation):
    """The type of values with a fixed number of fields, each with a type of its own."""

    def __init__(self, field_types: list[TypeInformation]) -> None:
        self.types = list(field_types)
        self._checks = [field_type.check() for field_type in self.types]

    def get_field_types(self) -> list[TypeInformation]:
        """Return the types of the fields, in order."""
        return self.types

    def _conform_fields(self, value: Any) -> list[Any]:
        if len(value) != len(self._checks):
            raise TypeMismatchError(
                f"{value!r} has {len(value)} fields, but the declared type {self} has "
                f"{len(self._checks)}"
            )
        try:
            return [
                item if check is None else check(item)
                for check, item in zip(self._checks, value, strict=True)
            ]
        except TypeMismatchError as mismatch:
            raise TypeMismatchError(f"{mismatch} of a field of {self} in {value!r}") from None


class TupleTypeInfo(_FieldsTypeInfo):
    """The type of tuples, made by `Types.TUPLE`. Lists and rows with as many fields are turned into
    tuples."""

    def conform(self, value: object) -> object:
        if value is None:
            return value
        if not isinstance(value, (tuple, list, Row)):
            raise self._mismatch(value)
        return tuple(self._conform_fields(value))

    def __repr__(self) -> str:
        return f"Tuple<{', '.join(map(str, self.types))}>"


class RowTypeInfo(_FieldsTypeInfo):
    """The type of `Row`s, made by `Types.ROW` and `Types.ROW_NAMED`. Without names the fields are called f0,
    f1, ...

    Tuples, lists and dictionaries with the right fields are turned into rows.
    """

    def __init__(
        self, field_types: list[TypeInformation], field_names: list[str] | None = None
    ) -> None:
        super().__init__(field_types)
        if field_names is not None and len(field_names) != len(field_types):
            raise ProgramError(
                f"Types.ROW_NAMED needs as many names as types, but got the names {field_names} for "
                f"{len(field_types)} types."
            )
        self.field_names = field_names or [f"f{i}" for i in range(len(field_types))]

    def get_field_names(self) -> list[str]:
        """Return the names of the fields, in order."""
        return self.field_names

    def get_field_index(self, field_name: str) -> int:
        """Return the position of a field, or -1 if there is no field with this name."""
        return self.field_names.index(field_name) if field_name in self.field_names else -1

    def conform(self, value: object) -> object:
        if value is None:
            return value
        if isinstance(value, dict):
            missing = [name for name in self.field_names if name not in value]
            if missing:
                raise TypeMismatchError(f"{value!r} lacks the fields {missing} of {self}")
            value = [value[name] for name in self.field_names]
        if not isinstance(value, (tuple, list, Row)):
            raise self._mismatch(value)
        row = Row(*self._conform_fields(value))
        row.set_field_names(self.field_names)
        if isinstance(value, Row):
            row.set_row_kind(value.get_row_kind())
        return row

    def __repr__(self) -> str:
        fields = ", ".join(
            f"{name}: {field_type}"
            for name, field_type in zip(self.field_names, self.types, strict=True)
        )
        return f"Row<{fields}>"


class ExternalTypeInfo(TypeInformation):
    """A Table API type around another type; it checks what that one checks."""

    def __init__(self, type_info: TypeInformation) -> None:
        self._type_info = type_info

    def conform(self, value: object) -> object:
        return self._type_info.conform(value)

    def __repr__(self) -> str:
        return f"External<{self._type_info}>"
