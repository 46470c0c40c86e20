"""The settings of a job: string keys, typed access."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from millpond.errors import ProgramError

Number = TypeVar("Number", int, float)


class Configuration:
    """A map from setting keys to values. `millpond.common.options` lists the keys that Millpond reads.

    Getters convert values; they raise ProgramError, naming the key, if a value does not fit. Setters return
    the configuration itself, and raise TypeError if a value has the wrong Python type.
    """

    def __init__(self, other: Configuration | None = None) -> None:
        self._values: dict[str, Any] = dict(other._values) if other is not None else {}

    @classmethod
    def from_dict(cls, map: Mapping[str, Any]) -> Configuration:  # noqa: A002 (PyFlink's name)
        """Return a new configuration with the keys and values of a mapping."""
        configuration = cls()
        configuration._values.update(map)
        return configuration

    def get_string(self, key: str, default_value: str) -> str:
        """Return the value of `key` as text, or the default if it is not set."""
        return str(self._values.get(key, default_value))

    def set_string(self, key: str, value: str) -> Configuration:
        """Set `key` to a string."""
        return self._set(key, value, str)

    def get_integer(self, key: str, default_value: int) -> int:
        """Return the value of `key` as an int, or the default if it is not set."""
        return self._number(key, default_value, int)

    def set_integer(self, key: str, value: int) -> Configuration:
        """Set `key` to an int."""
        return self._set(key, value, int)

    def get_float(self, key: str, default_value: float) -> float:
        """Return the value of `key` as a float, or the default if it is not set."""
        return self._number(key, default_value, float)

    def set_float(self, key: str, value: float) -> Configuration:
        """Set `key` to a float or an int."""
        return self._set(key, value, (int, float))

    def get_boolean(self, key: str, default_value: bool) -> bool:
        """Return the value of `key` as a bool, or the default if it is not set. The texts true and false,
        in any case, fit too."""
        value = self._values.get(key, default_value)
        if isinstance(value, bool):
            return value
        text = str(value).strip().lower()
        if text not in ("true", "false"):
            raise ProgramError(f"The setting '{key}' must be true or false, not '{value}'.")
        return text == "true"

    def set_boolean(self, key: str, value: bool) -> Configuration:
        """Set `key` to a bool."""
        return self._set(key, value, bool)

    def get_bytearray(self, key: str, default_value: bytearray) -> bytearray:
        """Return a copy of the bytes of `key`, or of the default if it is not set."""
        return bytearray(self._values.get(key, default_value))

    def set_bytearray(self, key: str, value: bytearray) -> Configuration:
        """Set `key` to a copy of the bytes."""
        return self._set(key, bytearray(value), bytearray)

    @staticmethod
    def parse_list_value(value: str) -> list[str]:
        """Split text such as `a,b`, `a;b` or `['a', 'b']` into its parts."""
        text = value.strip().removeprefix("[").removesuffix("]")
        separator = "," if "," in text else ";"
        return [part.strip().strip("'\"") for part in text.split(separator) if part.strip()]

    def key_set(self) -> set[str]:
        """Return the keys that are set."""
        return set(self._values)

    def contains_key(self, key: str) -> bool:
        """Return True if `key` is set."""
        return key in self._values

    def add_all(self, other: Configuration, prefix: str | None = None) -> Configuration:
        """Copy all settings of another configuration, with `prefix` put before their keys."""
        self._values.update({(prefix or "") + key: v for key, v in other._values.items()})
        return self

    def add_all_to_dict(self, target_dict: dict[str, Any]) -> None:
        """Copy all settings into a dictionary, values as they were set."""
        target_dict.update(self._values)

    def to_dict(self) -> dict[str, str]:
        """Return all settings with their values as text."""
        return {key: str(value) for key, value in self._values.items()}

    def remove_config(self, key: str) -> bool:
        """Remove a setting; return True if it was set."""
        return self._values.pop(key, None) is not None

    def _set(self, key: str, value: object, kind: type | tuple[type, ...]) -> Configuration:
        if not isinstance(value, kind):
            kinds = kind if isinstance(kind, tuple) else (kind,)
            names = " or ".join(each.__name__ for each in kinds)
            raise TypeError(f"The value of '{key}' must be {names}, not {type(value).__name__}.")
        self._values[key] = value
        return self

    def _number(self, key: str, default_value: Number, kind: type[Number]) -> Number:
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
