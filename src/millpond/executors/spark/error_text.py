"""Millpond's errors on their way from a worker to the driver, through the JVM."""

from __future__ import annotations

import base64
import json
from types import TracebackType

import millpond.errors
from millpond.errors import MillpondError, UserFunctionError

ERROR_START, ERROR_END = "<<millpond:", ":millpond>>"


class reported_errors:  # noqa: N801 (reads as a statement)
    """A context manager that turns Millpond's errors into a text that survives the way through the JVM: one
    short line in which the driver finds the error again (`find_error`)."""

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(problem, MillpondError):
            fields = (
                list(problem.args) if isinstance(problem, UserFunctionError) else [str(problem)]
            )
            text = json.dumps([type(problem).__name__, fields])
            packed = base64.b64encode(text.encode()).decode()
            raise RuntimeError(f"{ERROR_START}{packed}{ERROR_END}") from None


def find_error(text: str) -> MillpondError | None:
    """Return the error that `reported_errors` has put into a text; None if there is none in it."""
    start = text.find(ERROR_START)
    end = text.find(ERROR_END, start)
    if start < 0 or end < 0:
        return None
    packed = text[start + len(ERROR_START) : end]
    name, fields = json.loads(base64.b64decode(packed))
    error: MillpondError = getattr(millpond.errors, name)(*fields)
    return error
