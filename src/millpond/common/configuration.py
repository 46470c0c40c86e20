"""A job's settings: string keys, typed access."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millpond.errors import ProgramError


class Configuration:
    """Keys to values, as Flink's configuration. Millpond's own keys are in `millpond.common.options`."""

    def __init__(self, other: Configuration | None = None) -> None:
        self._values: dict[str, Any] = dict(other._values) if other is not None else {}

    @classmethod
    def from_dict(cls, map: Mapping[str, Any]) -> Configuration:  # noqa: A002 (PyFlink's name)
        configuration = cls()
        configuration._values.update(map)
        return configuration

    def get_string(self, key: str, default_value: str) -> str:
        return str(self._values.get(key, default_value))

    def set_string(self, key: str, value: str) -> Configuration:
        return self._set(key, value, str)

    def get_integer(self, key: str, default_value: int) -> int:
        return int(self._number(key, default_value, int))

    def set_integer(self, key: str, value: int) -> Configuration:
        return self._set(key, value, int)

    def get_float(self, key: str, default_value: float) -> float:
        return float(self._number(key, default_value, float))

    def set_float(self, key: str, value: float) -> Configuration:
        return self._set(key, value, (int, float))

    def get_boolean(self, key: str, default_value: bool) -> bool:
        value = self._values.get(key, default_value)
        if isinstance(value, bool):
            return value
        text = str(value).strip().lower()
        if text not in ("true", "false"):
            raise ProgramError(f"The setting '{key}' must be true or false, not '{value}'.")
        return text == "true"

    def set_boolean(self, key: str, value: bool) -> Configuration:
        return self._set(key, value, bool)

    def get_bytearray(self, key: str, default_value: bytearray) -> bytearray:
        return bytearray(self._values.get(key, default_value))

    def set_bytearray(self, key: str, value: bytearray) -> Configuration:
        return self._set(key, bytearray(value), bytearray)

    @staticmethod
    def parse_list_value(value: str) -> list[str]:
        text = value.strip().removeprefix("[").removesuffix("]")
        separator = "," if "," in text else ";"
        return [part.strip().strip("'\"") for part in text.split(separator) if part.strip()]

    def key_set(self) -> set[str]:
        return set(self._values)

    def contains_key(self, key: str) -> bool:
        return key in self._values

    def add_all(self, other: Configuration, prefix: str | None = None) -> Configuration:
        self._values.update({(prefix or "") + key: v for key, v in other._values.items()})
        return self

    def add_all_to_dict(self, target_dict: dict[str, Any]) -> None:
        target_dict.update(self._values)

    def to_dict(self) -> dict[str, str]:
        return {key: str(value) for key, value in self._values.items()}

    def remove_config(self, key: str) -> bool:
        return self._values.pop(key, None) is not None

    def _set(self, key: str, value: Any, kind: type | tuple[type, ...]) -> Configuration:
        if not isinstance(value, kind):
            raise TypeError(f"The value of '{key}' must be {kind}, got {type(value).__name__}")
        self._values[key] = value
        return self

    def _number(self, key: str, default_value: Any, kind: Any) -> Any:
        value = self._values.get(key, default_value)
        try:
            return kind(value)
        except (TypeError, ValueError):
            raise ProgramError(
                f"The setting '{key}' must be a number ({kind.__name__}), not '{value}'."
            ) from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Configuration) and self._values == other._values

    def __hash__(self) -> int:
        return hash(tuple(sorted(self.to_dict().items())))

    def __repr__(self) -> str:
        return f"Configuration({self._values!r})"
