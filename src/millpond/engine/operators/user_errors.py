"""Turns the failure of a user's function into an error that names the operator and the record."""

from __future__ import annotations

import traceback

from millpond.datastream.functions import Function
from millpond.errors import MillpondError, UserFunctionError

_RECORD_TEXT = 300
_FRAMES = 8
_HIDDEN_FRAMES = (
    "millpond/core/",
    "millpond/engine/",
    "millpond/executors/",
    "millpond/state/",
    "pyspark/",
)


def user_error(
    problem: BaseException, operator: str, subtask: int, action: str, record: object
) -> MillpondError:
    """Return the error to raise when a user's function has failed: short, with the user's part of the
    traceback. `action` says what the function was doing. `record` may be None."""
    if isinstance(problem, UserFunctionError):
        return problem
    frames = [
        frame
        for frame in traceback.extract_tb(problem.__traceback__)
        if not any(part in frame.filename for part in _HIDDEN_FRAMES)
    ]
    cause = "".join(traceback.format_exception_only(problem)).strip()
    text = "".join(traceback.format_list(frames[-_FRAMES:]))
    try:
        shown = repr(record) if record is not None else ""
    except Exception as unprintable:  # a broken __repr__ must not hide the original error
        shown = f"<{type(record).__name__} whose repr fails: {unprintable}>"
    if len(shown) > _RECORD_TEXT:
        shown = shown[: _RECORD_TEXT - 3] + "..."
    return UserFunctionError(operator, subtask, action, shown, cause[:2000], text[:4000])


def close_function(function: object, operator: str, subtask: int) -> None:
    """Close a user's function; a plain callable has nothing to close.

    Raises UserFunctionError, which names the operator, if the function cannot be closed."""
    if isinstance(function, Function):
        try:
            function.close()
        except Exception as problem:
            raise user_error(problem, operator, subtask, "close()", None) from None
