"""What the read-only views of all kinds have in common."""

from __future__ import annotations

from typing import Any, NoReturn

from millpond.datastream.state import State
from millpond.errors import QueryableStateError


def refuse_change() -> NoReturn:
    """Raise the error of every method that would change a state that was looked up."""
    raise QueryableStateError("A state that was looked up can only be read.")


class ReadOnlyView(State):
    """The content of a state, as a look-up found it."""

    def __init__(self, content: Any) -> None:
        self._content = content

    def clear(self) -> None:
        """Refuse the change."""
        refuse_change()


class ReadOnlyAppendingView(ReadOnlyView):
    """A view of a state with `get` and `add`."""

    def get(self) -> Any:
        """Return the content."""
        return self._content

    def add(self, value: object) -> None:
        """Refuse the change."""
        refuse_change()
